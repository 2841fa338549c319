"""Fixtures that the tests of the SQL stores share."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine

from plantstore import SQLStore
from plantstore.sql._limits import Limits
from tests.support.databases import Place
from tests.support.proxy import Proxy, proxy
from tests.support.serving import LIMIT
from tests.support.sql import create_table, execute, open_sql


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let operations on a file or a site's engine take as long as they need on a busy machine."""
    for limit in ("operation", "stuck", "sqlite_lock"):
        monkeypatch.setattr(Limits, limit, LIMIT)


@pytest.fixture
def gate(place: Place) -> Iterator[Proxy]:
    """Run a proxy in front of the database."""
    with proxy(place) as gate:
        yield gate


@pytest.fixture
def store(place: Place, engine: Engine) -> Iterator[SQLStore]:
    """Return an empty store. What a test adds to the database besides the table is dropped."""
    store = open_sql(place.url)
    create_table(store)
    yield store
    store.close()
    place.clear()
    if engine.dialect.name == "postgresql":
        execute(engine, "DROP FUNCTION IF EXISTS refuse", "DROP SEQUENCE IF EXISTS attempts")
        execute(engine, "DROP SCHEMA IF EXISTS other CASCADE")
    execute(engine, "DROP TABLE IF EXISTS labels", "DROP TABLE IF EXISTS attempts")


@pytest.fixture
def file_engine(url: str) -> Iterator[Engine]:
    """Return a host site's engine for a new SQLite file."""
    engine = create_engine(url)
    yield engine
    engine.dispose()
