"""Commits of PostgreSQL that wait for a standby, with a server that waits for a missing one."""

import time

import pytest
from sqlalchemy import Engine, create_engine

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.databases import Place, only, postgresql
from tests.support.replication import Administrator, check_waiting_adds
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import check_refused, create_trigger, make_store, started

pytestmark = pytest.mark.database

FERN = Plant(3, "Fern")


@pytest.fixture
def admin(engine: Engine) -> Administrator:
    """Return an administrator of the server."""
    return Administrator(engine)


@only(postgresql)
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_cancelled_wait_for_the_standby(place: Place, admin: Administrator, opened_by: str) -> None:
    """A change that the server has not replicated, as it should, is not acknowledged."""
    with make_store(place.url, opened_by) as store:
        store.add_some([LILY, FERN])
        changes = [
            lambda: store.add(ROSE_PLANT),
            lambda: store.add_some([Plant(4, "")]),
            lambda: store.replace(LILY),
            lambda: store.remove(FERN.id),
        ]
        with admin.missing_standby():
            for change in changes:
                with started(change) as (changing,):
                    admin.cancel()
                    with pytest.raises(StoreUnavailable, match="for a standby was cancelled"):
                        changing.result()
        with pytest.raises(PlantExists):
            store.add(ROSE_PLANT)
        store.add(FERN)


@only(postgresql)
def test_add_some_without_a_response(store: SQLStore, admin: Administrator) -> None:
    """A batch of plants that waits for the standby too long is not acknowledged."""
    in_vain = pytest.raises(StoreUnavailable, match="has not responded in time")
    with admin.missing_standby(), deadline(1), in_vain:
        store.add_some([ROSE_PLANT])


@only(postgresql)
def test_other_notices_of_the_server(store: SQLStore, engine: Engine) -> None:
    """A warning of a trigger does not prevent that a plant is acknowledged."""
    create_trigger(engine, "RAISE WARNING 'synchronous replication'")
    store.add(ROSE_PLANT)


@only(postgresql)
def test_hidden_warnings(engine: Engine, admin: Administrator) -> None:
    """If commits wait for a standby, a session that hides a cancelled wait is refused."""
    quiet = create_engine(engine.url, connect_args={"options": "-c client_min_messages=error"})
    SQLStore(quiet).add(ROSE_PLANT)
    with admin.missing_standby():
        check_refused(SQLStore(quiet), StoreMisconfigured, "client_min_messages must not be error")
    quiet.dispose()


@only(postgresql)
def test_adds_that_wait_for_the_standby(place: Place, admin: Administrator) -> None:
    """While no standby responds, at most twelve adds wait for it, and reads go on."""
    check_waiting_adds(place.url, admin)


@only(postgresql)
def test_new_connection_is_no_response(store: SQLStore, admin: Administrator) -> None:
    """While a server lets clients connect, but executes no add, most adds are refused at once."""
    with admin.missing_standby():
        outcomes, end = list[str](), time.monotonic() + 8
        while time.monotonic() < end:
            with deadline(0.1), pytest.raises(StoreUnavailable) as caught:
                store.add(Plant(len(outcomes), ""))
            outcomes.append(str(caught.value))
            time.sleep(0.01)
        refused = outcomes.count("the database does not respond")
        assert refused > len(outcomes) / 2
