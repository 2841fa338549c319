"""Settings of a database server or of a client, which change nothing of what a store does."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured
from tests.support.databases import Place, mariadb, only, postgresql
from tests.support.pgbouncer import pgbouncer
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import ask, call_all, check_refused, execute, open_sql

# Texts that a server may change.
TEXTS = ["", " ", "Rose ", "''", '"', "\\", r"\n\0\'", "%s", "é🌹", "NULL", "a" * 300]


def check_exact(store: SQLStore, other: Connection, number: int = 30) -> None:
    """Check that another client finds exactly the plants that a store acknowledges.

    Plants are added at the same time, each id twice.
    """
    plants = [Plant(id // 2, f"{id}", TEXTS[id % len(TEXTS)]) for id in range(2 * number)]
    errors = call_all(*[partial(store.add, plant) for plant in plants])
    assert {type(error) for error in errors} == {type(None), PlantExists}
    added = [plant for plant, error in zip(plants, errors, strict=True) if error is None]
    assert [plant.id for plant in added] == [*range(number)]
    imported = [Plant(-1 - id, text, text) for id, text in enumerate(TEXTS)]
    assert store.add_some(imported) == set()
    assert store.add_some([Plant(-101, ""), Plant(-1, "")]) == {-1}
    store.remove(-101)
    found = other.execute(text("SELECT id, name, tag FROM plants")).all()
    assert {Plant(*row) for row in found} == {*added, *imported} == {*store}
    assert len(store) == len(found)
    assert store.get(-1) == imported[0]
    store.ping()


# Settings of MariaDB and MySQL that change what a statement, a text or a commit means.
MARIADB = (
    "autocommit=0 character_set_client=latin1 character_set_connection=latin1"
    " completion_type='CHAIN' completion_type='RELEASE' foreign_key_checks=0 lc_messages='de_DE'"
    " max_join_size=1 sql_auto_is_null=1 sql_mode='ANSI'"
    " sql_mode='NO_BACKSLASH_ESCAPES' sql_mode='TRADITIONAL'"
    " sql_quote_show_create=0 sql_safe_updates=1 sql_select_limit=0 sql_select_limit=1"
    " tx_isolation='READ-UNCOMMITTED' tx_isolation='SERIALIZABLE' tx_read_only=1 unique_checks=0"
)
MARIADB_ONLY = "sql_mode='EMPTY_STRING_IS_NULL' sql_mode='ORACLE'"


def of_mariadb(values: str) -> list[Any]:
    """Return values of a parameter that MySQL does not have."""
    return [pytest.param(it, marks=pytest.mark.mariadb_only) for it in values.split()]


@contextmanager
def global_setting(engine: Engine, setting: str) -> Iterator[Connection]:
    """Change a setting of all new sessions of MariaDB or MySQL; provide an older session."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        dialect: Any = connection.dialect
        if not dialect.is_mariadb:
            setting = setting.replace("tx_", "transaction_")
        name = setting.partition("=")[0]
        old = connection.scalar(text(f"SELECT @@GLOBAL.{name}"))
        connection.exec_driver_sql(f"SET GLOBAL {setting}")
        try:
            yield connection
        finally:
            connection.execute(text(f"SET GLOBAL {name} = :old"), {"old": old})


@only(mariadb)
@pytest.mark.parametrize("setting", [*MARIADB.split(), *of_mariadb(MARIADB_ONLY)])
def test_settings_of_mariadb(place: Place, engine: Engine, setting: str) -> None:
    """Whatever MariaDB sets in new sessions, each plant that is acknowledged is stored exactly."""
    with global_setting(engine, setting) as other, open_sql(place.url) as store:
        check_exact(store, other)


@only(mariadb)
@pytest.mark.parametrize("command", ["START TRANSACTION", "SET autocommit=0, sql_mode=ANSI"])
def test_init_connect_of_mariadb(
    place: Place, store: SQLStore, engine: Engine, command: str
) -> None:
    """Whatever MariaDB executes in new sessions, each plant that is acknowledged is stored."""
    execute(engine, "CREATE USER gardener_s", "GRANT ALL ON plants.* TO gardener_s")
    try:
        with global_setting(engine, f"init_connect='{command}'") as other:
            with open_sql(place.url.replace("root@", "gardener_s@")) as used:
                used.add(LILY)
            assert other.scalar(text("SELECT name FROM plants")) == LILY.name
            other.execute(text("DELETE FROM plants"))
            with open_sql(place.url.replace("root@", "gardener_s@")) as used:
                check_exact(used, other, 10)
    finally:
        execute(engine, "DROP USER gardener_s")


