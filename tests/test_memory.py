"""MemoryStore, and what opens it."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from plantstore import MemoryStore, Plant, PlantExists, open_store


class SlowId(int):
    """An id that lets other threads go first whenever it is looked up."""

    def __hash__(self) -> int:
        """Return an int's hash, after a while."""
        time.sleep(0)
        return int(self)


def test_no_thread_comes_between() -> None:
    """Looking whether an id is taken and taking it is one step, however threads take turns."""
    store = MemoryStore()

    def add_all(thread: int) -> int:
        added = 0
        for id in range(200):
            with suppress(PlantExists):
                store.add(Plant(SlowId(id), f"of thread {thread}"))
                added += 1
        return added

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(add_all, range(8))) == len(store) == 200


def test_the_collector_has_nothing_to_walk() -> None:
    """However many plants there are, the garbage collector has not one object more to walk."""
    store = MemoryStore()
    before = len(gc.get_objects())
    for id in range(10_000):
        store.add(Plant(id, f"plant {id}", f"tag {id}"))
    assert len(gc.get_objects()) - before < 100
    assert not any(gc.is_tracked(kept) for kept in vars(store).values() if isinstance(kept, dict))


def test_a_url_opens_a_memory_store() -> None:
    """memory:// opens an empty MemoryStore, a new one each time."""
    store = open_store("memory://")
    store.add(Plant(1, "Rose"))
    assert isinstance(store, MemoryStore)
    assert len(open_store("memory://")) == 0


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "memory:",
        "memory://x",
        "MEMORY://",
        "foo://me:hunter2@host/db",
        "me:hunter2@host",
    ],
)
def test_other_urls_open_nothing(url: str) -> None:
    """A URL of no store is refused; the message says what would do, and shows no password."""
    with pytest.raises(ValueError, match="memory://") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
