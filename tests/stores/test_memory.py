"""MemoryStore, and the URL memory://."""

import gc
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import pytest

from plantstore import MemoryStore, Plant, PlantExists, open_store


class SlowId(int):
    """An id whose hash lets other threads run first."""

    def __hash__(self) -> int:
        """Return the hash of the int, after other threads had a turn."""
        time.sleep(0)
        return int(self)


def test_duplicate_check_and_insert_are_atomic() -> None:
    """The check for a duplicate and the insertion are one atomic step."""
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


def test_get_waits_for_an_unfinished_write() -> None:
    """A concurrent get returns a plant with its tag or no plant, never a plant without its tag."""
    store, plant = MemoryStore(), Plant(1, "Rose", "red")

    class SlowTags(dict[int, str]):
        """Tags, each of which is set while another thread reads the plant."""

        def __setitem__(self, id: int, tag: str) -> None:
            """Set the tag, after another thread had the time to read the plant."""
            reading.append(threads.submit(store.get, id))
            wait(reading, 0.1)  # Without the lock, the read has ended by then.
            super().__setitem__(id, tag)

    reading: list[Future[Plant | None]] = []
    store._columns[1] = SlowTags()  # noqa: SLF001
    with ThreadPoolExecutor(1) as threads:
        store.add(plant)
    assert reading[0].result() == plant


def test_add_waits_for_an_unfinished_remove() -> None:
    """A plant that is added while an earlier one with its id is removed keeps its tag."""
    store, again = MemoryStore(), Plant(1, "Lily", "white")

    class SlowTags(dict[int, str]):
        """Tags, each of which is removed while another thread adds the plant again."""

        def pop(self, *arguments: Any) -> Any:
            """Remove the tag, after another thread had the time to add the plant."""
            adding.append(threads.submit(store.add, again))
            wait(adding, 0.1)  # Without the lock, the add has ended by then.
            return super().pop(*arguments)

    adding: list[Future[None]] = []
    store._columns[1] = SlowTags()  # noqa: SLF001
    with ThreadPoolExecutor(1) as threads:
        store.add(Plant(1, "Rose", "red"))
        store.remove(1)
    adding[0].result()
    assert store.get(1) == again


def test_remove_waits_for_an_unfinished_page() -> None:
    """A plant that is removed while an iteration reads it does not make the iteration fail."""
    store, plant = MemoryStore(), Plant(1, "Rose", "red")

    class SlowTags(dict[int, str]):
        """Tags, each of which is read while another thread removes the plant."""

        def get(self, id: int, *default: Any) -> Any:
            """Return the tag, after another thread had the time to remove the plant."""
            removing.append(threads.submit(store.remove, id))
            wait(removing, 0.1)  # Without the lock, the remove has ended by then.
            return super().get(id, *default)

    removing: list[Future[None]] = []
    store._columns[1] = SlowTags()  # noqa: SLF001
    with ThreadPoolExecutor(1) as threads:
        store.add(plant)
        assert list(store) == [plant]
    removing[0].result()
    assert len(store) == 0


def test_plants_are_not_tracked_by_garbage_collection() -> None:
    """The number of objects that the garbage collector tracks does not grow with the plants."""
    store = MemoryStore()
    before = len(gc.get_objects())
    for id in range(10_000):
        store.add(Plant(id, f"plant {id}", f"tag {id}"))
    assert len(gc.get_objects()) - before < 100
    assert not any(map(gc.is_tracked, store._columns))  # noqa: SLF001


def test_memory_url_opens_a_new_store() -> None:
    """memory:// opens a new, empty MemoryStore at each call."""
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
def test_unknown_store_url_is_refused(url: str) -> None:
    """An unknown URL is refused; the message lists the known schemes and contains no password."""
    with pytest.raises(ValueError, match="memory://") as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
