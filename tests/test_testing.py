"""plantstore.testing: the contract test suites find the faults of a store."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from inspect import signature
from pathlib import Path
from time import sleep
from typing import Any, NoReturn

import pytest

from plantstore import MemoryStore, Plant, PlantExists, StoreUnavailable, open_store
from plantstore.testing import SharedStoreContract, StoreContract
from tests.support.installing import install
from tests.support.sites import LILY
from tests.support.sites import ROSE_PLANT as ROSE

# A correct store. A fault is a method that replaces one of its methods.
Correct = MemoryStore
Fault = Callable[..., object]


def throw(error: BaseException) -> NoReturn:
    """Raise an exception."""
    raise error


def returns(result: object) -> Fault:
    """Return a method that does nothing."""
    return lambda it, *arguments, **options: result


def hides_errors(name: str) -> Fault:
    """Return a method that is correct, but returns an empty set instead of raising an exception."""

    def method(it: MemoryStore, *arguments: Any) -> object:
        try:
            return getattr(Correct, name)(it, *arguments)
        except (KeyError, PlantExists, ValueError):
            return set()

    return method


def puts(it: MemoryStore, plant: Plant) -> None:
    """Store a plant, also if its id is used."""
    try:
        Correct.add(it, plant)
    except PlantExists:
        Correct.replace(it, plant)


def puts_late(it: MemoryStore, plant: Plant) -> None:
    """Check and store in two steps."""
    if it.get(plant.id) is not None:
        raise PlantExists(plant.id)
    sleep(0.0001)
    puts(it, plant)


def removes_late(it: MemoryStore, id: int) -> None:
    """Check and remove in two steps."""
    if it.get(id) is None:
        raise KeyError(id)
    sleep(0.0001)
    hides_errors("remove")(it, id)


def puts_some(it: MemoryStore, plants: Iterable[Plant]) -> set[int]:
    """Add plants, and replace those that exist."""
    plants = [*plants]
    existing = Correct.add_some(it, plants)
    for plant in plants:
        it.replace(plant)
    return existing


def ends_at_change(it: MemoryStore, after: int | None = None) -> Iterator[Plant]:
    """Yield plants until one is added or removed."""
    plants = [*Correct.iterate(it, after)]
    for plant in plants:
        yield plant
        if [*Correct.iterate(it, after)] != plants:
            return


def strips(it: MemoryStore, plant: Plant) -> None:
    """Store a plant without white space around its name."""
    Correct.add(it, plant._replace(name=plant.name.strip()))


SUITE, SHARED = StoreContract(), SharedStoreContract()
INVALID = partial(SUITE.test_invalid_plant_is_refused, invalid={"name": 5})
TEXT = partial(SUITE.test_text_is_stored_unchanged, text="\r\n")
LIMITS, REMOVE = SUITE.test_ids_at_the_limits_of_int64, SUITE.test_remove_frees_the_id
ONCE, READS = (
    SUITE.test_concurrent_adds_of_one_id_succeed_once,
    SUITE.test_concurrent_adds_and_reads,
)
SOME, MANY = SUITE.test_add_some_adds_plants_with_new_ids, SUITE.test_add_some_of_no_or_many_plants
ORDER, BOTH = SUITE.test_iteration_is_in_id_order, SUITE.test_concurrent_iterations
PING = SUITE.test_ping_of_a_usable_store_returns
READ_SOME = SUITE.test_get_some_returns_the_plants_that_exist
# Each test of the suite, and the methods whose fault it must find.
FAULTS: list[tuple[Callable[..., None], str, list[Fault]]] = [
    (SUITE.test_new_store_is_empty, "__bool__", [lambda it: len(it) > 0]),
    (SUITE.test_new_store_is_empty, "__len__", [returns(1)]),
    (SUITE.test_get_returns_an_added_plant, "get", [returns(None), returns(ROSE)]),
    (SUITE.test_duplicate_id_raises_plant_exists, "add", [puts, hides_errors("add")]),
    (INVALID, "add", [hides_errors("add"), lambda it, plant: throw(ValueError("Must be"))]),
    (INVALID, "add_some", [lambda it, plants: [*map(partial(Correct.add, it), plants)]]),
    (ORDER, "iterate", [lambda it, after=None: reversed([*Correct.iterate(it, after)])]),
    (ORDER, "iterate", [lambda it, after=None: Correct.iterate(it, after and after - 1)]),
    (LIMITS, "get", [lambda it, id: Correct.get(it, id % 2**32)]),
    (LIMITS, "remove", [hides_errors("remove")]),
    (REMOVE, "remove", [hides_errors("remove"), returns(None)]),
    (SUITE.test_replace_changes_one_plant, "replace", [puts, hides_errors("replace")]),
    (SUITE.test_changes_during_iteration, "iterate", [ends_at_change]),
    # Its iterations share their position.
    (BOTH, "iterate", [lambda it: it.__dict__.setdefault("all", Correct.iterate(it))]),
    (TEXT, "add", [strips]),
    (SUITE.test_case_accents_and_trailing_spaces_are_kept, "add", [strips]),
    (ONCE, "add", [puts_late]),
    (ONCE, "add_some", [puts_some, returns(set())]),
    (SUITE.test_concurrent_add_and_remove, "remove", [removes_late]),
    (READS, "__len__", [returns(51)]),
    (READS, "iterate", [lambda it: (it._replace(name="x") for it in Correct.iterate(it))]),
    (PING, "ping", [lambda it: it.get(3) or it.add(LILY)]),
    (PING, "ping", [lambda it: len(it) or throw(StoreUnavailable("no plants"))]),
    (SUITE.test_closed_store_can_be_used_again, "close", [lambda it: it.__init__()]),
    (SUITE.test_with_block, "__enter__", [lambda it: Correct()]),
    (SUITE.test_with_block, "__exit__", [returns(True)]),
    (SOME, "add_some", [puts_some, returns(set())]),
    (SOME, "add_some", [lambda it, plants: Correct.add_some(it, [*plants][::-1])]),
    (MANY, "add_some", [lambda it, plants: Correct.add_some(it, [*plants][:-1])]),
    (READ_SOME, "get_some", [lambda it, ids: {id: it.get(id) for id in ids}]),
    (READ_SOME, "get_some", [lambda it, ids: Correct.get_some(it, [*ids][:1000])]),
]


@pytest.mark.parametrize(
    ("test", "method", "faults"), FAULTS, ids=lambda it: getattr(it, "__name__", "")
)
def test_faulty_store_fails(test: Callable[..., None], method: str, faults: list[Fault]) -> None:
    """A store with this fault fails this test of the suite; a correct store passes it."""
    for fault in faults:
        with pytest.raises((Exception, pytest.fail.Exception)):
            test(store=type("Faulty", (Correct,), {method: fault})())
    test(store=Correct())


SOURCE = """
from plantstore import MemoryStore
class Memory(MemoryStore):
    one_process = {one_process}
