"""Operations that end at a timeout of several seconds."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from plantstore import SQLStore, StoreUnavailable
from tests.support.clients import GIVES_UP
from tests.support.databases import SERVERS, Place, only
from tests.support.serving import Gunicorn, post
from tests.support.sites import LILY, ROSE_PLANT, TOKEN, new_rose
from tests.support.sql import check_outage, open_sql, started

pytestmark = pytest.mark.drill


@pytest.fixture
def store(place: Place) -> Iterator[SQLStore]:
    """Return an empty store."""
    with open_sql(place.url) as store:
        yield store


@only(*SERVERS)
def test_lock_timeout_is_store_unavailable(store: SQLStore, engine: Engine) -> None:
    """An add raises StoreUnavailable while another transaction still holds the lock on its id."""
    store.add_all([])
    with engine.connect() as other:
        other.execute(text("INSERT INTO plants (id, name) VALUES (1, 'other')"))
        with started(lambda: store.add(ROSE_PLANT)) as (adding,):
            try:
                with pytest.raises(StoreUnavailable, match=r"lock timeout|Lock wait timeout"):
                    adding.result(GIVES_UP)
            finally:
                other.rollback()


def test_sqlite_lock_timeout_of_concurrent_adds(tmp_path: Path) -> None:
    """Concurrent adds raise StoreUnavailable while the file is still locked.

    They wait at the same time, not one after the other.
    """
    store = open_sql(f"sqlite:///{tmp_path}/plants.db")
    store.add_all([])
    other = sqlite3.connect(tmp_path / "plants.db")
    other.execute("BEGIN IMMEDIATE")
    with started(*[lambda: store.add(ROSE_PLANT)] * 8) as adding:
        try:
            _, still_waiting = wait(adding, GIVES_UP)
        finally:
            other.close()
    assert not still_waiting
    assert {type(call.exception()) for call in adding} == {StoreUnavailable}
    store.add(LILY)  # The other plant may be stored: the outcome of its adds is unknown.
    store.close()


@only(*SERVERS)
def test_frozen_database_is_503_until_it_returns(place: Place) -> None:
    """While the database is frozen the response is 50301; afterwards it is 200."""
    check_outage(place, place.server.frozen())


def test_read_timeout_of_silent_clients() -> None:
    """Clients that stop in the middle of a request do not block other clients forever."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server, ExitStack() as silent:
        for begun in (b"POST /pl", post(b"{", length=500)) * 5:
            silent.enter_context(server.connect()).send(begun)
        assert server.request(post(new_rose())).status == 200
