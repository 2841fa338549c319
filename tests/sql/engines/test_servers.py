"""URLs with several database servers, and servers that are like PostgreSQL."""

from collections.abc import Iterator
from contextlib import suppress
from threading import Barrier

import pytest
from sqlalchemy import Engine, make_url, text

from plantstore import SQLStore, StoreUnavailable
from plantstore.stores.deadline import deadline
from plantstore.stores.urls import public_url
from tests.support.databases import SERVERS, Place, mariadb, only, postgresql
from tests.support.proxy import other_program, proxy, silent_host
from tests.support.serving import LIMIT, free_port
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import open_sql, started
from tests.support.stores import refusal
from tests.support.waiting import wait_until

# The number of lanes with which a store reads.
READING = 8
# Both engines have these problems with several servers.
INVALID = [
    "me:hunter2@a:1,b:99999/db",
    "me:hunter2@a:1,b:0/db",
    "me:hunter2@a:x,b:1/db",
    "me:hunter2@a,,b/db",
    "me:hunter2@a,/db",
    "me:hunter2@a:1:2,b/db",
    "me:hunter2@a:1, b:1/db",
    "me:hunter2@[::1,b/db",
    f"me:hunter2@a,{'b' * 70}/db",
    "me:hunter2@a,b/db?host=c",
    "me:hunter2@a,b/db?port=1",
    "me:hunter2@a,b",
    "me:p,q/hunter2@a,b@c/db",
]


def also(place: Place, server: str) -> str:
    """Return the URL of a place with another server before it."""
    url = make_url(place.url)
    return place.url.replace(f"@{url.host}:", f"@{server},{url.host}:")


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
@pytest.mark.parametrize("rest", INVALID)
def test_invalid_servers_are_refused(scheme: str, rest: str) -> None:
    """A URL with an invalid server is refused when the store is opened, without the password."""
    message = refusal(f"{scheme}://{rest}")
    assert "not the URL of a database" in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("url", "public"),
    [
        (
            "postgresql://me:hunter2@a:1,[::1]:2,c/db?sslmode=prefer",
            "postgresql://me@a:1,[::1]:2,c/db",
        ),
        ("postgresql://a,b/db", "postgresql://a,b/db"),
        ("mysql://me:h,/?#unter2@a,b:2/db", "mysql://me@a,b:2/db"),
    ],
)
def test_public_url_with_several_servers(url: str, public: str) -> None:
    """The public URL of a store names all its servers."""
    open_sql(url).close()
    assert public_url(url) == public


@only(*SERVERS)
@pytest.mark.parametrize("first", ["127.0.0.1:{port}", "[::1]:{port}", "missing.invalid"])
def test_server_that_cannot_be_reached(place: Place, first: str) -> None:
    """If a server cannot be reached, the next one in the URL is used."""
    with open_sql(also(place, first.format(port=free_port()))) as store:
        store.add(ROSE_PLANT)
        assert store.get(1) == ROSE_PLANT


GREETINGS = [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"\x01\x00\x00\x00\n", b"\0\0\0\0", b""]


@only(*SERVERS)
@pytest.mark.parametrize("greeting", GREETINGS)
def test_server_that_is_another_program(place: Place, greeting: bytes) -> None:
    """If a server is another program, the next one is used, or the store is unavailable."""
    url = make_url(place.url)
    with other_program(greeting) as port:
        with open_sql(also(place, f"127.0.0.1:{port}")) as store:
            store.add(ROSE_PLANT)
        with (
            open_sql(url.set(port=port).render_as_string(hide_password=False)) as store,
            pytest.raises(StoreUnavailable),
        ):
            store.add(LILY)


@only(postgresql)
def test_server_of_postgresql_that_does_not_respond(place: Place) -> None:
    """If a server accepts a connection and does not respond, the next one is used in time."""
    with silent_host() as port, open_sql(also(place, f"127.0.0.1:{port}")) as store:
        store.add(ROSE_PLANT)


@only(mariadb)
def test_servers_of_mariadb_that_do_not_respond(place: Place) -> None:
    """If two servers accept connections and do not respond, the next one is used in time."""
    with (
        silent_host() as one,
        silent_host() as two,
        open_sql(also(place, f"127.0.0.1:{one},127.0.0.1:{two}")) as store,
    ):
        store.add(ROSE_PLANT)


@only(mariadb)
def test_servers_of_mariadb_in_options(place: Place) -> None:
    """The servers of a URL may also be its options host and port, as with PostgreSQL."""
    url = make_url(place.url)
    options = f"host=127.0.0.1,{url.host}&port={free_port()},{url.port}"
    with open_sql(f"mysql://root@/plants?{options}") as store:
        store.add(ROSE_PLANT)


@only(*SERVERS)
def test_no_server_can_be_reached(place: Place) -> None:
    """If no server can be reached, the message says what is wrong with each of them."""
    url = make_url(place.url)
    first, second = free_port(), free_port()
    address = f"{url.host}:{url.port}"
    with (
        open_sql(place.url.replace(address, f"127.0.0.1:{first},127.0.0.1:{second}")) as store,
        pytest.raises(StoreUnavailable) as caught,
    ):
        store.add(ROSE_PLANT)
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)


def is_found(store: SQLStore) -> bool:
    """Return whether the store finds the rose within two seconds."""
    with deadline(2), suppress(StoreUnavailable):
        return store.get(1) == ROSE_PLANT
    return False


