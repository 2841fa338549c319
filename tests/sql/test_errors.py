"""Errors of a database: duplicates, retries after conflicts, and what is 50301, 50303 or a 500."""

from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.databases import OpenPlace, Place, mariadb, on, only, postgresql, sqlite
from tests.support.responses import check_error, create
from tests.support.sites import LILY, ROSE, ROSE_PLANT, make_site
from tests.support.sql import (
    Listen,
    add_in_one_group,
    ask,
    create_table,
    execute,
    listening,
    make_store,
    open_sql,
    raise_conflicts,
    statements,
)


def test_statements_of_a_duplicate(store: SQLStore, engine: Engine, listen: Listen) -> None:
    """A duplicate costs no new connection.

    MariaDB reads what exists in a transaction with a lock, which no replica executes.
    """
    opened: list[object] = []
    store.add(ROSE_PLANT)
    listen("connect", lambda *_: opened.append(1))
    with statements() as executed:
        for _ in range(3):
            with pytest.raises(PlantExists, match="^1$"):
                store.add(Plant(1, "Lily"))
    assert not opened
    if engine.dialect.name == "mysql":
        assert executed == ["INSERT", "SET", "START", "SELECT", "COMMIT"] * 3


@on("code", [(postgresql, "40003"), (postgresql, "08006"), (mariadb, "1180")])
def test_group_with_an_unknown_outcome(store: SQLStore, engine: Engine, code: str) -> None:
    """If a server may have committed a group that has failed, no add of it is repeated."""
    raise_conflicts(engine, code, "n < 2")
    errors = add_in_one_group(store, [Plant(id, "") for id in range(3)])
    assert {type(error) for error in errors} == {StoreUnavailable}
    assert list(store) == []


@only(postgresql)
@pytest.mark.parametrize("code", ["55P03", "40001", "53100", "57014"])
def test_duplicate_in_a_group_whose_rest_is_committed(
    store: SQLStore, engine: Engine, code: str
) -> None:
    """An error that concerns a duplicate does not concern the other adds of its group."""
    store.add(ROSE_PLANT)
    raise_conflicts(engine, code, "n = 3")  # The first statement inserts two rows.
    duplicate, new = add_in_one_group(store, [ROSE_PLANT, LILY])
    assert new is None
    assert isinstance(duplicate, PlantExists | StoreUnavailable)
    assert store.get(LILY.id) == LILY


@only(postgresql)
@pytest.mark.usefixtures("store")  # It removes what is left.
@pytest.mark.parametrize("driver", ["psycopg2", "pg8000"])
def test_other_drivers(place: Place, driver: str) -> None:
    """With another driver of a site, duplicates are found, and errors mean the same."""
    engine = create_engine(place.url.replace("psycopg", driver))
    store, meanings = SQLStore(engine), {"40001": None, "42501": StoreMisconfigured}
    for code, meaning in {**meanings, "53100": StoreUnavailable}.items():
        raise_conflicts(engine, code, "n = 1")
        with nullcontext() if meaning is None else pytest.raises(meaning) as caught:
            store.add(ROSE_PLANT._replace(id=int(code, 16)))
        assert caught is None or caught.type is meaning
        execute(engine, "DROP FUNCTION refuse CASCADE", "DROP SEQUENCE attempts")
    exists = ROSE_PLANT._replace(id=0x40001)
    new = [Plant(-(2**63), 'quotes " \\'), Plant(2**63 - 1, "\x01🌵", "")]
    assert store.add_some([exists, *new]) == {exists.id}
    assert list(store) == [new[0], exists, new[1]]
    with pytest.raises(PlantExists):
        store.add(exists)
    engine.dispose()


@only(mariadb)
@pytest.mark.usefixtures("store")  # It removes what raise_conflicts creates.
def test_node_that_is_not_ready_is_left(place: Place, engine: Engine) -> None:
    """If a node of Galera is not ready, an add is repeated on a new connection, to any node."""
    with open_sql(place.url) as store:
        store.add(LILY)  # Its connection has also checked the table.
        raise_conflicts(engine, "1047", "n < 2")
        store.add(ROSE_PLANT)
    with engine.connect() as connection:
        first, second = connection.exec_driver_sql("SELECT connection FROM attempts").scalars()
    assert first != second


CODES_OF_CONFLICTS = [(postgresql, code) for code in ("40001", "40P01")]
CODES_OF_CONFLICTS += [(mariadb, code) for code in ("1205", "1213", "1047")]
conflicts = on("code", CODES_OF_CONFLICTS)


