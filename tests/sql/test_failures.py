"""What the errors of a database mean: 50301, 50303, or a 500 for a fault of ours."""

import random
import string

import pytest
from sqlalchemy import Engine, exc

from plantstore import Plant, SQLStore, StoreMisconfigured, StoreUnavailable
from plantstore.sql.databases import _database
from tests.support.databases import OpenPlace, Place, mariadb, only, postgresql, sqlite
from tests.support.responses import check_error, create
from tests.support.sites import LILY, ROSE_PLANT, make_site
from tests.support.sql import execute, make_store, open_sql, own_connections, raise_conflicts

TRANSIENT: dict[OpenPlace, list[str]] = {
    postgresql: ["08006", "25006", "25P03", "40003", "53100", "53300", "55006", "57014", "58030"],
    mariadb: ["1021", "1053", "1114", "1180", "1203", "1317", "1969", "9001"],
}
REFUSED: dict[OpenPlace, list[str]] = {
    postgresql: ["0A000", "22001", "23514", "42501", "42703", "42P01", "54000", "55000", "P0001"],
    mariadb: ["1054", "1062", "1142", "1146", "1290", "1364", "1406", "1644", "4025"],
}


def codes(kinds: dict[OpenPlace, list[str]]) -> pytest.MarkDecorator:
    """Run a test with each code of each database."""
    pairs = [(place, code) for place, found in kinds.items() for code in found]
    return pytest.mark.parametrize(("place", "code"), pairs, indirect=["place"])


@codes(TRANSIENT)
def test_transient_error(store: SQLStore, engine: Engine, code: str) -> None:
    """What ends by itself, or with an outage, is StoreUnavailable: the client may try again."""
    raise_conflicts(engine, code, "n = 1")
    with pytest.raises(StoreUnavailable) as caught:
        store.add(ROSE_PLANT)
    assert type(caught.value) is StoreUnavailable
    store.add(ROSE_PLANT)


@codes(REFUSED)
def test_refused_in_the_same_way_each_time(store: SQLStore, engine: Engine, code: str) -> None:
    """What the database refuses in the same way each time is StoreMisconfigured."""
    raise_conflicts(engine, code, "n > 0")
    for _ in range(2):
        with pytest.raises(StoreMisconfigured, match="it refuses an operation: "):
            store.add(ROSE_PLANT)
    with pytest.raises(StoreMisconfigured):
        store.add_all([ROSE_PLANT])


@only(postgresql)
def test_index_that_refuses_long_names(store: SQLStore, engine: Engine) -> None:
    """A name that is too long for an index of the site is StoreMisconfigured. Others are added."""
    execute(engine, "CREATE INDEX names ON plants (name)")
    name = "".join(random.choices(string.ascii_letters, k=20_000))  # Not to be compressed.
    with pytest.raises(StoreMisconfigured, match="index"):
        store.add(Plant(1, name))
    store.add(LILY)


@only(postgresql)
def test_role_without_a_schema_for_its_table(place: Place, engine: Engine) -> None:
    """If no schema of the search_path exists, an add is StoreMisconfigured."""
    with open_sql(f"{place.url}?options=-c search_path=missing") as store:
        for use in (store.ping, lambda: store.add(ROSE_PLANT), lambda: store.add_all([LILY])):
            with pytest.raises(StoreMisconfigured, match="schema"):
                use()


@only(postgresql)
def test_deferrable_primary_key(place: Place, engine: Engine) -> None:
    """A deferrable primary key is StoreMisconfigured: PostgreSQL cannot find duplicates by it."""
    columns = "id BIGINT PRIMARY KEY DEFERRABLE, name TEXT NOT NULL, tag TEXT"
    execute(engine, f"CREATE TABLE plants ({columns})")
    with open_sql(place.url) as store:
        for _ in range(2):
            with pytest.raises(StoreMisconfigured, match="deferrable"):
                store.add(ROSE_PLANT)


@only(postgresql)
def test_name_that_a_sequence_has(place: Place, engine: Engine) -> None:
    """If something else than a table has the name of the table, it is StoreMisconfigured."""
    execute(engine, "CREATE SEQUENCE plants")
    try:
        with open_sql(place.url) as store:
            for _ in range(2):
                with pytest.raises(StoreMisconfigured, match="plants"):
                    store.add(ROSE_PLANT)
    finally:
        execute(engine, "DROP SEQUENCE plants")


@only(sqlite)
def test_trigger_that_needs_a_missing_table(store: SQLStore, engine: Engine) -> None:
    """A trigger of a site that cannot be executed is StoreMisconfigured."""
    execute(engine, "CREATE TRIGGER logs AFTER INSERT ON plants BEGIN DELETE FROM missing; END")
    with pytest.raises(StoreMisconfigured, match="no such table: main.missing"):
        store.add(ROSE_PLANT)


@only(sqlite, postgresql, mariadb)
@pytest.mark.parametrize("statement", ["SELEC 1", "SELECT {marker}"])
def test_fault_in_a_statement_of_ours(store: SQLStore, engine: Engine, statement: str) -> None:
    """A fault in one of our statements is passed on as it is: it is neither 50301 nor 50303."""
    text = statement.format(marker="?" if engine.dialect.name == "sqlite" else "%s")
    own = own_connections(store)
    with pytest.raises((exc.DBAPIError, TypeError)):
        own.call(store._statements, lambda it: it.exec_driver_sql(text, (1, 2)))  # noqa: SLF001
    store.add(ROSE_PLANT)


@only(sqlite, postgresql, mariadb)
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_fault_is_a_500_with_its_traceback(
    place: Place,
    opened_by: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A fault in one of our statements is 50001, and the log has its traceback."""
    store = make_store(place.site_url, opened_by)
    store.add_all([])
    client = make_site(store=store).test_client()
    monkeypatch.setattr(_database, "_insert", lambda *_: "INSRT INTO plants VALUES (1, 'Rose')")
    check_error(create(client, {"id": 1, "name": "Rose"}), 50001)
    assert "Traceback" in caplog.text
    store.close()


@only(postgresql)
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_column_that_changes_while_statements_are_prepared(
    place: Place, engine: Engine, opened_by: str
) -> None:
    """If a column becomes VARCHAR while statements are prepared, each operation succeeds."""
    store = make_store(place.url, opened_by)
    for id in range(20):
        store.add(Plant(id, "Rose"))
        store.get(id)
    execute(engine, "ALTER TABLE plants ALTER COLUMN name TYPE VARCHAR")
    for id in range(20):
        assert store.get(id) == Plant(id, "Rose")
        store.add(Plant(100 + id, "Lily"))
    assert len(store) == 40
    store.close()


@only(postgresql)
def test_prepared_statements_that_are_gone(place: Place) -> None:
    """If a session has lost its prepared statements, an operation is repeated on a new one."""
    # A statement that psycopg does not notice, like those of another client behind a pooler.
    forget = "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$"
    with open_sql(place.url) as store:
        for id in range(20):
            store.add(Plant(id, "Rose"))
            store.get(id)
        own = own_connections(store)
        own.call(store._statements, lambda it: it.exec_driver_sql(forget))  # noqa: SLF001
        for id in range(20):
            assert store.get(id) == Plant(id, "Rose")
