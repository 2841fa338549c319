"""plantstore.testing: the contract test suites find the faults of a store."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from plantstore import BulkStore, MemoryStore, Plant, PlantExists, open_store
from plantstore.stores.base import check_plant
from plantstore.testing import BulkStoreContract, SharedStoreContract, StoreContract
from tests.support.installing import install
from tests.support.sites import LILY
from tests.support.sites import ROSE_PLANT as ROSE


class Correct(MemoryStore, BulkStore):
    """A correct store, whose faulty subclasses follow."""

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        new: dict[int, Plant] = {}
        for plant in map(check_plant, plants):
            if plant.id not in new and self.get(plant.id) is None:
                new[plant.id] = plant
            elif not skip_existing:
                raise PlantExists(plant.id)
        for plant in new.values():
            self.add(plant)
        return len(new)


def wrong(method: str, function: Callable[..., Any]) -> type[Correct]:
    """Return a store in which this method is wrong."""
    return type(f"wrong {method}", (Correct,), {method: function})


class Overwrites(Correct):
    """A store that replaces a plant."""

    def add(self, plant: Plant) -> None:
        self._required[check_plant(plant).id] = plant.name


class StoresFirst(Correct):
    """A store that raises the right exception, but has then stored the plant."""

    def add(self, plant: Plant) -> None:
        is_new = self.get(plant.id) is None
        self._required[plant.id] = plant.name
        check_plant(plant)
        if not is_new:
            raise PlantExists(plant.id)


class Anonymous(Correct):
    """A store whose PlantExists has no id."""

    def add(self, plant: Plant) -> None:
        try:
            super().add(plant)
        except PlantExists:
            raise PlantExists from None

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        try:
            return super().add_all(plants, skip_existing=skip_existing)
        except PlantExists:
            raise PlantExists from None


class IgnoresInvalid(Correct):
    """A store that ignores a plant that is not valid."""

    def add(self, plant: Plant) -> None:
        with suppress(ValueError):
            super().add(plant)

    def replace(self, plant: Plant) -> None:
        with suppress(ValueError):
            super().replace(plant)


class NamesNoField(Correct):
    """A store that does not say which field is not valid."""

    def add(self, plant: Plant) -> None:
        try:
            super().add(plant)
        except ValueError:
            raise ValueError("Must be valid.") from None


class GetsRemoved(Correct):
    """A store in which removed plants can still be got."""

    removed: Plant | None = None

    def remove(self, id: int) -> None:
        self.removed = self.get(id)
        super().remove(id)

    def get(self, id: int) -> Plant | None:
        return super().get(id) or self.removed


class CountsRemoved(Correct):
    """A store that counts also the plants that were removed."""

    removed = 0

    def remove(self, id: int) -> None:
        super().remove(id)
        self.removed += 1

    def __len__(self) -> int:
        return super().__len__() + self.removed


class KeepsTags(Correct):
    """A store that does not remove tags."""

    def remove(self, id: int) -> None:
        tags = {**self._columns[1]}
        super().remove(id)
        self._columns[1].update(tags)


class RefusesEqual(Correct):
    """A store that takes a plant that is replaced by an equal one for a missing plant."""

    def replace(self, plant: Plant) -> None:
        if self.get(check_plant(plant).id) == plant:
            raise KeyError(plant.id)
        super().replace(plant)


class KeepsOldTags(Correct):
    """A store whose replace keeps the tag if there is no new one."""

    def replace(self, plant: Plant) -> None:
        old = self.get(plant.id)
        super().replace(plant._replace(tag=plant.tag or (old and old.tag)))


class Upserts(Correct):
    """A store whose replace adds a missing plant."""

    def replace(self, plant: Plant) -> None:
        with suppress(KeyError):
            self.remove(check_plant(plant).id)
        self.add(plant)


class RemovesMissing(Correct):
    """A store that removes a missing plant without an error."""

    def remove(self, id: int) -> None:
        if self.get(id) is not None:
            super().remove(id)


class EndsAtChange(Correct):
    """A store whose iteration ends when a plant is added or removed."""

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        ids = {*self._required}
        for plant in super().iterate(after):
            yield plant
            if {*self._required} != ids:
                return


class YieldsNewLast(Correct):
    """A store whose iteration yields new plants last."""

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        yield from (old := [*super().iterate(after)])
        yield from {*super().iterate(after)}.difference(old)


class ChecksFirst(Correct):
    """A store that checks and stores in two steps."""

    def add(self, plant: Plant) -> None:
        if self.get(plant.id) is not None:
            raise PlantExists(plant.id)
        time.sleep(0.0001)
        self._required[plant.id] = plant.name


class RefusesSeven(Correct):
    """A store that refuses an id that does not exist."""

    def add(self, plant: Plant) -> None:
        if plant.id == 7:
            raise PlantExists(7)
        super().add(plant)


class RemovesTwice(Correct):
    """A store that checks and removes in two steps."""

    def remove(self, id: int) -> None:
        if self.get(id) is None:
            raise KeyError(id)
        time.sleep(0.0001)
        self._required.pop(id, None)


class StoresLater(Correct):
    """A store that stores each plant when the next one is added."""

    _next: Plant | None = None

    def add(self, plant: Plant) -> None:
        before, self._next = self._next, plant
        if before is not None:
            super().add(before)


class LeavesOne(Correct):
    """A store in which a plant stays after an add_all that has failed."""

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        try:
            return super().add_all(plants, skip_existing=skip_existing)
        except BaseException:
            self._required[-1] = ""
            raise


class HidesExceptions(Correct):
    """A store whose add_all stores nothing after an exception, and hides it."""

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        try:
            return super().add_all(plants, skip_existing=skip_existing)
        except BaseException:  # noqa: BLE001
            return 0


RETURNS_TUPLES = wrong("get", lambda it, id: tuple(Correct.get(it, id) or ()) or None)
# Its ids have 32 bits.
NARROW = wrong(
    "get", lambda it, id: Correct.get(it, id % 2**32) if -(2**31) <= id < 2**31 else None
)
OUT_OF_RANGE = wrong("get", lambda it, id: id.to_bytes(8, signed=True) and Correct.get(it, id))
# Its iteration after an id is empty if no plant has this id.
AFTER_REMOVED = wrong(
    "iterate",
    lambda it, after=None: (
        Correct.iterate(it, after) if after is None or it.get(after) else iter(())
    ),
)
# Its iterations share their position.
ONE_ITERATOR = wrong(
    "iterate", lambda it, after=None: it.__dict__.setdefault("iterator", Correct.iterate(it, after))
)
STRIPS = wrong(
    "add",
    lambda it, plant: Correct.add(it, Plant(plant.id, plant.name.strip(), plant.tag or None)),
)
# It remembers which plants were missing.
CACHES_MISSING = wrong(
    "get", lambda it, id: it.__dict__.setdefault("results", {}).setdefault(id, Correct.get(it, id))
)
COUNTS_NONE = wrong("add_all", lambda it, plants, **how: Correct.add_all(it, plants, **how) and 0)
# It checks the plant, and does not change it.
LOSES_CHANGES = wrong(
    "replace", lambda it, plant: Correct.replace(it, it.get(check_plant(plant).id) or plant)
)
FORGETS = wrong("close", lambda it: it.__init__())

SUITE = BulkStoreContract()
EMPTY = partial(SUITE.test_text_is_stored_unchanged, text="")
SPACE = partial(SUITE.test_text_is_stored_unchanged, text="\r\n")
INVALID = partial(SUITE.test_invalid_plant_is_refused, invalid={"name": 5})
ALL_INVALID = partial(
    SUITE.test_add_all_is_undone_after_an_invalid_plant, invalid={"tag": 5}, skip_existing=False
)
EXCEPTION = partial(SUITE.test_add_all_is_undone_after_an_exception, skip_existing=True)

# At least one fault for each assertion, which no other assertion of the test sees.
FAULTS: list[tuple[Callable[..., None], type[Correct]]] = [
    (SUITE.test_new_store_is_empty, wrong("__bool__", lambda it: len(it) > 0)),
    (SUITE.test_new_store_is_empty, wrong("__len__", lambda it: 1)),
    (SUITE.test_new_store_is_empty, wrong("iterate", lambda it: iter([LILY]))),
    (SUITE.test_new_store_is_empty, wrong("get", lambda it, id: LILY)),
    (SUITE.test_get_returns_an_added_plant, wrong("get", lambda it, id: [0, LILY, LILY, None][id])),
    (SUITE.test_get_returns_an_added_plant, wrong("get", lambda it, id: [0, ROSE, ROSE, None][id])),
    (SUITE.test_get_returns_an_added_plant, wrong("get", lambda it, id: [0, ROSE, LILY, LILY][id])),
    (SUITE.test_get_returns_an_added_plant, wrong("iterate", lambda it: iter([ROSE]))),
    (SUITE.test_get_returns_an_added_plant, wrong("__len__", lambda it: 1)),
    (SUITE.test_get_returns_an_added_plant, RETURNS_TUPLES),
    (SUITE.test_duplicate_id_raises_plant_exists, Overwrites),
    (SUITE.test_duplicate_id_raises_plant_exists, StoresFirst),
    (SUITE.test_duplicate_id_raises_plant_exists, Anonymous),
    (INVALID, IgnoresInvalid),
    (INVALID, NamesNoField),
    (INVALID, StoresFirst),
    (
        SUITE.test_iteration_is_in_id_order,
        wrong("iterate", lambda it: iter(sorted(Correct.iterate(it), key=str))),
    ),
    (SUITE.test_iteration_after_an_id, AFTER_REMOVED),
    (SUITE.test_iteration_after_an_id, wrong("__iter__", lambda it: iter(()))),
    (
        SUITE.test_iteration_after_an_id,
        wrong("iterate", lambda it, after=None: Correct.iterate(it, after and after - 1)),
    ),
    (SUITE.test_ids_at_the_limits_of_int64, NARROW),
    (SUITE.test_ids_at_the_limits_of_int64, GetsRemoved),
    (SUITE.test_ids_at_the_limits_of_int64, CountsRemoved),
    (SUITE.test_id_outside_int64_is_not_found, OUT_OF_RANGE),
    (SUITE.test_id_outside_int64_is_not_found, wrong("get", lambda it, id: LILY)),
    (SUITE.test_id_outside_int64_is_not_found, RemovesMissing),
    (SUITE.test_remove_frees_the_id, GetsRemoved),
    (SUITE.test_remove_frees_the_id, CountsRemoved),
    (SUITE.test_remove_frees_the_id, RemovesMissing),
    (SUITE.test_remove_frees_the_id, KeepsTags),
    (SUITE.test_replace_changes_one_plant, LOSES_CHANGES),
    (SUITE.test_replace_changes_one_plant, RefusesEqual),
    (SUITE.test_replace_changes_one_plant, KeepsOldTags),
    (SUITE.test_replace_changes_one_plant, Upserts),
    (SUITE.test_replace_changes_one_plant, IgnoresInvalid),
    (SUITE.test_changes_during_iteration, EndsAtChange),
    (SUITE.test_changes_during_iteration, YieldsNewLast),
    (SUITE.test_concurrent_iterations, ONE_ITERATOR),
    (EMPTY, STRIPS),
    (SPACE, STRIPS),
    (SPACE, wrong("get", lambda it, id: None)),
    (SPACE, wrong("iterate", lambda it: iter(()))),
    (SUITE.test_case_accents_and_trailing_spaces_are_kept, STRIPS),
    (SUITE.test_concurrent_adds_of_one_id_succeed_once, ChecksFirst),
    (SUITE.test_concurrent_adds_of_one_id_succeed_once, StoresFirst),
    (SUITE.test_concurrent_adds_of_one_id_succeed_once, RefusesSeven),
    (SUITE.test_concurrent_add_and_remove, RemovesTwice),
    (SUITE.test_concurrent_adds_and_reads, StoresLater),
    (SUITE.test_concurrent_adds_and_reads, wrong("__len__", lambda it: 51)),
    (
        SUITE.test_concurrent_adds_and_reads,
        wrong("iterate", lambda store: (Plant(plant.id, "x") for plant in Correct.iterate(store))),
    ),
    (
        SUITE.test_ping_of_a_usable_store_returns,
        wrong("ping", lambda it: it.get(3) or it.add(Plant(3, "ping"))),
    ),
    (SUITE.test_closed_store_can_be_used_again, FORGETS),
    (SUITE.test_with_block, FORGETS),
    (SUITE.test_with_block, wrong("__enter__", lambda it: Correct())),
    (SUITE.test_with_block, wrong("__exit__", lambda it, *exception: True)),
    (SUITE.test_add_all_is_undone_after_a_duplicate, Anonymous),
    (SUITE.test_add_all_is_undone_after_a_duplicate, COUNTS_NONE),
    (SUITE.test_add_all_is_undone_after_a_duplicate, HidesExceptions),
    (SUITE.test_add_all_is_undone_after_a_duplicate, LeavesOne),
    (EXCEPTION, COUNTS_NONE),
    (EXCEPTION, HidesExceptions),
    (EXCEPTION, LeavesOne),
    (ALL_INVALID, HidesExceptions),
    (ALL_INVALID, LeavesOne),
    (SUITE.test_add_all_without_plants, wrong("add_all", lambda it, plants, **how: None)),
    (
        SUITE.test_add_all_without_plants,
        wrong("add_all", lambda it, *_, **how: it.get(2) is None and it.add(LILY) or 0),
    ),
    (SUITE.test_add_all_skip_existing, COUNTS_NONE),
    (
        SUITE.test_add_all_skip_existing,
        wrong("add_all", lambda it, plants, **how: Correct.add_all(it, plants[::-1], **how)),
    ),
    (SUITE.test_concurrent_add_all, COUNTS_NONE),
    (SUITE.test_concurrent_add_all, wrong("add_all", lambda it, plants: len(plants))),
]


@pytest.mark.parametrize(
    ("test", "faulty"),
    FAULTS,
    ids=lambda it: getattr(getattr(it, "func", it), "__name__", None),
)
def test_faulty_store_fails(test: Callable[..., None], faulty: type[Correct]) -> None:
    """A store with this fault fails this test of the suite; a correct store passes it."""
    with pytest.raises((Exception, pytest.fail.Exception)):
        test(store=faulty())
    test(store=Correct())


@pytest.mark.parametrize(
    ("kind", "other_kind"),
    [
        (Correct, CACHES_MISSING),
        (Correct, wrong("iterate", lambda it: iter(()))),
        (Correct, wrong("__len__", lambda it: 0)),
        (Correct, Overwrites),
        (wrong("get", lambda it, id: ROSE), Correct),
        (wrong("iterate", lambda it: iter([ROSE])), Correct),
        (wrong("__len__", lambda it: 1), Correct),
        (RemovesMissing, Correct),
    ],
    ids=lambda kind: kind.__name__,
)
def test_store_that_does_not_see_the_changes_of_another_one_fails(
    kind: type[Correct],
    other_kind: type[Correct],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two stores with the same plants, neither may miss a change; correct ones pass."""
    source = "opened = []\n\ndef open(url):\n    return opened[-1]\n"
    package: Any = import_module(install(monkeypatch, tmp_path, "faulty", "faulty", source))

    def check(store: Correct, other: Correct) -> None:
        vars(other).update(vars(store))
        package.opened.append(other)
        SharedStoreContract().test_changes_are_seen_by_other_stores("faulty://", store)

    with pytest.raises((Exception, pytest.fail.Exception)):
        check(kind(), other_kind())
    check(Correct(), Correct())


