"""The contract test suite that every store must pass."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import pytest

from plantstore import Plant, PlantExists, Store

from .sites import LILY, ROSE_PLANT


class StoreContract:
    """The tests; a subclass needs a fixture `store` that returns an empty store."""

    def test_new_store_is_empty(self, store: Store) -> None:
        """A new store contains no plants, and is true in a condition."""
        assert (len(store), list(store), store.get(1)) == (0, [], None)
        assert store

    def test_get_returns_an_added_plant(self, store: Store) -> None:
        """A plant that was added is returned unchanged, with a tag or without."""
        store.add(ROSE_PLANT)
        store.add(LILY)
        assert (store.get(1), store.get(2), store.get(3)) == (ROSE_PLANT, LILY, None)
        assert isinstance(store.get(1), Plant)
        assert len(store) == 2

    def test_duplicate_id_raises_plant_exists(self, store: Store) -> None:
        """A second plant with the same id raises PlantExists; the stored plant is unchanged."""
        store.add(ROSE_PLANT)
        for second in (ROSE_PLANT, Plant(1, "Lily")):
            with pytest.raises(PlantExists):
                store.add(second)
        assert list(store) == [ROSE_PLANT]

    def test_iteration_is_in_id_order(self, store: Store) -> None:
        """Iteration yields every plant in the order of the ids, over the whole range of int64."""
        ids = [5, -(2**63), 0, 2**63 - 1, -1, 100]
        for id in ids:
            store.add(Plant(id, f"plant {id}"))
        assert list(store) == [Plant(id, f"plant {id}") for id in sorted(ids)]

    def test_remove_frees_the_id(self, store: Store) -> None:
        """A removed plant is gone with its tag, and its id is free.

        Removing it again raises KeyError.
        """
        store.add(ROSE_PLANT)
        store.remove(1)
        assert (len(store), store.get(1)) == (0, None)
        with pytest.raises(KeyError):
            store.remove(1)
        store.add(Plant(1, "Lily"))
        assert list(store) == [Plant(1, "Lily")]

    def test_concurrent_changes_during_iteration(self, store: Store) -> None:
        """Iteration continues when plants are added or removed, and yields all that stay."""
        for id in range(10):
            store.add(Plant(id, ""))
        seen = []
        for plant in store:
            seen.append(plant.id)
            if plant.id in {0, 2, 4, 6, 8}:
                store.remove(plant.id + 1)
                store.add(Plant(100 + plant.id, ""))
        assert {0, 2, 4, 6, 8} <= set(seen)

    def test_id_outside_int64_is_not_found(self, store: Store) -> None:
        """An id outside int64 is never found: get returns None, and remove raises KeyError."""
        for id in (2**63, -(2**63) - 1, 10**30):
            assert store.get(id) is None
            with pytest.raises(KeyError):
                store.remove(id)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            "é",
            "\r\n",
            "\x01",
            "🌵" * 1000,
            "a" * 1_000_000,
            "🌵" * 1_000_000,
            "'\"\\%_;--",
        ],
        ids=lambda text: text[:9].encode("unicode_escape").decode(),
    )
    def test_text_is_stored_unchanged(self, store: Store, text: str) -> None:
        """Names and tags of any length and with any characters are returned unchanged."""
        store.add(Plant(1, text, text))
        assert store.get(1) == Plant(1, text, text)

    def test_concurrent_adds_of_one_id_succeed_once(self, store: Store) -> None:
        """When threads add the same ids, one add per id succeeds, and its plant is stored."""
        start = Barrier(8)

        def add_all(thread: int) -> list[Plant]:
            added = []
            start.wait()
            for id in range(200):
                plant = Plant(id, f"of thread {thread}")
                try:
                    store.add(plant)
                except PlantExists:
                    continue
                added.append(plant)
            return added

        with ThreadPoolExecutor(8) as threads:
            added = sorted(sum(threads.map(add_all, range(8)), []))
        assert added == list(store)
        assert len(added) == 200

    def test_concurrent_add_and_remove(self, store: Store) -> None:
        """When threads add and remove one plant, the successful calls match the final state."""
        start = Barrier(8)

        def change(thread: int) -> int:
            start.wait()
            balance = 0
            for _ in range(50):
                with suppress(PlantExists):
                    store.add(ROSE_PLANT)
                    balance += 1
                with suppress(KeyError):
                    store.remove(1)
                    balance -= 1
            return balance

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(change, range(8))) == len(store)

    def test_case_accents_and_trailing_spaces_are_kept(self, store: Store) -> None:
        """Texts that differ only in case, accents or trailing spaces stay different."""
        names = ["rose", "Rose", "rosé", "rose\u0301", "rose ", "ß", "ss"]
        for id, name in enumerate(names):
            store.add(Plant(id, name, name))
        assert [(plant.name, plant.tag) for plant in store] == [(name, name) for name in names]

    def test_ping_of_a_usable_store_returns(self, store: Store) -> None:
        """Ping returns when the store can be used."""
        store.ping()

    def test_close_twice_is_allowed(self, store: Store) -> None:
        """Close may be called more than once."""
        store.close()
        store.close()
