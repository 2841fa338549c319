"""The table of a SQL store: its name, and tables and rows that are not those of plants."""

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from sqlalchemy import Column, Engine, MetaData, Table, create_engine, event, inspect, text

from plantstore import Plant, SQLStore, StoreMisconfigured, StoreUnavailable
from tests.support.databases import DATABASES, FILES, Place, mariadb, on, only, postgresql, sqlite
from tests.support.responses import ALL, check_error, create, get
from tests.support.sites import BEARER, LILY, ROSE_PLANT, make_site
from tests.support.sql import (
    COLUMNS,
    FURTHER_COLUMNS,
    Limit,
    add_in_one_group,
    call_all,
    changed,
    check_refused,
    create_trigger,
    execute,
    make_store,
    open_sql,
)
from tests.support.waiting import wait_until

# Tables that cannot store every plant, and a pattern of what is wrong with each.
WRONG: list[tuple[Any, str, str]] = [
    (DATABASES, "(title CHAR(9) PRIMARY KEY)", "no column id and no column name and no column tag"),
    (DATABASES, "(id BIGINT, name TEXT, tag TEXT)", "its primary key must be the column id alone"),
    (DATABASES, "(id BIGINT, a INT, name TEXT, tag TEXT, PRIMARY KEY (id, a))", "column id alone"),
    (DATABASES, "(id FLOAT PRIMARY KEY, name TEXT, tag TEXT)", "column id must be a signed BIGINT"),
    (DATABASES, "(id BIGINT PRIMARY KEY, name CHAR(50), tag TEXT)", "name must be (LONG)?TEXT"),
    (DATABASES, "(id BIGINT PRIMARY KEY, name TEXT, tag INT)", "column tag must be (LONG)?TEXT"),
    (DATABASES, "(id BIGINT PRIMARY KEY, name TEXT, tag TEXT NOT NULL)", "tag must be nullable"),
    (DATABASES, "(id BIGINT PRIMARY KEY, name TEXT, tag TEXT)", "column name must be NOT NULL"),
    ([postgresql], "(id INT PRIMARY KEY, name TEXT, tag TEXT)", "id must be a signed BIGINT"),
    ([postgresql], "(id BIGINT PRIMARY KEY, name name, tag TEXT)", "column name must be TEXT"),
    *[
        ([mariadb], f"(id {id} PRIMARY KEY, name {kind}, tag {kind}) ENGINE={engine}", problem)
        for id, kind, engine, problem in (
            ("BIGINT AUTO_INCREMENT", "TEXT", "InnoDB", "must not be AUTO_INCREMENT"),
            ("BIGINT UNSIGNED", "TEXT", "InnoDB", "the column id must be a signed BIGINT"),
            ("BIGINT", "text charset utf8mb4", "InnoDB", "the column name must be LONGTEXT"),
            ("BIGINT", "longtext charset latin1", "InnoDB", "its character set must be utf8mb4"),
            ("BIGINT", "longtext", "InnoDB", "its character set must be utf8mb4"),  # Its default.
            ("BIGINT", "TEXT", "MyISAM", "its storage engine must be InnoDB"),
        )
    ],
]
RIGHT = "(id BIGINT PRIMARY KEY, name TEXT NOT NULL, tag TEXT)"


def create_plants(engine: Engine, definition: str) -> None:
    """Create the table plants. On MariaDB, each TEXT is a LONGTEXT of all Unicode characters."""
    if engine.dialect.name == "mysql":
        definition = definition.replace("TEXT", "LONGTEXT CHARACTER SET utf8mb4")
        if "ENGINE" not in definition:
            definition += " ENGINE=InnoDB"
    execute(
        engine,
        "DROP TABLE IF EXISTS plants",
        f"CREATE TABLE plants {definition}",
        *(f"ALTER TABLE plants ADD COLUMN {column}" for column in FURTHER_COLUMNS),
    )


