"""URLs with several database servers, and servers that are like PostgreSQL."""

import pytest
from sqlalchemy import Engine, make_url

from plantstore import Plant, SQLStore, StoreUnavailable
from tests.support.databases import SERVERS, Place, only, postgresql
from tests.support.proxy import other_program, proxy, silent_host
from tests.support.serving import free_port
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import call_all, changed, execute, open_sql
from tests.support.waiting import wait_until


def also(place: Place, host: str, port: int) -> str:
    """Return the URL of a PostgreSQL server with another server before it."""
    url = make_url(place.url)
    return f"postgresql://plants@/postgres?host={host},{url.host}&port={port},{url.port}"


@only(postgresql)
@pytest.mark.parametrize("first", ["127.0.0.1", "::1", "missing.invalid", "silent"])
def test_server_that_cannot_be_reached(place: Place, first: str) -> None:
    """If a server cannot be reached, or does not respond, the next one in the URL is used."""
    with silent_host() as port:
        address = ("127.0.0.1", port) if first == "silent" else (first, free_port())
        with open_sql(also(place, *address)) as store:
            store.add(ROSE_PLANT)
            assert store.get(1) == ROSE_PLANT


GREETINGS = [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"\x01\x00\x00\x00\n", b"\0\0\0\0", b""]


@only(*SERVERS)
@pytest.mark.parametrize("greeting", GREETINGS)
def test_server_that_is_another_program(place: Place, greeting: bytes) -> None:
    """If a server is another program, the store is unavailable, or the next server is used."""
    with other_program(greeting) as port:
        with open_sql(changed(place.url, port=port)) as store, pytest.raises(StoreUnavailable):
            store.add(LILY)
        if place.url.startswith("postgresql"):
            with open_sql(also(place, "127.0.0.1", port)) as store:
                store.add(ROSE_PLANT)


def test_no_server_can_be_reached() -> None:
    """If no server can be reached, the message says what is wrong with each of them."""
    ports = [free_port(), free_port()]
    url = f"postgresql://plants@/postgres?host=127.0.0.1:{ports[0]}&host=127.0.0.1:{ports[1]}"
    with open_sql(url) as store, pytest.raises(StoreUnavailable) as caught:
        store.add(ROSE_PLANT)
    assert all(str(port) in str(caught.value) for port in ports)


@only(postgresql)
def test_server_that_stops_to_respond(place: Place) -> None:
    """If the server responds to no connection of the store any more, the next server is used."""
    with proxy(place) as first, open_sql(also(place, "127.0.0.1", first.port)) as store:
        store.add(ROSE_PLANT)
        call_all(*[lambda: store.get(1)] * 20)  # Opens more than one connection.
        first.forwards.clear()
        call_all(*[lambda: store.get(1)] * 20)  # Some of them may wait in vain.
        wait_until(lambda: call_all(lambda: store.get(1)) == [None])
        assert store.get(1) == ROSE_PLANT


@only(postgresql)
@pytest.mark.parametrize("options", ["", "?pgbouncer=true"])
def test_conflict_at_the_commit(
    place: Place, store: SQLStore, engine: Engine, options: str
) -> None:
    """After a conflict at the commit, an add or a batch of adds is repeated."""
    execute(
        engine,
        "CREATE SEQUENCE attempts",
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('attempts') < 4 THEN RAISE EXCEPTION 'restart transaction'"
        " USING ERRCODE = '40001'; END IF; RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON plants"
        " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    with open_sql(place.url + options) as used:
        assert used.add_some([ROSE_PLANT, LILY]) == set()
        execute(engine, "ALTER SEQUENCE attempts RESTART")
        used.add(Plant(3, "Tulip"))
        assert [*used] == [ROSE_PLANT, LILY, Plant(3, "Tulip")]
