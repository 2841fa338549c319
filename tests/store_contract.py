"""The promises that every store makes; a store's own tests say which store it is."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import pytest

from plantstore import Plant, PlantExists, Store

from .sites import LILY, ROSE_PLANT


class StoreContract:
    """What any store does; a subclass has the `store` fixture, an empty store."""

    def test_a_new_store_is_empty(self, store: Store) -> None:
        """A new store holds nothing, and is a store all the same."""
        assert (len(store), list(store), store.get(1)) == (0, [], None)
        assert store

    def test_what_was_added_is_there(self, store: Store) -> None:
        """A plant that was added comes back as it was, with a tag or without."""
        store.add(ROSE_PLANT)
        store.add(LILY)
        assert (store.get(1), store.get(2), store.get(3)) == (ROSE_PLANT, LILY, None)
        assert isinstance(store.get(1), Plant)
        assert len(store) == 2

    def test_an_id_is_taken_once(self, store: Store) -> None:
        """A second plant with an id raises PlantExists, and the first stays as it was."""
        store.add(ROSE_PLANT)
        for second in (ROSE_PLANT, Plant(1, "Lily")):
            with pytest.raises(PlantExists):
                store.add(second)
        assert list(store) == [ROSE_PLANT]

    def test_plants_come_in_the_order_of_their_ids(self, store: Store) -> None:
        """Iterating yields every plant, by rising id, from one end of int64 to the other."""
        ids = [5, -(2**63), 0, 2**63 - 1, -1, 100]
        for id in ids:
            store.add(Plant(id, f"plant {id}"))
        assert list(store) == [Plant(id, f"plant {id}") for id in sorted(ids)]

    def test_what_was_removed_is_gone(self, store: Store) -> None:
        """A removed plant is gone, tag and all, its id is free; removing it again is a KeyError."""
        store.add(ROSE_PLANT)
        store.remove(1)
        assert (len(store), store.get(1)) == (0, None)
        with pytest.raises(KeyError):
            store.remove(1)
        store.add(Plant(1, "Lily"))
        assert list(store) == [Plant(1, "Lily")]

    def test_it_may_change_while_it_is_iterated(self, store: Store) -> None:
        """Adding and removing while iterating raises nothing, and misses nothing that stays."""
        for id in range(10):
            store.add(Plant(id, ""))
        seen = []
        for plant in store:
            seen.append(plant.id)
            if plant.id in {0, 2, 4, 6, 8}:
                store.remove(plant.id + 1)
                store.add(Plant(100 + plant.id, ""))
        assert {0, 2, 4, 6, 8} <= set(seen)

    def test_an_id_beyond_64_bits_is_nowhere(self, store: Store) -> None:
        """Looking for a plant by an id that none can have finds none, at either end."""
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
    def test_text_comes_back_unchanged(self, store: Store, text: str) -> None:
        """Names and tags come back as they were, of whatever length and characters."""
        store.add(Plant(1, text, text))
        assert store.get(1) == Plant(1, text, text)

    def test_threads_never_share_an_id(self, store: Store) -> None:
        """Of many threads that add the same ids, one succeeds for each, and its plant is kept."""
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

    def test_threads_may_add_and_remove_the_same_plant(self, store: Store) -> None:
        """However threads add and remove one plant, each hears what is so, and nothing else."""
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

    def test_letters_are_told_apart(self, store: Store) -> None:
        """Text comes back to the letter: case, accents, spaces at the end."""
        names = ["rose", "Rose", "rosé", "rose\u0301", "rose ", "ß", "ss"]
        for id, name in enumerate(names):
            store.add(Plant(id, name, name))
        assert [(plant.name, plant.tag) for plant in store] == [(name, name) for name in names]

    def test_it_can_be_pinged(self, store: Store) -> None:
        """A store that can be used returns from ping."""
        store.ping()

    def test_closing_twice_does_no_harm(self, store: Store) -> None:
        """A store may be closed more than once."""
        store.close()
        store.close()