@on("definition problem", WRONG)
def test_wrong_table_is_refused(
    engine: Engine, definition: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A table that cannot store every plant is 50303 until it is corrected, as the log explains."""
    create_plants(engine, definition)
    store = SQLStore(engine)
    client = make_site(store=store).test_client()
    for id in range(3):
        response = create(client, {"id": id, "name": ""})
        assert check_error(response, 50303).endswith("the log says what is wrong.")
        assert "Retry-After" not in response.headers
    for use in (store.ping, lambda: store.get(1), lambda: len(store), lambda: store.remove(1)):
        with pytest.raises(StoreMisconfigured, match=problem):
            use()
    line, *_ = caplog.messages
    assert re.match(f"50303: The store is not set up for plants: table plants: .*{problem}", line)
    create_plants(engine, RIGHT)
    assert create(client, {"id": 1, "name": ""}).status_code == 200
    assert list(store) == [Plant(1, "")]


@only(mariadb, postgresql)
def test_character_set_of_the_connection(engine: Engine) -> None:
    """A connection whose character set lacks characters is refused: it would alter texts."""
    option = {"mysql": "charset", "postgresql": "client_encoding"}[engine.dialect.name]
    narrow = create_engine(engine.url, connect_args={option: "latin1"})
    with pytest.raises(StoreMisconfigured, match=r"of the connection must be (utf8mb4|UTF8)"):
        SQLStore(narrow).add(ROSE_PLANT)
    narrow.dispose()


@only(postgresql)
def test_encoding_of_postgresql(place: Place, engine: Engine) -> None:
    """A PostgreSQL database whose encoding lacks characters is refused. SQL_ASCII lacks none."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for encoding in ("LATIN1", "SQL_ASCII"):
            encoded = f"{encoding} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
            connection.exec_driver_sql(f"CREATE DATABASE {encoded}")
    with open_sql(changed(place.url, database="latin1")) as store:
        check_refused(store, StoreMisconfigured, "encoding of the database must be UTF8")
    with open_sql(changed(place.url, database="sql_ascii")) as store:
        plants = [Plant(id, f"Rosé 🌹 {id}") for id in range(3)]
        store.add(plants[0])
        assert store.add_some(plants) == {0}
        assert list(store) == plants


@only(postgresql)
def test_table_without_durability(place: Place, engine: Engine) -> None:
    """A table of PostgreSQL that a crash would empty is refused, whatever its name is."""
    execute(engine, f'CREATE UNLOGGED TABLE "Garden \'plants" {RIGHT}')
    store = SQLStore(engine, table="Garden 'plants")
    check_refused(store, StoreMisconfigured, "UNLOGGED")
    execute(engine, 'ALTER TABLE "Garden \'plants" SET LOGGED')
    store.add(ROSE_PLANT)
    execute(engine, 'DROP TABLE "Garden \'plants"')
    with open_sql(f"{place.url}?options=-csearch_path%3Dmissing,pg_temp") as store:
        check_refused(store, StoreMisconfigured, "nor temporary: a crash would")


# Triggers that drop or refuse roses, and the messages about them.
ROSES: list[tuple[Any, str, str]] = [
    (postgresql, "IF NEW.name = 'Rose' THEN RETURN NULL; END IF", "drops plants"),
    (postgresql, "IF NEW.name = 'Rose' THEN RAISE 'no'; END IF", "refuses an operation"),
    (mariadb, "IF NEW.name = 'Rose' THEN SIGNAL SQLSTATE '45000'; END IF", "refuses an operation"),
    (sqlite, "SELECT RAISE(IGNORE) WHERE NEW.name = 'Rose'", "drops plants"),
    *(
        (FILES, f"SELECT RAISE({action}, 'no') WHERE NEW.name = 'Rose'", "refuses an operation")
        for action in ("ROLLBACK", "ABORT", "FAIL")
    ),
]


@on("action message", ROSES)
def test_plants_that_are_dropped(
    store: SQLStore, engine: Engine, action: str, message: str
) -> None:
    """A plant that a trigger drops or refuses is no duplicate, and only it is not added."""
    create_trigger(engine, action)
    check_refused(store, StoreMisconfigured, message, ROSE_PLANT)
    assert list(store) == []
    outcomes = add_in_one_group(store, [Plant(id, ["Lily", "Rose"][id % 2]) for id in range(6)])
    assert [type(outcome) for outcome in outcomes] == [type(None), StoreMisconfigured] * 3
    assert [plant.id for plant in store] == [0, 2, 4]


@on("id", [(DATABASES, "BIGINT"), (FILES, "INTEGER")])
def test_table_of_the_site(engine: Engine, id: str) -> None:
    """A table may have other columns that the database fills, and in SQLite, an INTEGER as id."""
    columns = (
        f"id {id} PRIMARY KEY, name TEXT NOT NULL, tag TEXT, price INT, sold INT NOT NULL DEFAULT 0"
    )
    create_plants(engine, f"({columns})")
    store, plants = SQLStore(engine), [Plant(id, "") for id in (-(2**63), -1, 0, 2**63 - 1)]
    for plant in plants[:2]:
        store.add(plant)
    assert store.add_some(plants[2:]) == set()
    assert list(store) == plants == [store.get(plant.id) for plant in plants]


# What a site adds to the table, and what the message says when it refuses a plant.
CONSTRAINTS: list[tuple[Any, str, str, str]] = [
    (DATABASES, ", price INT NOT NULL", "", "price"),
    (DATABASES, ", CONSTRAINT short CHECK (LENGTH(name) < 9)", "", "short"),
    ([sqlite, postgresql], "", "CREATE UNIQUE INDEX names ON plants (name)", "name"),
    ([mariadb], "", "CREATE UNIQUE INDEX names ON plants (name(9))", "name"),
]


@on("columns statement problem", CONSTRAINTS)
def test_constraint_of_the_site(
    place: Place,
    engine: Engine,
    columns: str,
    statement: str,
    problem: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If a constraint of a site refuses a plant, the log says which one, without the plant.

    Such a plant is no duplicate, whatever its name is.
    """
    # It looks like a part of the message about a duplicate.
    plant = Plant(1, "secret\n5' for key 'PRIMARY")
    create_plants(engine, f"{RIGHT[:-1]}{columns})")
    if statement:
        SQLStore(engine).add(plant._replace(id=0))
        execute(engine, statement)
    with open_sql(place.url) as store:
        refused = f"it refuses an operation: [^(].*{problem}"
        check_refused(store, StoreMisconfigured, refused, plant)
        check_error(create(make_site(store=store).test_client(), plant.members()), 50303)
    (line,) = caplog.messages
    assert re.search(refused, line)
    assert "secret" not in caplog.text
    assert "\n" not in line


@only(mariadb, postgresql)
def test_column_that_becomes_too_short(store: SQLStore, engine: Engine) -> None:
    """A name is never truncated, also if its column became too short while the store was in use."""
    change = "MODIFY name" if engine.dialect.name == "mysql" else "ALTER name TYPE"
    store.add(LILY)
    execute(engine, f"ALTER TABLE plants {change} VARCHAR(5)")
    for problem in ("it refuses an operation", "the column name must be"):
        with pytest.raises(StoreMisconfigured, match=problem):
            store.add(Plant(1, "Monstera"))
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT COUNT(*) FROM plants")) == 1


def test_schema_of_the_site(place: Place, engine: Engine) -> None:
    """A site's metadata may have a schema, and its engine may translate schemas."""
    schema = {"sqlite": "main", "postgresql": "public", "mysql": "plants"}[engine.dialect.name]
    metadata = MetaData(schema=schema)
    named = SQLStore(engine, metadata)
    metadata.create_all(engine)
    named.add(ROSE_PLANT)
    translating = engine.execution_options(schema_translate_map={None: schema})
    translated = SQLStore(translating)
    assert list(translated) == [ROSE_PLANT]
    translated.close()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        *((table, "must be a name of 1 to") for table in ("", "\0", "x" * 10_000)),
        ("orders", "orders.*table='garden_plants'"),
    ],
)
def test_impossible_table_name(table: str, problem: str) -> None:
    """A table name that no database accepts, or that a model of the site has, is refused."""
    metadata = MetaData()
    Table("orders", metadata, Column("id"))
    with pytest.raises(ValueError, match=problem):
        SQLStore(create_engine("sqlite://"), metadata, table=table)


