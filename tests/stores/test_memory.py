"""MemoryStore."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

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


def test_replace_is_atomic(store: MemoryStore) -> None:
    """A plant that is removed while it is replaced does not come back."""
    store.add(Plant(1, "Rose"))
    calls = list[Future[None]]()
    with ThreadPoolExecutor(1) as threads:

        def remove() -> None:
            if not calls:
                calls.append(threads.submit(store.remove, 1))
                wait(calls, 0.1)  # Without the lock, the call has ended by then.

        replaced = UsedId(1)
        replaced.use = remove
        store.replace(Plant(replaced, "Lily"))
    calls[0].result()
    assert [*store] == []
