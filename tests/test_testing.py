"""plantstore.testing: the contract test suites find the faults of a store."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from inspect import signature
from pathlib import Path
from time import sleep
from typing import Any, NoReturn

import pytest

from plantstore import MemoryStore, Plant, PlantExists, StoreUnavailable, open_store
from plantstore.stores.base import check_plant
from plantstore.testing import SharedStoreContract, StoreContract
from tests.support.installing import install
from tests.support.sites import LILY
from tests.support.sites import ROSE_PLANT as ROSE


class Correct(MemoryStore):
    """A correct store, whose faulty subclasses follow."""

    def __init__(self) -> None:
        super().__init__()
        self.names = self._first_column


def wrong(**methods: Callable[..., Any]) -> type[Correct]:
    """Return a store in which these methods are wrong."""
    return type(f"wrong {' '.join(methods)}", (Correct,), methods)


def wrong_error(method: str, handle: Callable[[Any, BaseException], object]) -> type[Correct]:
    """Return a store in which this method calls a function instead of raising an exception."""

    def call(it: Correct, *arguments: Any, **options: Any) -> object:
        try:
            return getattr(Correct, method)(it, *arguments, **options)
        except BaseException as error:  # noqa: BLE001
            return handle(it, error)

    return wrong(**{method: call})


def throw(error: BaseException) -> NoReturn:
    """Raise an exception."""
    raise error


def stores_first(it: Correct, plant: Plant) -> None:
    """Raise the right exception, but store the plant before."""
    is_new = it.get(plant.id) is None
    it.names[plant.id] = plant.name
    check_plant(plant)
    if not is_new:
        raise PlantExists(plant.id)


def checks_first(it: Correct, plant: Plant) -> None:
    """Check and store in two steps."""
    if it.get(plant.id) is not None:
        raise PlantExists(plant.id)
    sleep(0.0001)
    it.names[plant.id] = plant.name


def removes_twice(it: Correct, id: int) -> None:
    """Check and remove in two steps."""
    if it.get(id) is None:
        raise KeyError(id)
    sleep(0.0001)
    it.names.pop(id, None)


def ends_at_change(it: Correct, after: int | None = None) -> Iterator[Plant]:
    """Yield plants until one is added or removed."""
    ids = {*it.names}
    for plant in Correct.iterate(it, after):
        yield plant
        if {*it.names} != ids:
            return


def yields_new_last(it: Correct, after: int | None = None) -> Iterator[Plant]:
    """Yield plants that are new at the end."""
    yield from (old := [*Correct.iterate(it, after)])
    yield from {*Correct.iterate(it, after)}.difference(old)


def upserts(it: Correct, plant: Plant) -> None:
    """Replace a plant, or add it if it is missing."""
    it.names.setdefault(check_plant(plant).id, "")
    Correct.replace(it, plant)


def refuses_equal(it: Correct, plant: Plant) -> None:
    """Take a plant that is replaced by an equal one for a missing plant."""
    if it.get(check_plant(plant).id) == plant:
        raise KeyError(plant.id)
    Correct.replace(it, plant)


def adds_each(it: Correct, plants: Iterable[Plant]) -> set[int]:
    """Add plants until one is not valid."""
    return set[int]().union(*(Correct.add_some(it, [plant]) for plant in plants))


def replaces_others(it: Correct, plants: Iterable[Plant]) -> set[int]:
    """Add plants, and replace those that exist."""
    plants = [*plants]
    existing = Correct.add_some(it, plants)
    for plant in plants:
        it.replace(plant)
    return existing


def checks_some_first(it: Correct, plants: Iterable[Plant]) -> set[int]:
    """Check which plants exist, and store the others, in two steps."""
    plants = [*plants]
    existing = {plant.id for plant in plants if it.get(plant.id) is not None}
    for plant in plants:
        sleep(0.0001)
        if plant.id not in existing:
            with suppress(PlantExists):
                it.add(plant)
    return existing


# Faults of the method add.
OVERWRITES = wrong(add=lambda it, plant: it.names.update({check_plant(plant).id: plant.name}))
STORES_FIRST, CHECKS_FIRST = wrong(add=stores_first), wrong(add=checks_first)
STRIPS = wrong(
    add=lambda it, plant: Correct.add(it, Plant(plant.id, plant.name.strip(), plant.tag or None))
)
REFUSES_SEVEN = wrong(
    add=lambda it, plant: throw(PlantExists(7)) if plant.id == 7 else Correct.add(it, plant)
)
NAMES_NO_ID = wrong_error("add", lambda it, error: throw(PlantExists()))
NAMES_NO_FIELD = wrong_error("add", lambda it, error: throw(ValueError("Must be valid.")))
IGNORES_INVALID = wrong_error("add", lambda it, error: None)
# Of remove and replace.
REMOVES_MISSING = wrong_error("remove", lambda it, error: None)
REMOVES_TWICE = wrong(remove=removes_twice)
KEEPS_TAGS = wrong(remove=lambda it, id: it.names.pop(id))
REPLACES_NOTHING = wrong(
    replace=lambda it, plant: Correct.replace(it, it.get(check_plant(plant).id) or plant)
)
KEEPS_OLD_TAGS = wrong(
    replace=lambda it, plant: Correct.replace(
        it, plant._replace(tag=plant.tag or (it.get(plant.id) or plant).tag)
    )
)
UPSERTS, REFUSES_EQUAL = wrong(replace=upserts), wrong(replace=refuses_equal)
REPLACES_INVALID = wrong_error(
    "replace", lambda it, error: isinstance(error, KeyError) and throw(error)
)
# Of get.
GETS_REMOVED = wrong(get=lambda it, id: Correct.get(it, id) or Plant(id, "x"))
GETS_NOTHING = wrong(get=lambda it, id: None)
GETS = [
    wrong(get=lambda it, id, got=got: got[id])
    for got in ([0, LILY, LILY, None], [0, ROSE, ROSE, None], [0, ROSE, LILY, LILY])
]
RETURNS_TUPLES = wrong(get=lambda it, id: tuple(Correct.get(it, id) or ()) or None)
# Its ids have 32 bits.
NARROW = wrong(get=lambda it, id: Correct.get(it, id % 2**32) if -(2**31) <= id < 2**31 else None)
OUT_OF_RANGE = wrong(get=lambda it, id: id.to_bytes(8, signed=True) and Correct.get(it, id))
# It remembers which plants were missing.
CACHES_MISSING = wrong(
    get=lambda it, id: it.__dict__.setdefault("results", {}).setdefault(id, Correct.get(it, id))
)
# Of iterate.
IS_EMPTY = wrong(iterate=lambda it, after=None: iter(()))
HAS_ONLY_ROSE, HAS_ONLY_LILY = (
    wrong(iterate=lambda it, plant=plant: iter([plant])) for plant in (ROSE, LILY)
)
SORTS_TEXTS = wrong(
    iterate=lambda it, after=None: iter(sorted(Correct.iterate(it, after), key=str))
)
# Its iteration after an id is empty if no plant has this id.
AFTER_REMOVED = wrong(
    iterate=lambda it, after=None: (
        Correct.iterate(it, after) if after is None or it.get(after) else iter(())
    )
)
AFTER_OR_EQUAL = wrong(iterate=lambda it, after=None: Correct.iterate(it, after and after - 1))
ENDS_AT_CHANGE, YIELDS_NEW_LAST = wrong(iterate=ends_at_change), wrong(iterate=yields_new_last)
# Its iterations share their position.
ONE_ITERATOR = wrong(
    iterate=lambda it, after=None: it.__dict__.setdefault("iterator", Correct.iterate(it, after))
)
RENAMES = wrong(iterate=lambda it: (Plant(plant.id, "x") for plant in Correct.iterate(it)))
# Of other methods.
IS_FALSE = wrong(__bool__=lambda it: len(it) > 0)
HAS_ONE, HAS_MANY = wrong(__len__=lambda it: 1), wrong(__len__=lambda it: 51)
FORGETS = wrong(close=lambda it: it.__init__())
ITERATES_NOTHING = wrong(__iter__=lambda it: iter(()))
ADDS_AT_PING = wrong(ping=lambda it: it.get(3) or it.add(Plant(3, "ping")))
FAILS_IF_EMPTY = wrong(ping=lambda it: len(it) or throw(StoreUnavailable("no plants")))
FAILS_WITH_PLANTS = wrong(ping=lambda it: len(it) and throw(StoreUnavailable("a plant")))
ENTERS_ANOTHER = wrong(__enter__=lambda it: Correct())
SWALLOWS = wrong(__exit__=lambda it, *exception: True)
# Of add_some.
ADDS_NOTHING = wrong(add_some=lambda it, plants: set())
FINDS_NOTHING = wrong(add_some=lambda it, plants: Correct.add_some(it, plants) and set())
LOSES_THE_LAST = wrong(add_some=lambda it, plants: Correct.add_some(it, [*plants][:-1]))
ADDS_THE_LAST = wrong(add_some=lambda it, plants: Correct.add_some(it, [*plants][::-1]))
ADDS_LILY = wrong(add_some=lambda it, plants: Correct.add_some(it, [*plants] or [LILY]))
NEEDS_A_LIST = wrong(add_some=lambda it, plants: Correct.add_some(it, plants[:]))
ADDS_BEFORE = wrong(add_some=adds_each)
HIDES_ERRORS = wrong_error("add_some", lambda it, error: set())
REPLACES_OTHERS = wrong(add_some=replaces_others)
CHECKS_SOME_FIRST = wrong(add_some=checks_some_first)
# Of get_some.
GETS_SOME = [
    wrong(get_some=lambda it, ids: {id: it.get(id) for id in ids}),
    wrong(get_some=lambda it, ids: Correct.get_some(it, ids[:])),
    wrong(get_some=lambda it, ids: dict.fromkeys(Correct.get_some(it, ids), (*it,)[0])),
    wrong(get_some=lambda it, ids: {id: (*it.get(id),) for id in Correct.get_some(it, ids)}),
    wrong(get_some=lambda it, ids: Correct.get_some(it, [*ids][:1000])),
    wrong(get_some=lambda it, ids: Correct.get_some(it, [*ids] or [1])),
]

SUITE = StoreContract()
EMPTY = partial(SUITE.test_text_is_stored_unchanged, text="")
SPACE = partial(SUITE.test_text_is_stored_unchanged, text="\r\n")
INVALID = partial(SUITE.test_invalid_plant_is_refused, invalid={"name": 5})
REPLACES = [REPLACES_NOTHING, KEEPS_OLD_TAGS, UPSERTS, REFUSES_EQUAL, REPLACES_INVALID]
ORDERS = [SORTS_TEXTS, AFTER_REMOVED, AFTER_OR_EQUAL, ITERATES_NOTHING]
SOME = [FINDS_NOTHING, ADDS_NOTHING, NEEDS_A_LIST, ADDS_THE_LAST, REPLACES_OTHERS, LOSES_THE_LAST]
TWICE = [
    CHECKS_FIRST,
    STORES_FIRST,
    REFUSES_SEVEN,
    CHECKS_SOME_FIRST,
    FINDS_NOTHING,
    REPLACES_OTHERS,
]

# For each test, at least one fault for each assertion, which no other assertion of the test sees.
FAULTS: dict[Callable[..., None], list[type[Correct]]] = {
    SUITE.test_new_store_is_empty: [IS_FALSE, HAS_ONE, HAS_ONLY_LILY, GETS_REMOVED],
    SUITE.test_get_returns_an_added_plant: [*GETS, HAS_ONLY_ROSE, HAS_ONE, RETURNS_TUPLES],
    SUITE.test_duplicate_id_raises_plant_exists: [OVERWRITES, STORES_FIRST, NAMES_NO_ID],
    INVALID: [IGNORES_INVALID, NAMES_NO_FIELD, STORES_FIRST, ADDS_BEFORE, HIDES_ERRORS],
    SUITE.test_get_some_returns_the_plants_that_exist: GETS_SOME,
    SUITE.test_iteration_is_in_id_order: ORDERS,
    SUITE.test_ids_at_the_limits_of_int64: [NARROW, GETS_REMOVED, OUT_OF_RANGE, REMOVES_MISSING],
    SUITE.test_remove_frees_the_id: [GETS_REMOVED, HAS_ONE, REMOVES_MISSING, KEEPS_TAGS],
    SUITE.test_replace_changes_one_plant: REPLACES,
    SUITE.test_changes_during_iteration: [ENDS_AT_CHANGE, YIELDS_NEW_LAST],
    SUITE.test_concurrent_iterations: [ONE_ITERATOR],
    EMPTY: [STRIPS],
    SPACE: [STRIPS, GETS_NOTHING, IS_EMPTY],
    SUITE.test_case_accents_and_trailing_spaces_are_kept: [STRIPS],
    SUITE.test_concurrent_adds_of_one_id_succeed_once: TWICE,
    SUITE.test_concurrent_add_and_remove: [REMOVES_TWICE],
    SUITE.test_concurrent_adds_and_reads: [GETS_NOTHING, HAS_MANY, RENAMES],
    SUITE.test_ping_of_a_usable_store_returns: [ADDS_AT_PING, FAILS_IF_EMPTY, FAILS_WITH_PLANTS],
    SUITE.test_closed_store_can_be_used_again: [FORGETS],
    SUITE.test_with_block: [FORGETS, ENTERS_ANOTHER, SWALLOWS],
    SUITE.test_add_some_adds_plants_with_new_ids: SOME,
    SUITE.test_add_some_of_no_or_many_plants: [ADDS_LILY, ADDS_NOTHING, LOSES_THE_LAST],
}


@pytest.mark.parametrize(
    ("test", "faulty"),
    [(test, faulty) for test, faults in FAULTS.items() for faulty in faults],
    ids=lambda it: getattr(getattr(it, "func", it), "__name__", None),
)
def test_faulty_store_fails(test: Callable[..., None], faulty: type[Correct]) -> None:
    """A store with this fault fails this test of the suite; a correct store passes it."""
    with pytest.raises((Exception, pytest.fail.Exception)):
        test(store=faulty())
    test(store=Correct())


SHARED = SharedStoreContract()


@pytest.mark.parametrize(
    ("kind", "other_kind"),
    [
        *((Correct, other) for other in (CACHES_MISSING, IS_EMPTY, OVERWRITES)),
        (Correct, wrong(__len__=lambda it: 0)),
        (wrong(get=lambda it, id: ROSE), Correct),
        (HAS_ONLY_ROSE, Correct),
        *((kind, Correct) for kind in (HAS_ONE, REMOVES_MISSING)),
    ],
    ids=lambda kind: kind.__name__,
)
def test_store_that_misses_a_change_fails(
    kind: Any, other_kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two stores with the same plants, neither may miss a change; correct ones pass."""

    def check(store: Correct, other: Correct) -> None:
        vars(other).update(vars(store))
        monkeypatch.setattr("plantstore.testing.open_store", lambda url: other)
        SHARED.test_changes_are_seen_by_other_stores("faulty://", store)

    with pytest.raises((Exception, pytest.fail.Exception)):
        check(kind(), other_kind())
    check(Correct(), Correct())