# The second one is that of something else in a statement of the store.
@pytest.mark.parametrize("name", ["""Garden 'plants"; %s:x""", "added"])
def test_unusual_table_name(engine: Engine, name: str) -> None:
    """A table name may have any characters, also those that need quotes."""
    store = SQLStore(engine, table=name)
    assert [store.add_some([ROSE_PLANT]) for _ in range(2)] == [set(), {1}]
    assert list(SQLStore(engine, table=name)) == [ROSE_PLANT]
    metadata = MetaData()
    SQLStore(engine, metadata, table=name)
    metadata.drop_all(engine)


@only(mariadb)
@pytest.mark.mariadb_only
def test_engine_with_the_dialect_mariadb(place: Place) -> None:
    """An engine of the dialect mariadb creates a table that can store every plant."""
    engine = create_engine(place.url.replace("mysql+", "mariadb+"))
    store, plant = SQLStore(engine), Plant(1, "🌹" * 20_000, "é" * 70_000)
    store.add(plant)
    assert list(store) == [plant]
    with engine.connect() as connection:
        _, definition = connection.execute(text("SHOW CREATE TABLE plants")).one()
    assert "ENGINE=InnoDB" in definition
    assert definition.count("longtext CHARACTER SET utf8mb4") == 2
    engine.dispose()