FAULTY_SHARED = """
from plantstore import MemoryStore

class Faulty(MemoryStore):
    one_process = ONE_PROCESS

stores = {}

def open(url):
    return stores.setdefault(url, Faulty())
"""


def test_store_that_processes_do_not_share_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is shared only within each process fails the tests with other processes."""
    install(monkeypatch, tmp_path, "faulty", "faulty", FAULTY_SHARED.replace("ONE_PROCESS", "1"))
    suite, url = SharedStoreContract(), "faulty://"
    store = open_store(url)
    with pytest.raises(AssertionError):
        suite.test_store_is_declared_as_shared(store)
    suite.test_changes_are_seen_by_other_stores(url, store)
    with pytest.raises(AssertionError):
        suite.test_concurrent_adds_of_processes_succeed_once(url, store)


def test_store_that_opens_empty_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose URL opens a new, empty store fails the tests with several stores."""
    source = FAULTY_SHARED.replace("stores.setdefault(url, Faulty())", "Faulty()")
    install(monkeypatch, tmp_path, "faulty", "faulty", source.replace("ONE_PROCESS", "False"))
    suite, url = SharedStoreContract(), "faulty://"
    suite.test_store_is_declared_as_shared(open_store(url))
    with pytest.raises(AssertionError):
        suite.test_plants_are_kept_after_close(url)
    with pytest.raises(AssertionError):
        suite.test_changes_are_seen_by_other_stores(url, open_store(url))