stores = {{}}
def open(url):
    return {opened}
"""
# A store that is shared only within a process, and one whose URL opens a new store.
ONE_PROCESS = SOURCE.format(one_process=1, opened="stores.setdefault(url, Memory())")
OPENS_EMPTY = SOURCE.format(one_process=False, opened="Memory()")
DECLARED, KEPT = SHARED.test_store_is_declared_as_shared, SHARED.test_plants_are_kept_after_close
SEEN = SHARED.test_changes_are_seen_by_other_stores
ADDED = SHARED.test_concurrent_adds_of_processes_succeed_once


@pytest.mark.parametrize(
    ("source", "passes"),
    [
        (ONE_PROCESS, {SEEN: True, DECLARED: False}),
        (OPENS_EMPTY, {DECLARED: True, KEPT: False, SEEN: False, ADDED: False}),
    ],
)
def test_store_that_is_not_shared_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, source: str, passes: Any
) -> None:
    """A store that processes do not share fails tests of the suite."""
    install(monkeypatch, tmp_path, "faulty", "faulty", source)
    fixtures: dict[str, Any] = {"url": url.replace("sqlite:", "faulty:")}
    for test in passes:
        with open_store(fixtures["url"]) as store:
            fixtures["store"] = store
            with nullcontext() if passes[test] else pytest.raises(AssertionError):
                test(**{name: fixtures[name] for name in signature(test).parameters})