def read_all(store: SQLStore) -> None:
    """Check that each operation but an add treats a missing table as an empty one."""
    store.ping()
    assert (store.get(1), store.get_some([1]), list(store), len(store)) == (None, {}, [], 0)
    with pytest.raises(KeyError):
        store.remove(1)


@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
@pytest.mark.parametrize("add", ["add", "add_some"])
def test_only_an_add_creates_the_table(
    place: Place, engine: Engine, opened_by: str, add: str
) -> None:
    """Before the first plant, the store is empty, and reading creates no table."""
    with make_store(place.site_url, opened_by) as store:
        read_all(store)
        assert not inspect(engine).has_table("plants")
        store.add(ROSE_PLANT) if add == "add" else store.add_some([ROSE_PLANT])
        assert list(store) == [ROSE_PLANT]


@only(*FILES)
def test_table_that_another_process_creates_during_the_check(place: Place, engine: Engine) -> None:
    """A table that another process creates while it is checked is not taken for a wrong one."""

    def create_table(_: object, __: object, statement: str, *___: object) -> None:
        if "table_xinfo" in statement and not inspect(engine).has_table("plants"):
            create_plants(engine, RIGHT)

    watched = create_engine(place.site_url)
    event.listen(watched, "after_cursor_execute", create_table)
    store = SQLStore(watched)
    store.ping()
    store.add(ROSE_PLANT)
    assert list(store) == [ROSE_PLANT]
    watched.dispose()


@pytest.mark.parametrize("read", [lambda store: store.get(1), lambda store: [*store.iterate()]])
def test_dropped_table(store: SQLStore, engine: Engine, read: Callable[[SQLStore], object]) -> None:
    """When the table is dropped under a store, one read fails, and the store is then empty."""
    store.add(ROSE_PLANT)
    execute(engine, "DROP TABLE plants")
    with pytest.raises(StoreUnavailable):
        read(store)
    read_all(store)
    store.add(LILY)
    assert list(store) == [LILY]


@only(mariadb, postgresql)
def test_reading_without_the_right_to_create(place: Place, engine: Engine) -> None:
    """A user who may only read can read a missing table and an existing one, and add to neither."""
    rights = {"mysql": "SELECT ON plants.*", "postgresql": "pg_read_all_data"}[engine.dialect.name]
    execute(engine, "CREATE USER shy", f"GRANT {rights} TO shy")
    with open_sql(changed(place.url, username="shy")) as reader:
        read_all(reader)
        check_refused(reader, StoreMisconfigured, "(?i)denied")
        SQLStore(engine).add(ROSE_PLANT)
        check_refused(reader, StoreMisconfigured, "(?i)denied")
        assert list(reader) == [ROSE_PLANT]