@only(mariadb)
def test_message_in_another_language(place: Place, engine: Engine) -> None:
    """If MariaDB has messages in another language, they show nothing of a plant either."""
    with global_setting(engine, "lc_messages='de_DE'"), open_sql(place.url) as store:
        store.add(ROSE_PLANT)
        execute(engine, "CREATE UNIQUE INDEX names ON plants (name(50))")
        with pytest.raises(StoreMisconfigured, match=r"Duplicate entry for key '(plants\.)?names'"):
            store.add(Plant(2, "Rose"))


@only(mariadb)
@pytest.mark.parametrize(
    "mode", ["NO_BACKSLASH_ESCAPES", "ANSI", *of_mariadb("ORACLE EMPTY_STRING_IS_NULL")]
)
def test_sql_mode_of_a_site(place: Place, engine: Engine, mode: str) -> None:
    """On a site's engine, a store works with its sql_mode, or refuses one that changes a tag."""
    site = create_engine(place.site_url, connect_args={"init_command": f"SET sql_mode='{mode}'"})
    if mode == "EMPTY_STRING_IS_NULL":
        check_refused(SQLStore(site), StoreMisconfigured, f"must not have {mode}")
    else:
        with engine.connect() as other:
            check_exact(SQLStore(site), other, 10)
    site.dispose()


# The same for PostgreSQL.
POSTGRESQL = (
    "backslash_quote=off client_encoding=latin1 client_min_messages=error exit_on_error=on"
    " default_transaction_deferrable=on default_transaction_isolation=serializable"
    " quote_all_identifiers=on standard_conforming_strings=off synchronous_commit=off"
    " transform_null_equals=on"
)


@only(postgresql)
@pytest.mark.parametrize("setting", POSTGRESQL.split())
def test_settings_of_postgresql(place: Place, engine: Engine, setting: str) -> None:
    """Whatever a role has set, each plant that is acknowledged is stored exactly."""
    with engine.connect() as other, open_sql(place.url) as store:
        execute(engine, f"ALTER ROLE plants SET {setting}")
        try:
            check_exact(store, other)
        finally:
            execute(engine, f"ALTER ROLE plants RESET {setting.partition('=')[0]}")


@only(postgresql)
@pytest.mark.parametrize("source", ["PGOPTIONS", "PGSERVICE", "URL"])
def test_options_of_the_session(
    place: Place, engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    """The table is where psql would create it, with options of the URL or of libpq.

    They cannot change what the store needs of a session.
    """
    options = "-c search_path=garden,public -c quote_all_identifiers=on"
    options += " -c client_min_messages=error"
    needed = {"quote_all_identifiers": "off", "client_min_messages": "warning"}
    needed |= {"statement_timeout": "3500ms", "lock_timeout": "500ms"}
    (tmp_path / "services").write_text(f"[plants]\noptions={options}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    if source != "URL":
        monkeypatch.setenv(source, "plants" if source == "PGSERVICE" else options)
    execute(engine, "CREATE SCHEMA garden")
    query = f"?application_name=the shed&options={options}" if source == "URL" else ""
    with open_sql(place.url + query) as store:
        store.add(LILY)
        assert {name: ask(f"SHOW {name}", store.ping) for name in needed} == needed
        assert (ask("SHOW application_name", store.ping) == "the shed") == (source == "URL")
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT name FROM garden.plants")) == LILY.name
    execute(engine, "DROP SCHEMA garden CASCADE")


@only(postgresql)
def test_session_that_has_lost_its_options(place: Place) -> None:
    """A proxy that drops the options of a session is refused: it needs pgbouncer=true."""
    with (
        pgbouncer(place, "transaction", "options") as pooled,
        open_sql(pooled.url.partition("?")[0]) as store,
    ):
        refused = "add the option pgbouncer=true to the URL"
        check_refused(store, StoreMisconfigured, refused)
        with pytest.raises(StoreMisconfigured, match=refused):
            store.get(1)
