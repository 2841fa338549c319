"""plantstore.testing: the contract test suites find the faults of a store."""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plantstore import BulkStore, MemoryStore, Plant, PlantExists, open_store
from plantstore.testing import BulkStoreContract, SharedStoreContract, StoreContract
from tests.support.installing import install


class FalseWhenEmpty(MemoryStore):
    """A store that is false while it has no plants."""

    def __bool__(self) -> bool:
        """Return whether there is a plant."""
        return len(self) > 0


class ReturnsTuples(MemoryStore):
    """A store that returns plain tuples."""

    def get(self, id: int) -> Any:
        """Return the plant as a tuple."""
        plant = super().get(id)
        return plant and tuple(plant)


class AcceptsEverything(MemoryStore):
    """A store that does not check its plants."""

    def add(self, plant: Plant) -> None:
        """Store a plant."""
        self._names[plant.id] = plant.name


class Overwrites(MemoryStore):
    """A store that replaces a plant."""

    def add(self, plant: Plant) -> None:
        """Store a plant, also if its id exists."""
        if self.get(plant.id) is not None:
            self.remove(plant.id)
        super().add(plant)


class Anonymous(MemoryStore):
    """A store whose PlantExists has no id."""

    def add(self, plant: Plant) -> None:
        """Store a plant."""
        try:
            super().add(plant)
        except PlantExists:
            raise PlantExists from None


class InOrderOfText(MemoryStore):
    """A store that yields the plants in the order of the texts of their ids."""

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Yield the plants."""
        yield from sorted(super().iterate(after), key=lambda plant: str(plant.id))


class Includes(MemoryStore):
    """A store whose iteration after an id begins with that id."""

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Yield the plants."""
        return super().iterate(after if after is None else after - 1)


class AfterRemoved(MemoryStore):
    """A store whose iteration after an id is empty if no plant has this id."""

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Yield the plants."""
        found = after is None or self.get(after)
        return super().iterate(after) if found else iter(())


class Narrow(MemoryStore):
    """A store whose ids have 32 bits."""

    def get(self, id: int) -> Plant | None:
        """Return the plant with an id of 32 bits."""
        return super().get(id % 2**32) if -(2**31) <= id < 2**31 else None


class OutOfRange(MemoryStore):
    """A store that raises OverflowError for an id outside int64."""

    def get(self, id: int) -> Plant | None:
        """Return the plant with this id."""
        id.to_bytes(8, signed=True)
        return super().get(id)


class KeepsTags(MemoryStore):
    """A store that does not remove tags."""

    def remove(self, id: int) -> None:
        """Remove the plant, but not its tag."""
        tags = {**self._tags}
        super().remove(id)
        self._tags.update(tags)


class RemovesMissing(MemoryStore):
    """A store that removes a missing plant without an error."""

    def remove(self, id: int) -> None:
        """Remove the plant if there is one."""
        if self.get(id) is not None:
            super().remove(id)


class IteratesOverDict(MemoryStore):
    """A store whose iteration fails when a plant is added."""

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Yield the plants."""
        for id in self._names:
            plant = self.get(id)
            assert plant is not None
            yield plant