@only(mariadb)
def test_primary_key_that_is_removed(place: Place, engine: Engine, limit: Limit) -> None:
    """If the primary key is removed under a store, adds soon fail until it is there again."""
    limit(table_check=0.5)
    with open_sql(place.url) as store:
        store.add(ROSE_PLANT)
        execute(engine, "ALTER TABLE plants DROP PRIMARY KEY")
        wait_until(lambda: "primary key" in repr(call_all(lambda: store.add(LILY))))
        execute(engine, "DROP TABLE plants")
        store.add(LILY)
        assert list(store) == [LILY]


# Rows of SQLite that another program has written: the name and the tag, and what is wrong with it.
NAMES = {
    "name not UTF-8": ("CAST(x'ff' AS TEXT), NULL", "a text is not UTF-8"),
    "two BLOBs": ("x'00', x'61'", "name: Must be a string, not bytes. tag: Must be a string"),
}
IDS = {
    "NULL": "plants: a row is not a plant: id: Must be an integer, not NoneType.",
    "'seven'": "the row with the id 'seven' is not a plant",
    "CAST(x'ff' AS TEXT)": "plants: a row is not a plant: a text is not UTF-8",
}


def insert(file: Path, *rows: str) -> None:
    """Add rows to an SQLite file as another program does."""
    with closing(connect(file)) as other:
        other.execute(f"CREATE TABLE IF NOT EXISTS plants ({COLUMNS})")
        for row in rows:
            other.execute(f"INSERT INTO plants (id, name, tag) VALUES ({row})")
        other.commit()


@pytest.mark.parametrize(("row", "fault"), NAMES.values(), ids=NAMES)
def test_row_with_a_wrong_text(
    tmp_path: Path, file_engine: Engine, caplog: pytest.LogCaptureFixture, row: str, fault: str
) -> None:
    """To read a row that is not a plant is 50303, and the log names its id. It can be replaced."""
    insert(tmp_path / "plants.db", "3, 'Lily', NULL", f"7, {row}", "8, 'Tulip', NULL")
    client = make_site(store=SQLStore(file_engine), operations=ALL).test_client()
    for path in ("/plants/7", "/plants", "/plants?after=3", "/plants?limit=2"):
        caplog.clear()
        check_error(get(client, path), 50303)
        (line,) = caplog.messages
        assert f": table plants: the row with the id 7 is not a plant: {fault}" in line
    assert get(client, "/plants/3").json == {"name": "Lily"}
    assert get(client, "/plants?after=7").json == [{"id": 8, "name": "Tulip"}]
    replaced = client.put("/plants/7", json={"name": "Rose"}, headers=BEARER)
    assert replaced.status_code == 200
    assert [plant["id"] for plant in json.loads(get(client, "/plants").data)] == [3, 7, 8]


@pytest.mark.parametrize(("id", "problem"), IDS.items(), ids=IDS)
def test_row_with_a_wrong_id(url: str, tmp_path: Path, id: str, problem: str) -> None:
    """A row whose id is not an integer is not a plant either."""
    insert(tmp_path / "plants.db", "3, 'Lily', NULL", f"{id}, 'Rose', NULL")
    with open_sql(url) as store, pytest.raises(StoreMisconfigured, match=problem):
        list(store)
    with open_sql(url) as store:
        store.add(Plant(4, "Tulip"))
        assert store.get(3) == Plant(3, "Lily")


@only(postgresql)
def test_text_of_postgresql_that_is_not_utf_8(place: Place, engine: Engine) -> None:
    """In a database of PostgreSQL with any bytes, a text that is not UTF-8 is not a plant."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql(
            "CREATE DATABASE bytes ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
        )
    url = changed(place.url, database="bytes")
    with open_sql(url) as store:
        store.add_some([Plant(3, "Lily"), Plant(7, "Rose")])
        other = create_engine(url, connect_args={"client_encoding": "utf8"})
        execute(other, r"UPDATE plants SET name = E'\xff' WHERE id = 7")
        other.dispose()
        for read in (lambda: store.get(7), lambda: store.get_some([3, 7]), lambda: list(store)):
            with pytest.raises(StoreMisconfigured, match="the id 7 is not a plant: a text is not"):
                read()
