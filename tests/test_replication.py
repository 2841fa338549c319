"""Commits of PostgreSQL that wait for a standby, with a server that waits for a missing one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from plantstore import Plant, PlantExists, SQLStore, StoreUnavailable
from plantstore.sql.engines import POOL_SIZE
from plantstore.stores.deadline import deadline

from .databases import Place, only, postgresql
from .sites import LILY, ROSE_PLANT
from .test_sql import open_sql, started
from .waiting import wait_until

_WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


class Administrator:
    """Another client of the server, which waits for no standby."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    def execute(self, *statements: str) -> Any:
        """Execute statements, and return the first value of the last one."""
        with self._engine.connect() as connection:
            connection.execute(text("SET synchronous_commit = local"))
            for statement in statements:
                result = connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None

    @contextmanager
    def missing_standby(self) -> Iterator[None]:
        """Let each commit wait for a standby that does not exist."""
        names, reload = "ALTER SYSTEM {} synchronous_standby_names {}", "SELECT pg_reload_conf()"
        self.execute(names.format("SET", "= 'missing'"), reload)
        try:
            wait_until(self._commits_wait)
            yield
        finally:
            self.execute(names.format("RESET", ""), reload)

    def _commits_wait(self) -> bool:
        """Return whether a commit waits. A process of the server must first read the setting."""
        with started(self._commit) as (commit,):
            wait_until(lambda: commit.done() or self.waiting() == 1)
            if commit.done():
                return False
            self.cancel()
            return True

    def _commit(self) -> None:
        with self._engine.connect() as connection:
            connection.execute(text("SET synchronous_commit = on"))
            connection.execute(text("COMMENT ON SCHEMA public IS 'plants'"))

    def waiting(self) -> int:
        """Return how many commits wait for the standby."""
        number: int = self.execute(f"SELECT count(*) {_WAITING}")
        return number

    def cancel(self) -> None:
        """Cancel the only commit that waits for the standby."""
        wait_until(lambda: self.waiting() == 1)
        self.execute(f"SELECT pg_cancel_backend(pid) {_WAITING}")


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
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "pg8000"])
def test_cancelled_wait_with_the_engine_of_a_site(
    place: Place, admin: Administrator, driver: str
) -> None:
    """With each driver that a site may have, a plant that is not replicated is not acknowledged."""
    engine = create_engine(make_url(place.site_url).set(drivername=f"postgresql+{driver}"))
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
def test_operations_without_a_response_keep_their_places(
    place: Place, admin: Administrator
) -> None:
    """While the server does not respond, it gets no more operations than the pool has connections.

    When it responds, all places are free again.
    """
    check_places(place.url, admin)


def check_places(url: str, admin: Administrator, most: int = POOL_SIZE) -> None:
    """Check that so many operations wait for the standby, and that their places become free."""

    def add(id: int) -> None:
        with deadline(0.5):
            store.add(Plant(id, "waits"))

    with open_sql(url) as store:
        store.add(LILY)
        with admin.missing_standby():
            for first in (100, 200, 300):
                adds = [lambda id=id: add(id) for id in range(first, first + 20)]
                with started(*adds) as adding:
                    for one in adding:
                        with pytest.raises(StoreUnavailable):
                            one.result()
                assert admin.waiting() == most
            with pytest.raises(StoreUnavailable, match="16 of them by operations without"):
                store.add(ROSE_PLANT)
        wait_until(lambda: admin.waiting() == 0)
        with started(*[lambda id=id: store.add(Plant(id, "")) for id in range(10, 26)]) as adding:
            for one in adding:
                one.result()
