"""Fixtures that the tests of the SQL stores share."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine, create_engine

from plantstore import SQLStore
from plantstore.sql._limits import Limits
from tests.support.databases import Place
from tests.support.proxy import Proxy, proxy
from tests.support.serving import LIMIT
from tests.support.sql import Limit, Listen, create_table, execute, listening, open_sql


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Return a function that changes some of the time limits."""
    return lambda **limits: [monkeypatch.setattr(Limits, *limit) for limit in limits.items()]


@pytest.fixture
def patient(limit: Limit) -> None:
    """Let operations on a file or a site's engine take as long as they need on a busy machine."""
    limit(operation=LIMIT, stuck=LIMIT, sqlite_lock=LIMIT)


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Return a function that listens to an event of all engines, until the end of the test."""
    with ExitStack() as listeners:
        yield lambda name, listener: listeners.enter_context(listening(name, listener))


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
    execute(engine, "DROP TABLE IF EXISTS attempts")


@pytest.fixture
def file_engine(url: str) -> Iterator[Engine]:
    """Return a host site's engine for a new SQLite file."""
    engine = create_engine(url)
    yield engine
    engine.dispose()
