"""Commits of PostgreSQL that wait for a standby, with a server that waits for a missing one."""

import pytest
from sqlalchemy import Engine, create_engine, text

from plantstore import Plant, PlantExists, SQLStore, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.databases import Place, only, postgresql
from tests.support.replication import Administrator, check_waiting_adds
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import open_sql, started

pytestmark = pytest.mark.database


@pytest.fixture
def admin(engine: Engine) -> Administrator:
    """Return an administrator of the server."""
    return Administrator(engine)


@only(postgresql)
def test_cancelled_wait_for_the_standby(place: Place, admin: Administrator) -> None:
    """A plant that the server has not replicated, as it should, is not acknowledged."""
    with open_sql(place.url) as store:
        store.add(LILY)
        with admin.missing_standby(), started(lambda: store.add(ROSE_PLANT)) as (adding,):
            admin.cancel()
            with pytest.raises(StoreUnavailable, match="its wait for a standby was cancelled"):
                adding.result()
        with pytest.raises(PlantExists):
            store.add(ROSE_PLANT)
        store.add(Plant(3, "Fern"))


@only(postgresql)
def test_cancelled_wait_of_a_role_without_warnings(place: Place, admin: Administrator) -> None:
    """A plant that is not replicated is not acknowledged, also if the role gets no warnings."""
    admin.execute("ALTER ROLE plants SET client_min_messages = error")
    try:
        with open_sql(place.url) as store:
            store.add(LILY)
            with admin.missing_standby(), started(lambda: store.add(ROSE_PLANT)) as (adding,):
                admin.cancel()
                with pytest.raises(StoreUnavailable, match="its wait for a standby was cancelled"):
                    adding.result()
    finally:
        admin.execute("ALTER ROLE plants RESET client_min_messages")


@only(postgresql)
def test_cancelled_wait_of_an_import(place: Place, admin: Administrator) -> None:
    """An import that the server has not replicated, as it should, is not acknowledged."""
    with open_sql(place.url) as store:
        store.add(LILY)
        with admin.missing_standby(), started(lambda: store.add_all([ROSE_PLANT])) as (adding,):
            admin.cancel()
            with pytest.raises(StoreUnavailable, match="its wait for a standby was cancelled"):
                adding.result()


@only(postgresql)
def test_import_without_a_response(place: Place, admin: Administrator) -> None:
    """An import that waits for the standby too long is not acknowledged."""
    with open_sql(place.url) as store:
        store.add(LILY)
        with (
            admin.missing_standby(),
            deadline(1),
            pytest.raises(StoreUnavailable, match="has not responded in time"),
        ):
            store.add_all([ROSE_PLANT])


@only(postgresql)
def test_cancelled_wait_with_the_engine_of_a_site(place: Place, admin: Administrator) -> None:
    """On a site's engine with psycopg, a plant that is not replicated is not acknowledged."""
    engine = create_engine(place.site_url)
    store = SQLStore(engine)
    store.add(LILY)
    with admin.missing_standby(), started(lambda: store.add(ROSE_PLANT)) as (adding,):
        admin.cancel()
        with pytest.raises(StoreUnavailable, match="its wait for a standby was cancelled"):
            adding.result()
    engine.dispose()


@only(postgresql)
def test_other_notices_of_the_server(place: Place, engine: Engine) -> None:
    """A warning of a trigger does not prevent that a plant is acknowledged."""
    with open_sql(place.url) as store:
        store.add(LILY)
        with engine.begin() as connection:
            connection.execute(
                text(
                    "CREATE OR REPLACE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$"
                    " BEGIN RAISE WARNING 'synchronous replication'; RETURN NEW; END $$"
                )
            )
            connection.execute(
                text("CREATE TRIGGER warn BEFORE INSERT ON plants EXECUTE FUNCTION warn()")
            )
        store.add(ROSE_PLANT)


@only(postgresql)
def test_adds_that_wait_for_the_standby(place: Place, admin: Administrator) -> None:
    """While no standby responds, at most twelve adds wait for it, and reads go on.

    When it responds, adds succeed again.
    """
    check_waiting_adds(place.url, admin)
