"""MemoryStore, and what opens it."""

import gc

import pytest

from plantstore import MemoryStore, Plant, open_store

from .store_contract import StoreContract


class TestMemoryStore(StoreContract):
    """MemoryStore keeps every store's promises."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        """Return an empty store."""
        return MemoryStore()


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
