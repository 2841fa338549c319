"""MemoryStore."""

import gc
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any

from plantstore import MemoryStore, Plant, PlantExists


class SlowId(int):
    """An id whose hash lets other threads run first."""

    def __hash__(self) -> int:
        """Return the hash of the int, after other threads had a turn."""
        time.sleep(0)
        return int(self)


def test_duplicate_check_and_insert_are_atomic(store: MemoryStore) -> None:
    """The check for a duplicate and the insertion are one atomic step."""

    def add_all(thread: int) -> int:
        added = 0
        for id in range(200):
            with suppress(PlantExists):
                store.add(Plant(SlowId(id), f"of thread {thread}"))
                added += 1
        return added

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(add_all, range(8))) == len(store) == 200


class UsedId(int):
    """An id that calls a function each time it is used as a key."""

    use: Callable[[], object] = int

    def __hash__(self) -> int:
        """Return the hash of the int."""
        self.use()
        return int(self)


ROSE, LILY = Plant(1, "Rose", "red"), Plant(1, "Lily", "white")


def test_operations_wait_for_each_other(store: MemoryStore) -> None:
    """While an operation uses a plant, none of another thread finds or changes a part of it."""
    calls = list[Future[Any]]()
    with ThreadPoolExecutor(1) as threads:

        def meanwhile(call: Callable[..., object], *arguments: object) -> None:
            calls.append(threads.submit(call, *arguments))
            wait(calls, 0.1)  # Without the lock, the call has ended by then.

        added, removed, read = UsedId(1), UsedId(1), UsedId(1)
        added.use = partial(meanwhile, store.get, 1)
        store.add(ROSE._replace(id=added))
        added.use = int
        assert {found.result() for found in calls} <= {None, ROSE}
        removed.use = partial(meanwhile, store.add, LILY)
        store.remove(removed)
        wait(calls)
        assert store.get(1) == LILY
        store.remove(1)
        store.add(LILY._replace(id=read))
        read.use = partial(meanwhile, store.remove, 1)
        assert list(store) == [LILY]
    assert len(store) == 0


def test_plants_are_not_tracked_by_garbage_collection(store: MemoryStore) -> None:
    """The number of objects that the garbage collector tracks does not grow with the plants."""
    before = len(gc.get_objects())
    for id in range(10_000):
        store.add(Plant(id, f"plant {id}", f"tag {id}"))
    assert len(gc.get_objects()) - before < 100