SOURCE = """
from plantstore import MemoryStore, PlantExists
from plantstore.sql import SQLStore, make_engine
class Memory(MemoryStore):
    one_process = {one_process}
class RefusesSeven(SQLStore):
    def add(self, plant):
        if plant.id == 7:
            raise PlantExists(7)
        super().add(plant)
stores = {{}}
def open(url):
    return {opened}
"""
# A store that is shared only within a process, one whose URL opens a new store, one with a fault.
ONE_PROCESS = SOURCE.format(one_process=1, opened="stores.setdefault(url, Memory())")
OPENS_EMPTY = SOURCE.format(one_process=False, opened="Memory()")
SQL_URL = "url.replace('faulty:', 'sqlite:')"
SQL_REFUSES_SEVEN = SOURCE.format(one_process=0, opened=f"RefusesSeven(make_engine({SQL_URL}))")
DECLARED, KEPT = SHARED.test_store_is_declared_as_shared, SHARED.test_plants_are_kept_after_close
SEEN = SHARED.test_changes_are_seen_by_other_stores
ADDED = SHARED.test_concurrent_adds_of_processes_succeed_once


@pytest.mark.parametrize(
    ("source", "passes"),
    [
        (ONE_PROCESS, {SEEN: True, DECLARED: False, ADDED: False}),
        (OPENS_EMPTY, {DECLARED: True, KEPT: False, SEEN: False}),
        (SQL_REFUSES_SEVEN, {DECLARED: True, ADDED: False}),
    ],
)
def test_store_that_is_not_shared_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, source: str, passes: Any
) -> None:
    """A store that processes do not share, or share with a fault, fails tests of the suite."""
    install(monkeypatch, tmp_path, "faulty", "faulty", source)
    fixtures: dict[str, Any] = {"url": url.replace("sqlite:", "faulty:")}
    for test in passes:
        with open_store(fixtures["url"]) as store:
            fixtures["store"] = store
            with nullcontext() if passes[test] else pytest.raises(AssertionError):
                test(**{name: fixtures[name] for name in signature(test).parameters})