REFUSES_SEVEN = """
from plantstore import PlantExists
from plantstore.sql import SQLStore, make_engine

class Faulty(SQLStore):
    def add(self, plant):
        if plant.id == 7:
            raise PlantExists(7)
        super().add(plant)

def open(url):
    return Faulty(make_engine(url.replace("faulty:", "sqlite:")))
"""


def test_wrong_outcome_of_an_add_in_another_process_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """A store fails that refuses a new id, or does not have the plants of other processes."""
    test = SharedStoreContract().test_concurrent_adds_of_processes_succeed_once
    with pytest.raises(AssertionError):
        test(url, MemoryStore())
    install(monkeypatch, tmp_path, "faulty", "faulty", REFUSES_SEVEN)
    faulty = f"{url}-2".replace("sqlite:", "faulty:")
    with open_store(faulty) as store, pytest.raises(AssertionError):
        test(faulty, store)


def test_every_test_of_a_suite_needs_an_empty_store() -> None:
    """Each test of the suites has one of the two fixtures that the documentation names."""
    for suite in (StoreContract, SharedStoreContract, BulkStoreContract):
        tests = [vars(suite)[name] for name in vars(suite) if name.startswith("test_")]
        assert tests
        assert all({"store", "url"} & {*test.__annotations__} for test in tests)
