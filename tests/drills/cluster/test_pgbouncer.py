"""Services whose connections to PostgreSQL go through PgBouncer."""

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, text

from plantstore import Plant
from tests.support.clients import Clients, acknowledged, clients_of, wait_for_responses
from tests.support.databases import Place, only, postgresql
from tests.support.pgbouncer import pgbouncer
from tests.support.serving import Gunicorn, together
from tests.support.sql import environment, execute, open_sql, started

pytestmark = pytest.mark.drill

DRIVER = "postgresql+psycopg:"
# PgBouncer sets these for each client.
SET_BY_PGBOUNCER = {
    "DateStyle",
    "TimeZone",
    "application_name",
    "client_encoding",
    "standard_conforming_strings",
}

# The number of plants that are created at least, and of those that are imported meanwhile.
CREATES, IMPORTED = 2_000, 2_000
# How often the stored plants are compared with the acknowledged ones.
CHECKS = 5


@pytest.fixture(params=["session", "transaction"])
def pooled(place: Place, request: pytest.FixtureRequest) -> Iterator[Place]:
    """Return PgBouncer in front of the server, in each pool mode in turn.

    The role has the timeouts that docs/many-machines.md names.
    """
    administrator = create_engine(place.url)
    execute(administrator, "ALTER ROLE plants SET statement_timeout = 3500")
    execute(administrator, "ALTER ROLE plants SET lock_timeout = 500")
    with pgbouncer(place, request.param) as pooled:
        yield pooled
    execute(administrator, "ALTER ROLE plants RESET ALL")
    administrator.dispose()


@only(postgresql)
def test_pgbouncer_refuses_no_create(place: Place, pooled: Place) -> None:
    """Through PgBouncer, 2,000 creates of two services get 200 while an import succeeds.

    At any time, every plant that has been acknowledged is stored.
    """
    imported = [Plant(-1 - id, f"imported {id}") for id in range(IMPORTED)]
    services = (Gunicorn("-w", "1", **environment(pooled)) for _ in range(2))
    with (
        together(services) as servers,
        clients_of(servers) as groups,
        open_sql(pooled.url) as importing,
        started(lambda: importing.add_some(imported)) as (done,),
    ):
        for _ in range(CHECKS):
            wait_for_responses(groups, CREATES // CHECKS)
            check_stored(place, groups)
        assert done.result() == set()
    assert check_stored(place, groups) >= {*imported}
    assert [(group.refused, group.unanswered) for group in groups] == [(0, 0)] * 2


def check_stored(place: Place, groups: list[Clients]) -> set[Plant]:
    """Check that all plants that have been acknowledged are stored; return the stored ones."""
    before = acknowledged(groups)
    with open_sql(place.url) as store:
        stored = {*store}
    assert before <= stored
    return stored


@only(postgresql)
def test_store_changes_no_connection_that_others_use(pooled: Place) -> None:
    """A store leaves neither settings nor prepared statements in the connections of PgBouncer."""
    with open_sql(pooled.url) as store:
        for id in range(20):  # Some drivers prepare a statement after some repetitions.
            store.add(Plant(id, ""))
            assert store.get(id) == Plant(id, "")
        assert store.add_some([Plant(20, "")]) == set()
        store.remove(0)
    engine = create_engine(pooled.url.partition("?")[0].replace("postgresql:", DRIVER))
    with engine.connect() as other:
        settings = other.execute(text("SELECT name FROM pg_settings WHERE source = 'session'"))
        assert {*settings.scalars()} <= SET_BY_PGBOUNCER
        assert other.execute(text("SELECT statement FROM pg_prepared_statements")).all() == []
    engine.dispose()