def open_all(store: SQLStore) -> None:
    """Open all connections with which the store can read."""
    store.add(ROSE_PLANT)
    all_open = Barrier(READING)

    def execute() -> None:
        executor, statements = store._executor, store._statements  # noqa: SLF001
        executor.call(statements, lambda _: all_open.wait(LIMIT))

    with started(*[execute] * READING) as calls:
        pass
    assert [call.exception() for call in calls] == [None] * READING


def wait_in_vain(store: SQLStore) -> None:
    """Let an operation of each connection wait."""
    with started(*[lambda: is_found(store)] * 20) as waiting:
        assert not any(call.result() for call in waiting)


@only(*SERVERS)
def test_connections_that_have_become_silent(place: Place) -> None:
    """If the server responds to no connection of the store any more, others to it are used.

    For example, a proxy has forgotten the connections.
    """
    with proxy(place) as silent, open_sql(silent.url) as store:
        open_all(store)
        silent.silence()
        wait_in_vain(store)
        wait_until(lambda: is_found(store))


@only(*SERVERS)
def test_server_that_stops_to_respond(place: Place) -> None:
    """If the server responds to no connection of the store any more, the next server is used."""
    with proxy(place) as first, open_sql(also(place, f"127.0.0.1:{first.port}")) as store:
        open_all(store)
        first.forwards.clear()
        wait_in_vain(store)
        wait_until(lambda: all_find(store))


def all_find(store: SQLStore) -> bool:
    """Return whether all connections find the rose at the same time."""
    with started(*[lambda: is_found(store)] * READING) as getting:
        return all(call.result() for call in getting)


@only(mariadb)
def test_read_only_server_of_mariadb(place: Place, engine: Engine) -> None:
    """Of several servers, one that is read-only is not used until it stores plants."""
    with (
        open_sql(also(place, f"127.0.0.1:{free_port()}")) as store,
        engine.connect() as connection,
    ):
        connection.execute(text("SET GLOBAL read_only = 1"))
        try:
            with pytest.raises(StoreUnavailable, match="read-only"):
                store.add(ROSE_PLANT)
        finally:
            connection.execute(text("SET GLOBAL read_only = 0"))
        store.add(ROSE_PLANT)


@only(postgresql)
def test_read_only_server_of_postgresql(place: Place, engine: Engine) -> None:
    """Of several servers, one that is read-only is not used until it stores plants."""
    setting = "ALTER DATABASE postgres SET default_transaction_read_only ="
    with (
        open_sql(also(place, f"127.0.0.1:{free_port()}")) as store,
        engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection,
    ):
        connection.execute(text(f"{setting} on"))
        try:
            with pytest.raises(StoreUnavailable, match="read-only"):
                store.add(ROSE_PLANT)
        finally:
            connection.execute(text(f"{setting} off"))
        store.add(ROSE_PLANT)


@pytest.fixture
def other_version(engine: Engine) -> Iterator[None]:
    """Let the server name its version as another database does that is like PostgreSQL."""
    function = "CREATE OR REPLACE FUNCTION pg_catalog.version() RETURNS text LANGUAGE"
    with engine.connect() as connection:
        connection.execute(text(f"{function} sql AS $$ SELECT 'CockroachDB CCL v24.1.0' $$"))
        connection.commit()
        yield
        connection.execute(text(f"{function} internal AS 'pgsql_version' STABLE STRICT"))
        connection.commit()


@only(postgresql)
@pytest.mark.usefixtures("other_version")
def test_server_with_another_version(place: Place) -> None:
    """A server that is like PostgreSQL may describe its version in any way."""
    with open_sql(place.url) as store:
        store.add(ROSE_PLANT)
        assert [*store] == [ROSE_PLANT]


@pytest.fixture
def conflicts(place: Place, engine: Engine) -> Iterator[None]:
    """Let the first two commits of each new plant fail with a conflict, as in CockroachDB."""
    with open_sql(place.url) as store:
        store.add_all([])
    with engine.begin() as connection:
        for statement in (
            "CREATE SEQUENCE attempts",
            "CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF nextval('attempts') < 3 THEN RAISE EXCEPTION 'restart transaction'"
            " USING ERRCODE = '40001'; END IF; RETURN NULL; END $$",
            "CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON plants"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION conflict()",
        ):
            connection.execute(text(statement))
    yield
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE plants"))
        connection.execute(text("DROP FUNCTION conflict"))
        connection.execute(text("DROP SEQUENCE attempts"))


@only(postgresql)
@pytest.mark.usefixtures("conflicts")
@pytest.mark.parametrize("options", ["", "?pgbouncer=true"])
def test_conflict_at_the_commit_of_an_add(place: Place, options: str) -> None:
    """An add is repeated if its commit fails because of a concurrent transaction."""
    with open_sql(place.url + options) as store:
        store.add(ROSE_PLANT)
        assert [*store] == [ROSE_PLANT]


@only(postgresql)
@pytest.mark.usefixtures("conflicts")
@pytest.mark.parametrize("options", ["", "?pgbouncer=true"])
def test_conflict_at_the_commit_of_an_import(place: Place, options: str) -> None:
    """If the commit of an import fails because of a concurrent transaction, nothing is stored."""
    with open_sql(place.url + options) as store:
        with pytest.raises(StoreUnavailable, match="nothing was stored, run the import again"):
            store.add_all([ROSE_PLANT, LILY])
        assert [*store] == []