class OneIterator(MemoryStore):
    """A store whose iterations share their position."""

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Return the only iterator."""
        self._iterator = getattr(self, "_iterator", None) or super().iterate(after)
        return self._iterator


class Strips(MemoryStore):
    """A store that strips texts, and has no empty tag."""

    def add(self, plant: Plant) -> None:
        """Store a plant."""
        super().add(Plant(plant.id, plant.name.strip(), plant.tag or None))


class ChecksFirst(MemoryStore):
    """A store that checks and stores in two steps."""

    def add(self, plant: Plant) -> None:
        """Store a plant that was missing a moment ago."""
        if self.get(plant.id) is not None:
            raise PlantExists(plant.id)
        time.sleep(0.0001)
        self._names[plant.id] = plant.name


class RemovesTwice(MemoryStore):
    """A store that checks and removes in two steps."""

    def remove(self, id: int) -> None:
        """Remove a plant that existed a moment ago."""
        if self.get(id) is None:
            raise KeyError(id)
        time.sleep(0.0001)
        self._names.pop(id, None)


class StoresLater(MemoryStore):
    """A store that stores each plant when the next one is added."""

    _next: Plant | None = None

    def add(self, plant: Plant) -> None:
        """Store the plant before this one."""
        before, self._next = self._next, plant
        if before is not None:
            super().add(before)


class PingAdds(MemoryStore):
    """A store whose ping adds a plant."""

    def ping(self) -> None:
        """Add a plant."""
        self.add(Plant(-7, "ping"))


class ForgetsAtClose(MemoryStore):
    """A store that loses its plants when it is closed."""

    def close(self) -> None:
        """Remove all plants."""
        self._names.clear()


class SwallowsExceptions(MemoryStore):
    """A store whose with block hides exceptions."""

    def __exit__(self, *exception: object) -> Any:
        """Hide the exception."""
        return True


class OneByOne(MemoryStore, BulkStore):
    """A store whose add_all adds each plant for itself."""

    def add_all(self, plants: Iterable[Plant], *, skip_existing: bool = False) -> int:
        """Add the plants up to a duplicate."""
        for plant in plants:
            self.add(plant)
        return 0


SUITE = BulkStoreContract()


@pytest.mark.parametrize(
    ("faulty", "test"),
    [
        (FalseWhenEmpty, SUITE.test_new_store_is_empty),
        (ReturnsTuples, SUITE.test_get_returns_an_added_plant),
        (Overwrites, SUITE.test_duplicate_id_raises_plant_exists),
        (Anonymous, SUITE.test_duplicate_id_raises_plant_exists),
        (AcceptsEverything, partial(SUITE.test_invalid_plant_is_refused, invalid={"name": 5})),
        (InOrderOfText, SUITE.test_iteration_is_in_id_order),
        (Includes, SUITE.test_iteration_after_an_id),
        (AfterRemoved, SUITE.test_iteration_after_an_id),
        (Narrow, SUITE.test_ids_at_the_limits_of_int64),
        (OutOfRange, SUITE.test_id_outside_int64_is_not_found),
        (RemovesMissing, SUITE.test_id_outside_int64_is_not_found),
        (KeepsTags, SUITE.test_remove_frees_the_id),
        (RemovesMissing, SUITE.test_remove_frees_the_id),
        (IteratesOverDict, SUITE.test_changes_during_iteration),
        (OneIterator, SUITE.test_concurrent_iterations),
        (Strips, partial(SUITE.test_text_is_stored_unchanged, text="")),
        (Strips, partial(SUITE.test_text_is_stored_unchanged, text="\r\n")),
        (Strips, SUITE.test_case_accents_and_trailing_spaces_are_kept),
        (ChecksFirst, SUITE.test_concurrent_adds_of_one_id_succeed_once),
        (RemovesTwice, SUITE.test_concurrent_add_and_remove),
        (StoresLater, SUITE.test_concurrent_adds_and_reads),
        (PingAdds, SUITE.test_ping_of_a_usable_store_returns),
        (ForgetsAtClose, SUITE.test_closed_store_can_be_used_again),
        (ForgetsAtClose, SUITE.test_with_block),
        (SwallowsExceptions, SUITE.test_with_block),
        (OneByOne, SUITE.test_add_all_is_undone_after_a_duplicate),
        (OneByOne, partial(SUITE.test_add_all_is_undone_after_an_exception, skip_existing=True)),
        (
            OneByOne,
            partial(
                SUITE.test_add_all_is_undone_after_an_invalid_plant,
                invalid={"tag": 5},
                skip_existing=False,
            ),
        ),
        (OneByOne, SUITE.test_add_all_skip_existing),
        (OneByOne, SUITE.test_concurrent_add_all),
    ],
    ids=lambda it: getattr(getattr(it, "func", it), "__name__", None),
)
def test_faulty_store_fails(faulty: type[Any], test: Callable[..., None]) -> None:
    """A store with this fault fails this test of the suite; a correct store passes it."""
    with pytest.raises((Exception, pytest.fail.Exception)):
        test(store=faulty())
    if faulty is not OneByOne:
        test(store=MemoryStore())


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


def test_every_test_of_a_suite_needs_an_empty_store() -> None:
    """Each test of the suites has one of the two fixtures that the documentation names."""
    for suite in (StoreContract, SharedStoreContract, BulkStoreContract):
        tests = [vars(suite)[name] for name in vars(suite) if name.startswith("test_")]
        assert tests
        assert all({"store", "url"} & {*test.__annotations__} for test in tests)
