"""MemoryStore."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from plantstore import MemoryStore, Plant, PlantExists


class UsedId(int):
    """An id that calls a function each time it is used as a key."""

    use: Callable[[], object] = int

    def __hash__(self) -> int:
        """Return the hash of the int."""
        self.use()
        return int(self)


def call_during(change: Callable[[Plant], None], other: Callable[[], None]) -> Future[None]:
    """Change a plant, and let another thread call a function when its id is used first."""
    calls, used = list[Future[None]](), UsedId(1)
    with ThreadPoolExecutor(1) as threads:

        def use() -> None:
            if not calls:
                calls.append(threads.submit(other))
                wait(calls, 0.1)  # Without the lock, the call has ended by then.

        used.use = use
        change(Plant(used, "Rose"))
    return calls[0]


def test_add_is_atomic(store: MemoryStore) -> None:
    """The check for a duplicate and the insertion are one atomic step."""
    other = call_during(store.add, lambda: store.add(Plant(1, "Lily")))
    assert isinstance(other.exception(), PlantExists)
    assert [*store] == [Plant(1, "Rose")]


def test_replace_is_atomic(store: MemoryStore) -> None:
    """A plant that is removed while it is replaced does not come back."""
    store.add(Plant(1, "Lily"))
    assert not call_during(store.replace, lambda: store.remove(1)).exception()
    assert [*store] == []
