"""The contract test suite, and a comparison with a dict, for every store."""

from contextlib import nullcontext

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from plantstore import Plant, PlantExists, Store, open_store
from plantstore.testing import SharedStoreContract, StoreContract
from tests.support.databases import STORES, Place, only
from tests.support.stores import IDS, PLANTS

# How many calls are compared; 3,000 with --hypothesis-profile=deep.
STEPS = settings().max_examples * 3


class TestMemoryStore(StoreContract):
    """The contract test suite for MemoryStore."""

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store."""
        return open_store("memory://")


class TestSQLStore(SharedStoreContract):
    """The contract test suite for SQLStore on every engine."""

    @pytest.fixture
    def url(self, place: Place) -> str:
        """Return the URL of an empty database."""
        return place.url


class StoreAndDict(RuleBasedStateMachine):
    """A store, and a dict that must contain the same plants."""

    store: Store
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.plants: dict[int, Plant] = {}

    @initialize()
    def empty(self) -> None:
        """Remove all plants."""
        for plant in self.store:
            self.store.remove(plant.id)

    @rule(plant=PLANTS)
    def add(self, plant: Plant) -> None:
        """Add a plant; a duplicate must raise PlantExists."""
        with nullcontext() if plant.id not in self.plants else pytest.raises(PlantExists):
            self.store.add(plant)
        self.plants.setdefault(plant.id, plant)

    @rule(id=IDS)
    def get(self, id: int) -> None:
        """Get a plant that may be missing."""
        assert self.store.get(id) == self.plants.get(id)

    @rule(after=IDS)
    def iterate(self, after: int) -> None:
        """Iterate over the plants after an id, which may be missing."""
        expected = [self.plants[id] for id in sorted(self.plants) if id > after]
        assert list(self.store.iterate(after)) == expected

    @rule(id=IDS)
    def remove(self, id: int) -> None:
        """Remove a plant; a missing one must raise KeyError."""
        with nullcontext() if self.plants.pop(id, None) else pytest.raises(KeyError):
            self.store.remove(id)

    @rule(plant=PLANTS)
    def replace(self, plant: Plant) -> None:
        """Replace a plant; a missing one must raise KeyError."""
        with nullcontext() if plant.id in self.plants else pytest.raises(KeyError):
            self.store.replace(plant)
            self.plants[plant.id] = plant

    @rule(plants=st.lists(PLANTS, max_size=10))
    def add_some(self, plants: list[Plant]) -> None:
        """Add several plants, some of which may exist or be repeated."""
        existing = set[int]()
        for plant in plants:
            if plant.id in self.plants:
                existing.add(plant.id)
            self.plants.setdefault(plant.id, plant)
        assert self.store.add_some(plants) == existing

    @invariant()
    def equal(self) -> None:
        """Check that the store and the dict contain the same plants."""
        type(self).steps += 1
        assert list(self.store) == sorted(self.plants.values())
        assert len(self.store) == len(self.plants)


@only(*STORES)
def test_store_behaves_like_a_dict(place: Place) -> None:
    """Any sequence of operations has the same results on a store as on a dict."""

    class Machine(StoreAndDict):
        pass

    with open_store(place.url) as Machine.store:
        while Machine.steps < STEPS:
            run_state_machine_as_test(Machine, settings=settings(max_examples=3, derandomize=False))