@conflicts
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_conflicts_are_retried(store: SQLStore, engine: Engine, code: str, opened_by: str) -> None:
    """If the database asks to retry every third insert, all adds succeed."""
    raise_conflicts(engine, code, "MOD(n, 3) = 0")
    used = store if opened_by == "url" else SQLStore(engine)
    for id in range(20):
        used.add(Plant(id, "Rose"))
    assert len(used) == 20


@conflicts
def test_conflicts_that_never_end(store: SQLStore, engine: Engine, code: str) -> None:
    """A conflict that never ends is StoreUnavailable within the deadline, and stores nothing."""
    raise_conflicts(engine, code, "n > 0")
    for add in (lambda: store.add(ROSE_PLANT), lambda: store.add_some([LILY])):
        with deadline(1.5), pytest.raises(StoreUnavailable, match="conflict") as caught:
            add()
        assert not isinstance(caught.value, StoreMisconfigured)
    assert list(store) == []


# The codes of errors by their meaning: what ends by itself, or with an outage, and what does not.
CODES: list[tuple[OpenPlace, type[StoreUnavailable], str]] = [
    (postgresql, StoreUnavailable, "08006 25006 25P03 40003 53100 53300 55006 57014 58030"),
    (mariadb, StoreUnavailable, "1021 1053 1114 1156 1180 1203 1290 1317 1412 1969 9001"),
    (postgresql, StoreMisconfigured, "0A000 22001 23514 42501 42703 42P01 54000 55000 P0001"),
    (mariadb, StoreMisconfigured, "1054 1062 1142 1146 1364 1406 1644 4025"),
]


@on("meaning code", [(*it, code) for *it, codes in CODES for code in codes.split()])
def test_meaning_of_an_error(
    store: SQLStore, engine: Engine, meaning: type[StoreUnavailable], code: str
) -> None:
    """What ends by itself is StoreUnavailable; what fails in the same way is StoreMisconfigured."""
    is_transient = meaning is StoreUnavailable
    raise_conflicts(engine, code, "n < 3" if is_transient else "n > 0")
    for add in (lambda: store.add(ROSE_PLANT), lambda: store.add_some([ROSE_PLANT])):
        with pytest.raises(StoreUnavailable) as caught:
            add()
        assert type(caught.value) is meaning
        assert ("it refuses an operation: " in str(caught.value)) != is_transient
    if is_transient:
        store.add(ROSE_PLANT)


@only(postgresql)
def test_role_without_a_schema_for_its_table(place: Place) -> None:
    """A role that may use no schema of its search_path is StoreMisconfigured."""
    with open_sql(f"{place.url}?options=-c search_path=missing") as store:
        for use in (store.ping, lambda: store.add(ROSE_PLANT)):
            with pytest.raises(StoreMisconfigured, match="schema"):
                use()


@only(sqlite, postgresql, mariadb)
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
@pytest.mark.parametrize("statement", ["INSRT INTO plants VALUES ({0})", "SELECT {0}"])
def test_fault_is_a_500_with_its_traceback(
    place: Place, opened_by: str, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault in a statement of ours is 50001 with its traceback, also if the driver finds it.

    An exception of a listener of all engines, such as that of an agent, stays what it is.
    """

    def make_wrong(_: object, __: object, right: str, parameters: Any, *___: object) -> Any:
        marker = "?" if "?" in right else "%s"
        return statement.format(marker) if right.startswith("INSERT") else right, parameters

    with make_store(place.site_url, opened_by) as store:
        create_table(store)
        client = make_site(store=store).test_client()
        with listening("before_cursor_execute", make_wrong, retval=True):
            check_error(create(client, ROSE), 50001)
        assert "Traceback" in caplog.text
        refuse = listening("before_cursor_execute", lambda *_: {"": ""}["a fault of an agent"])
        with refuse, pytest.raises(KeyError, match="of an agent"):
            store.get(1)
        store.add(ROSE_PLANT)


@only(postgresql)
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
@pytest.mark.parametrize("change", ["ALTER TABLE plants ALTER name TYPE VARCHAR", "DEALLOCATE ALL"])
def test_prepared_statements_that_are_outdated(place: Place, opened_by: str, change: str) -> None:
    """If a column becomes VARCHAR, or prepared statements are gone, each operation succeeds."""
    # A statement that psycopg does not notice, like those of another client behind a pooler.
    hidden = f"DO $$ BEGIN EXECUTE '{change}'; END $$"
    with make_store(place.url, opened_by) as store:
        for id in range(20):
            store.add(Plant(id, "Rose"))
            store.get(id)
        for use in (lambda: store.get(0), lambda: store.remove(-1)):  # It reads, and it writes.
            ask(hidden, use)
        for id in range(20):
            assert store.get(id) == Plant(id, "Rose")
            store.add(Plant(100 + id, "Lily"))
