"""The contract test suites for stores. Only this module of the package needs pytest.

Write a subclass of one of them in a test file; its name begins with ``Test``. pytest then runs all
tests of the suite on your store.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from threading import Barrier, Event
from typing import Any, get_type_hints

import pytest

from .stores.base import INT64, Plant, PlantExists, Store
from .stores.urls import open_store

__all__ = ["SharedStoreContract", "StoreContract"]

_TYPES: dict[str, Any] = get_type_hints(Plant)
# A value for each type of a field.
_VALUES: dict[Any, Any] = {int: 1, str: "Rose", str | None: "früh", int | None: 12}
# A plant with every field, also those that a later version of the package adds.
_ROSE = Plant(*(_VALUES[type] for type in _TYPES.values()))
# A plant without a tag.
_LILY = Plant(2, "Lily")
# Ids in order, with those at the limits of int64.
_IDS = [INT64[0], -1, 0, 1, 5, 100, INT64[-1]]
# Ids outside int64. Python cannot convert the last one to decimal text.
_NO_IDS = [INT64[-1] + 1, INT64[0] - 1, 10**30, 10**5000]
_TEXTS = ["", " ", "é", "\r\n", "\x01", "'\"\\%_;--", "🌵" * 1000]
_TEXTS += ["a" * 1_000_000, "🌵" * 1_000_000]
# Values that are not valid, for each type of a field.
_WRONG_INTEGERS = [*_NO_IDS, "7", 1.0, True]
_WRONG_TEXTS = [5, b"x", "a\0b", "\ud800", "\udfff"]
_WRONG: dict[Any, list[Any]] = {
    int: [*_WRONG_INTEGERS, None],
    str: [*_WRONG_TEXTS, None],
    int | None: _WRONG_INTEGERS,
    str | None: _WRONG_TEXTS,
}
# Fields that are not valid, each with a valid value of the others.
_INVALID = [{name: value} for name, type in _TYPES.items() for value in _WRONG[type]]
# The time in seconds after which a test fails because a thread or process does not start.
_LIMIT = 60


class StoreContract:
    """The suite for every store; a subclass needs a fixture ``store``: an empty, open store."""

    def test_new_store_is_empty(self, store: Store) -> None:
        """A new store contains no plants, and is true in a condition."""
        assert (len(store), list(store), store.get(1)) == (0, [], None)
        assert store

    def test_get_returns_an_added_plant(self, store: Store) -> None:
        """A plant that was added is returned unchanged, as a Plant; without a tag, it has None."""
        store.add(_ROSE)
        store.add(_LILY)
        assert (store.get(1), store.get(2), store.get(3)) == (_ROSE, _LILY, None)
        assert list(store) == [_ROSE, _LILY]
        assert {type(plant) for plant in (store.get(1), store.get(2), *store)} == {Plant}
        assert len(store) == 2

    def test_duplicate_id_raises_plant_exists(self, store: Store) -> None:
        """A second plant with the same id raises PlantExists, which has the id.

        The stored plant is unchanged.
        """
        store.add(_ROSE)
        for second in (_ROSE, Plant(1, "Lily")):
            with pytest.raises(PlantExists) as caught:
                store.add(second)
            assert caught.value.args == (1,)
        assert list(store) == [_ROSE]

    @pytest.mark.parametrize("invalid", _INVALID, ids=lambda fields: ", ".join(fields))
    def test_invalid_plant_is_refused(self, store: Store, invalid: dict[str, Any]) -> None:
        """A plant that is not valid raises ValueError, which names the field, and is not stored.

        If one of several is not valid, add_some adds none.
        """
        (field,) = invalid
        wrong = _ROSE._replace(**invalid)
        for add in (lambda: store.add(wrong), lambda: store.add_some([_LILY, wrong])):
            with pytest.raises(ValueError, match=f"^{field}: Must "):
                add()
            assert list(store) == []

    def test_add_some_adds_plants_with_new_ids(self, store: Store) -> None:
        """add_some adds the plants whose ids do not exist, and returns the ids that do.

        Stored plants are unchanged. So the same call can be repeated. Of several plants with one
        id, the first is added, and the id is returned.
        """
        store.add(_ROSE)
        many = [Plant(3, "Tulip"), Plant(1, "Not a rose"), _LILY]
        assert store.add_some(many) == {1}
        assert list(store) == [_ROSE, _LILY, Plant(3, "Tulip")]
        assert store.add_some(iter(many)) == {1, 2, 3}
        assert store.add_some([Plant(5, "Fern"), Plant(4, ""), Plant(5, "x")]) == {5}
        assert list(store)[:3] == [_ROSE, _LILY, Plant(3, "Tulip")]
        assert list(store)[3:] == [Plant(4, ""), Plant(5, "Fern")]

    def test_add_some_of_no_or_many_plants(self, store: Store) -> None:
        """add_some adds any number of plants, also none."""
        many = [Plant(id, f"plant {id}") for id in range(1500)]
        assert store.add_some([]) == set()
        assert list(store) == []
        assert store.add_some(many[::-1]) == set()
        assert list(store) == many

    def test_get_some_returns_the_plants_that_exist(self, store: Store) -> None:
        """get_some returns those of many plants that exist, by their ids, whatever the order."""
        many = [Plant(id, f"plant {id}") for id in range(3, 1500)]
        store.add_some([_ROSE, _LILY, *many])
        found = store.get_some(id for id in (2, 1, 0, 2, *_NO_IDS))
        assert found == {1: _ROSE, 2: _LILY}
        assert {type(plant) for plant in found.values()} == {Plant}
        assert store.get_some(range(3, 2000)) == {plant.id: plant for plant in many}
        assert store.get_some([]) == {}

    def test_iteration_is_in_id_order(self, store: Store) -> None:
        """Iteration yields every plant in the order of the ids, over the whole range of int64.

        After an integer, it yields those with a greater id. The integer need not be the id of a
        plant, nor be within int64.
        """
        for id in (5, *_IDS[::2], *_IDS[1::2]):
            with suppress(PlantExists):
                store.add(Plant(id, f"plant {id}"))
        assert list(store) == list(store.iterate()) == [Plant(id, f"plant {id}") for id in _IDS]
        for after in (*_IDS, -2, 3, 99, *_NO_IDS, -(10**5000)):
            expected = [Plant(id, f"plant {id}") for id in _IDS if id > after]
            assert list(store.iterate(after)) == expected

    def test_ids_at_the_limits_of_int64(self, store: Store) -> None:
        """Each id of int64 can be added, got and removed. An id outside int64 is never found."""
        for id in _IDS:
            store.add(Plant(id, "x"))
            assert store.get(id) == Plant(id, "x")
            store.remove(id)
        for id in (*_IDS, *_NO_IDS):
            assert store.get(id) is None
            with pytest.raises(KeyError):
                store.remove(id)

    def test_remove_frees_the_id(self, store: Store) -> None:
        """A removed plant is gone with its tag, and its id is free.

        Removing it again raises KeyError.
        """
        store.add(_ROSE)
        store.remove(1)
        assert (len(store), store.get(1)) == (0, None)
        with pytest.raises(KeyError):
            store.remove(1)
        store.add(Plant(1, "Lily"))
        assert list(store) == [Plant(1, "Lily")]

    def test_replace_changes_one_plant(self, store: Store) -> None:
        """A replaced plant has only its new fields, which may be the same. No plant is added.

        A store that has no method of its own raises NotImplementedError.
        """
        store.add(_ROSE)
        if type(store).replace is Store.replace:
            with pytest.raises(NotImplementedError):
                store.replace(_ROSE)
            return
        store.add(_LILY)
        for plant in (Plant(1, "Rosa", "🌵"), Plant(1, "rose"), Plant(1, "rose"), _ROSE):
            store.replace(plant)
            assert (store.get(1), list(store)) == (plant, [plant, _LILY])
        for id in {*_IDS} - {1}:
            with pytest.raises(KeyError):
                store.replace(_ROSE._replace(id=id))
        for invalid in _INVALID:
            with pytest.raises(ValueError, match=": Must "):
                store.replace(_ROSE._replace(**invalid))
        assert list(store) == [_ROSE, _LILY]

    def test_changes_during_iteration(self, store: Store) -> None:
        """Iteration continues when plants are added or removed.

        It yields each plant that stays once, in the order of the ids.
        """
        for id in range(0, 300, 10):
            store.add(Plant(id, ""))
        seen = []
        for plant in store:
            seen.append(plant.id)
            if plant.id % 20 == 0:
                store.remove(plant.id + 10)
                store.add(Plant(plant.id + 5, ""))
        assert {*range(0, 300, 20)} <= {*seen}
        assert seen == sorted({*seen})

    def test_concurrent_iterations(self, store: Store) -> None:
        """Iterations do not affect each other, and one may be abandoned."""
        for id in range(30):
            store.add(Plant(id, ""))
        abandoned = iter(store)
        next(abandoned)
        assert [plant.id for plant, _ in zip(store, store, strict=True)] == [*range(30)]
        store.add(Plant(30, ""))

    @pytest.mark.parametrize("text", _TEXTS, ids=lambda text: ascii(text[:9]))
    def test_text_is_stored_unchanged(self, store: Store, text: str) -> None:
        """Names and tags of any length and with any characters are returned unchanged."""
        store.add(Plant(1, text, text))
        assert store.get(1) == Plant(1, text, text)
        assert list(store) == [Plant(1, text, text)]

    def test_case_accents_and_trailing_spaces_are_kept(self, store: Store) -> None:
        """Texts that differ only in case, accents or trailing spaces stay different."""
        names = ["rose", "Rose", "rosé", "rose\u0301", "rose ", "ß", "ss"]
        for id, name in enumerate(names):
            store.add(Plant(id, name, name))
        assert [(plant.name, plant.tag) for plant in store] == [(name, name) for name in names]

    def test_concurrent_adds_of_one_id_succeed_once(self, store: Store) -> None:
        """When threads add the same ids, by add or add_some, one of them succeeds for each id.

        Its plant is stored.
        """
        start = Barrier(8)

        def add(thread: int) -> list[Plant]:
            start.wait(_LIMIT)
            return _add_each(store, f"of thread {thread}", 200)

        def add_some(thread: int) -> list[Plant]:
            plants = [Plant(id, f"of thread {thread}") for id in range(200)]
            start.wait(_LIMIT)
            existing = store.add_some(plants[:: 1 - 2 * (thread % 2)])
            return [plant for plant in plants if plant.id not in existing]

        with ThreadPoolExecutor(8) as threads:
            calls = [threads.submit((add, add_some)[i > 4], i) for i in range(8)]
            added = sorted(sum((call.result() for call in calls), []))
        assert added == list(store)
        assert len(added) == 200

    def test_concurrent_add_and_remove(self, store: Store) -> None:
        """When threads add and remove one plant, the successful calls match the final state."""
        start = Barrier(8)

        def change(thread: int) -> int:
            start.wait(_LIMIT)
            balance = 0
            for _ in range(50):
                with suppress(PlantExists):
                    store.add(_ROSE)
                    balance += 1
                with suppress(KeyError):
                    store.remove(1)
                    balance -= 1
            return balance

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(change, range(8))) == len(store)

    def test_concurrent_adds_and_reads(self, store: Store) -> None:
        """While a thread adds plants, other threads can count and iterate.

        A plant can be read as soon as its add has returned, and is always complete.
        """
        texts, stop = "x" * 10_000, Event()

        def read() -> None:
            is_last = False
            while not is_last:
                is_last = stop.is_set()
                before, found, after = len(store), list(store), len(store)
                assert before <= len(found) <= after
                assert {plant.name for plant in found} <= {texts}

        with ThreadPoolExecutor(2) as threads:
            reading = [threads.submit(read) for _ in range(2)]
            try:
                for id in range(50):
                    store.add(Plant(id, texts))
                    assert store.get(id) == Plant(id, texts)
            finally:
                stop.set()
        for call in reading:
            call.result()

    def test_ping_of_a_usable_store_returns(self, store: Store) -> None:
        """Ping returns when the store can be used, and changes nothing."""
        store.ping()
        store.add(_ROSE)
        store.ping()
        assert list(store) == [_ROSE]

    def test_closed_store_can_be_used_again(self, store: Store) -> None:
        """Close may be called twice; the store can then be used again, and has its plants."""
        store.close()
        store.add(_ROSE)
        store.close()
        store.close()
        assert list(store) == [_ROSE]

    def test_with_block(self, store: Store) -> None:
        """A with block provides the store and passes exceptions on.

        At its end the store is closed: it can be used again, and has its plants.
        """
        with store as same:
            assert same is store
            store.add(_ROSE)
        with pytest.raises(KeyError, match="weeds"), store:
            raise KeyError("weeds")
        assert list(store) == [_ROSE]


class SharedStoreContract(StoreContract):
    """The suite for a store that several processes may share (``one_process`` is false).

    A subclass needs a fixture ``url``: the URL of an empty store, for :func:`open_store`.
    """

    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        """Return the open store of the URL."""
        with open_store(url) as store:
            yield store

    def test_store_is_declared_as_shared(self, store: Store) -> None:
        """The store says that several processes may share it."""
        assert store.one_process is False

    def test_plants_are_kept_after_close(self, url: str) -> None:
        """A store that is opened again with the same URL has the same plants."""
        for expected in ([], [_ROSE], [_ROSE, _LILY]):
            with open_store(url) as store:
                assert list(store) == expected
                store.add([_ROSE, _LILY, Plant(3, "Tulip")][len(expected)])

    def test_changes_are_seen_by_other_stores(self, url: str, store: Store) -> None:
        """A change is seen by every other open store with the same URL as soon as it returns."""
        with open_store(url) as other:
            assert other.get(1) is None
            store.add(_ROSE)
            assert (other.get(1), list(other), len(other)) == (_ROSE, [_ROSE], 1)
            with pytest.raises(PlantExists):
                other.add(_ROSE)
            other.remove(1)
            assert (store.get(1), list(store), len(store)) == (None, [], 0)
            with pytest.raises(KeyError):
                store.remove(1)

    def test_concurrent_adds_of_processes_succeed_once(self, url: str, store: Store) -> None:
        """When processes add the same ids, one add per id succeeds, and its plant is stored."""
        processes = get_context("spawn")
        start = processes.Barrier(4)
        with ProcessPoolExecutor(3, processes, start.wait, (_LIMIT,)) as others:
            adding = [others.submit(_add_in_process, url, f"of process {i}") for i in range(3)]
            start.wait(_LIMIT)
            added = _add_in_process(url, "of this process")
            added = sorted(sum((call.result() for call in adding), added))
        assert added == list(store)
        assert len(added) == 200


def _add_each(store: Store, name: str, number: int) -> list[Plant]:
    """Add plants with this name and the ids from 0; return those whose add succeeded."""
    added = []
    for plant in (Plant(id, name) for id in range(number)):
        with suppress(PlantExists):
            store.add(plant)
            added.append(plant)
    return added


def _add_in_process(url: str, name: str) -> list[Plant]:
    with open_store(url) as store:
        return _add_each(store, name, 200)
