"""Every store there is: the promises of all stores, and a search for a difference between them."""

from collections.abc import Callable, Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from plantstore import Plant, PlantExists, Store, open_store
from plantstore.stores.sql import SQLStore

from .conftest import OpenPlace
from .databases import STORES, Place
from .store_contract import StoreContract

STEPS = min(5 * settings().max_examples, 5000)  # 5,000 with --hypothesis-profile=deep.


@pytest.fixture(params=STORES, ids=lambda place: place.__name__)
def store(request: pytest.FixtureRequest, keep: Callable[[OpenPlace], Place]) -> Iterator[Store]:
    """Return an empty store of each kind in turn."""
    place = keep(request.param)
    place.clear()
    store = open_store(place.url)
    yield store
    store.close()


class TestStore(StoreContract):
    """Every store keeps every store's promises."""


IDS = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
PLANTS = st.builds(Plant, IDS, TEXTS, st.none() | TEXTS)


class Beside(RuleBasedStateMachine):
    """A store, and a dict that is to hold the same."""

    store: Store
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.plants: dict[int, Plant] = {}

    @initialize()
    def empty(self) -> None:
        """Begin anew."""
        for plant in self.store:
            self.store.remove(plant.id)

    @rule(plant=PLANTS)
    def add(self, plant: Plant) -> None:
        """Add a plant, unless its id is taken."""
        if plant.id in self.plants:
            with pytest.raises(PlantExists):
                self.store.add(plant)
        else:
            self.store.add(plant)
            self.plants[plant.id] = plant

    @rule(id=IDS)
    def get(self, id: int) -> None:
        """Look for a plant."""
        assert self.store.get(id) == self.plants.get(id)

    @rule()
    def count(self) -> None:
        """Count the plants."""
        assert len(self.store) == len(self.plants)

    @rule(id=IDS)
    def remove(self, id: int) -> None:
        """Remove a plant, if it is there."""
        if self.plants.pop(id, None) is None:
            with pytest.raises(KeyError):
                self.store.remove(id)
        else:
            self.store.remove(id)

    @precondition(lambda self: isinstance(self.store, SQLStore))
    @rule(plants=st.lists(PLANTS, max_size=10), skip_existing=st.booleans())
    def add_all(self, plants: list[Plant], skip_existing: bool) -> None:
        """Add many plants, or none of them."""
        assert isinstance(self.store, SQLStore)
        new = {plant.id: plant for plant in reversed(plants) if plant.id not in self.plants}
        if skip_existing or len(new) == len(plants):
            assert self.store.add_all(plants, skip_existing=skip_existing) == len(new)
            self.plants |= new
        else:
            with pytest.raises(PlantExists):
                self.store.add_all(plants)

    @invariant()
    def same(self) -> None:
        """Check that there is no difference."""
        type(self).steps += 1
        assert list(self.store) == sorted(self.plants.values())


def test_store_behaves_like_a_dict(store: Store) -> None:
    """Any sequence of operations has the same results on a store as on a dict."""

    class Machine(Beside):
        pass

    Machine.store = store
    while Machine.steps < STEPS:
        run_state_machine_as_test(Machine, settings=settings(max_examples=10, derandomize=False))
