"""Database servers: several in a URL, read-only ones, Pgpool-II, and programs that are none."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, make_url, text

from plantstore import Plant, PlantExists, SQLStore, StoreUnavailable, create_app
from tests.support.commands import invoke
from tests.support.databases import (
    SERVERS,
    Place,
    Server,
    installed,
    mariadb,
    only,
    postgresql,
    readiness,
    server_folder,
)
from tests.support.proxy import other_program, proxy, silent_host
from tests.support.replication import Pair, postgresql_pair
from tests.support.responses import check_error
from tests.support.serving import free_port
from tests.support.sites import LILY, ROSE_PLANT, TOKEN
from tests.support.sql import call_all, changed, create_table, execute, make_store, open_sql
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
    url = "postgresql://plants@/postgres?host=127.0.0.1,127.0.0.1&port={},{}".format(*ports)
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


SET = {
    "postgresql": "ALTER DATABASE postgres SET default_transaction_read_only = {}",
    "mysql": "SET GLOBAL read_only = {}",
}
REASON = r"read-only.*default_transaction_read_only is on|--read-only"


@contextmanager
def read_only(engine: Engine) -> Iterator[None]:
    """Let a server refuse changes by ordinary users for the duration of the block."""
    statement = SET[engine.dialect.name]
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text(statement.format("on")))
        try:
            yield
        finally:
            connection.execute(text(statement.format("off")))


@pytest.fixture
def url(place: Place, engine: Engine) -> Iterator[str]:
    """Return the URL of a store. Its user is subject to the setting read_only of MariaDB."""
    if engine.dialect.name == "postgresql":
        yield place.url
        return
    execute(engine, "CREATE USER gardener_r", "GRANT ALL ON plants.* TO gardener_r")
    yield place.url.replace("root@", "gardener_r@")
    execute(engine, "DROP USER gardener_r")


@only(*SERVERS)
@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_ping_of_a_read_only_server(
    url: str, engine: Engine, opened_by: str, is_empty: bool
) -> None:
    """While a server is read-only, ping, check and /readyz say so, and reads go on."""
    if not is_empty:
        SQLStore(engine).add(ROSE_PLANT)
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_STORE": url}
    with make_store(url, opened_by) as store:
        with read_only(engine):
            for use in (store.ping, lambda: store.add(LILY)):
                with pytest.raises(StoreUnavailable, match=f"(?i){REASON}|read-only transaction"):
                    use()
            assert list(store) == ([] if is_empty else [ROSE_PLANT])
            result = invoke("check", env=settings)
            assert result.exit_code == 1
            assert re.search("cannot be used now: .*read-only", result.output)
            check_error(create_app(settings).test_client().get("/readyz"), 50301)
        store.close()
        store.ping()
        store.add(LILY)


@only(mariadb)
def test_user_with_the_right_to_write_to_a_read_only_server(place: Place, engine: Engine) -> None:
    """On a read-only MariaDB, a user with READ_ONLY ADMIN can be used: creates succeed."""
    with read_only(engine), open_sql(place.url) as store:
        store.ping()
        store.add(ROSE_PLANT)


@only(postgresql)
def test_read_only_server_of_several(place: Place, engine: Engine) -> None:
    """Of several servers, one that is read-only is not used until it stores plants."""
    with open_sql(also(place, "127.0.0.1", free_port())) as store:
        with read_only(engine), pytest.raises(StoreUnavailable, match="session is read-only"):
            store.add(ROSE_PLANT)
        store.add(ROSE_PLANT)


# The configuration of Pgpool-II. The weights let all queries go to the standby.
PGPOOL = """
backend_clustering_mode='streaming_replication' listen_addresses='127.0.0.1' port={port}
pcp_port={pcp_port} unix_socket_directories='{folder}' pcp_socket_dir='{folder}'
pid_file_name='{folder}/pid' logdir='{folder}' work_dir='{folder}' num_init_children=40
backend_hostname0='127.0.0.1' backend_port0={primary} backend_weight0=0
backend_hostname1='127.0.0.1' backend_port1={standby} backend_weight1=1 load_balance_mode=on
sr_check_period=1 sr_check_user='plants' sr_check_database='postgres'
"""


@contextmanager
def pgpool(pair: Pair) -> Iterator[str]:
    """Run Pgpool-II; provide the URL of a store. The standby executes all queries."""
    program = installed("pgpool", "pgpool2")
    with server_folder("postgres") as (folder, options):
        port, file = free_port(), folder / "pgpool.conf"
        ports = {"port": port, "pcp_port": free_port()}
        ports |= {"primary": pair.primary.port, "standby": pair.standby.port}
        file.write_text("\n".join(PGPOOL.format(folder=folder, **ports).split()))
        serve = [program, "-n", "-f", file, "-F", folder / "pcp.conf", "-a", folder / "hba.conf"]
        with Server(serve, readiness(port), signal.SIGINT, options).running():
            yield f"postgresql://plants@127.0.0.1:{port}/postgres"


@pytest.mark.database
@pytest.mark.postgresql
def test_duplicates_with_a_late_standby() -> None:
    """A duplicate is one although a standby, which does not have it yet, executes all queries."""
    with postgresql_pair() as pair, pgpool(pair) as url, open_sql(url) as store:
        with open_sql(pair.url) as other:
            create_table(other)
        has_table = "SELECT to_regclass('plants') IS NOT NULL"
        wait_until(lambda: pair.standby.execute(has_table) == [(True,)])
        pair.standby.execute("ALTER SYSTEM SET recovery_min_apply_delay = '1h'")
        pair.standby.execute("SELECT pg_reload_conf()")
        wait_until(lambda: pair.standby.execute("SHOW recovery_min_apply_delay") == [("1h",)])
        store.add(ROSE_PLANT)
        assert store.get(ROSE_PLANT.id) is None  # The standby has answered.
        store.ping()  # Plants can be added.
        with pytest.raises(PlantExists):
            store.add(ROSE_PLANT)
        assert store.add_some([ROSE_PLANT, LILY]) == {1}
        assert store.add_some([LILY, Plant(3, "Fern")]) == {2}
        adds = [lambda id=id: store.add(Plant(id // 2, "")) for id in range(20, 60)]
        errors = [type(error) for error in call_all(*adds)]
        assert (errors.count(type(None)), errors.count(PlantExists)) == (20, 20)
