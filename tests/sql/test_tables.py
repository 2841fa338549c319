"""The table of a SQL store: its name, and the refusal of a table that cannot store every plant."""

import re
from pathlib import Path

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    MetaData,
    Table,
    create_engine,
    event,
    exc,
    inspect,
    text,
)

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from tests.support.databases import FILES, Place, mariadb, only, postgresql
from tests.support.responses import check_error, create
from tests.support.sites import LILY, ROSE_PLANT, make_site
from tests.support.sql import FURTHER_COLUMNS, execute, open_sql

# Definitions of tables that cannot store every plant, and a pattern of what is wrong with each.
WRONG = {
    "(name TEXT, tag TEXT)": "it has no column id",
    "(id BIGINT PRIMARY KEY, title TEXT)": "it has no column name and no column tag",
    "(id BIGINT, name TEXT, tag TEXT)": "its primary key must be the column id alone",
    "(id BIGINT, kind INT, name TEXT, tag TEXT, PRIMARY KEY (id, kind))": "column id alone",
    "(id FLOAT PRIMARY KEY, name TEXT, tag TEXT)": "the column id must be a signed BIGINT",
    "(id BIGINT PRIMARY KEY, name VARCHAR(50), tag TEXT)": "column name must be (LONG)?TEXT",
    "(id BIGINT PRIMARY KEY, name TEXT, tag INT)": "column tag must be (LONG)?TEXT",
    "(id BIGINT PRIMARY KEY, name TEXT, tag TEXT NOT NULL)": "column tag must be nullable",
}
RIGHT = "(id BIGINT PRIMARY KEY, name TEXT NOT NULL, tag TEXT)"


def engine_of(engine: Engine) -> str:
    """Return the part of a table's definition that names a storage engine with transactions."""
    return " ENGINE=InnoDB" if engine.dialect.name == "mysql" else ""


def create_plants(engine: Engine, definition: str) -> None:
    """Create the table plants. On MariaDB, each TEXT is a LONGTEXT of all Unicode characters."""
    if engine.dialect.name == "mysql":
        definition = definition.replace("TEXT", "LONGTEXT CHARACTER SET utf8mb4")
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS plants"))
        connection.execute(text(f"CREATE TABLE plants {definition}{engine_of(engine)}"))
        for column in FURTHER_COLUMNS:
            connection.execute(text(f"ALTER TABLE plants ADD COLUMN {column}"))


def check_refused(engine: Engine, problem: str, log: pytest.LogCaptureFixture) -> None:
    """Check that creates are 50303 and that the log names the problem once.

    Check also that the table is used as soon as it has been corrected.
    """
    store = SQLStore(engine)
    client = make_site(store=store).test_client()
    for id in range(3):
        response = create(client, {"id": id, "name": ""})
        assert check_error(response, 50303).endswith("the log says what is wrong.")
        assert "Retry-After" not in response.headers
    with pytest.raises(StoreMisconfigured, match=problem):
        store.ping()
    line, *_ = log.messages
    assert re.match(f"50303: The store is not set up for plants: table plants: .*{problem}", line)
    create_plants(engine, RIGHT)
    assert create(client, {"id": 1, "name": ""}).status_code == 200
    assert list(store) == [Plant(1, "")]


@pytest.mark.parametrize("definition", WRONG)
def test_wrong_table_is_refused(
    engine: Engine, definition: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A table that cannot store every plant is 50303, and is used as soon as it is corrected."""
    create_plants(engine, definition)
    check_refused(engine, WRONG[definition], caplog)


@only(*FILES)
@pytest.mark.parametrize(
    "constraint", ["PRIMARY KEY ON CONFLICT REPLACE", "PRIMARY KEY ON CONFLICT IGNORE"]
)
def test_wrong_table_on_sqlite(
    engine: Engine, constraint: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On SQLite, a key with a conflict clause is refused: a duplicate would be acknowledged."""
    create_plants(engine, f"(id BIGINT {constraint}, name TEXT, tag TEXT)")
    check_refused(engine, "its constraints must not have ON CONFLICT", caplog)


@only(*FILES)
def test_integer_key_on_sqlite(engine: Engine) -> None:
    """On SQLite, the column id may be INTEGER, which stores every integer of 64 bits."""
    create_plants(engine, "(id INTEGER PRIMARY KEY, name TEXT, tag TEXT)")
    store, plants = SQLStore(engine), [Plant(id, "") for id in (-(2**63), -1, 0, 2**63 - 1)]
    for plant in plants:
        store.add(plant)
    assert list(store) == plants


@only(mariadb)
@pytest.mark.parametrize(
    ("id", "name", "problem"),
    [
        (
            "BIGINT AUTO_INCREMENT",
            "LONGTEXT CHARSET utf8mb4",
            "must not be AUTO_INCREMENT",
        ),
        ("BIGINT UNSIGNED", "LONGTEXT CHARSET utf8mb4", "id must be a signed BIGINT"),
        ("BIGINT", "TEXT CHARSET utf8mb4", "the column name must be LONGTEXT"),
        ("BIGINT", "LONGTEXT CHARSET latin1", "its character set must be utf8mb4"),
        ("BIGINT", "LONGTEXT CHARSET utf8mb3", "its character set must be utf8mb4"),
        ("BIGINT", "LONGTEXT", "its character set must be utf8mb4"),  # The default is latin1.
    ],
)
def test_wrong_columns_on_mariadb(
    engine: Engine, id: str, name: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On MariaDB, AUTO_INCREMENT, UNSIGNED, short texts and other character sets are refused."""
    with engine.begin() as connection:
        connection.execute(
            text(
                f"CREATE TABLE plants (id {id} PRIMARY KEY, name {name}, tag {name}) ENGINE=InnoDB"
            )
        )
    check_refused(engine, problem, caplog)


@only(mariadb)
def test_storage_engine_of_mariadb(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """On MariaDB, a storage engine without transactions is refused."""
    create_plants(engine, RIGHT)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE plants ENGINE=MyISAM"))
    check_refused(engine, "its storage engine must be InnoDB", caplog)


@only(mariadb, postgresql)
def test_character_set_of_the_connection(engine: Engine) -> None:
    """A connection whose character set lacks characters is refused: it would alter texts."""
    option = {"mysql": "charset", "postgresql": "client_encoding"}[engine.dialect.name]
    narrow = create_engine(engine.url, connect_args={option: "latin1"})
    with pytest.raises(StoreMisconfigured, match=r"of the connection must be (utf8mb4|UTF8)"):
        SQLStore(narrow).add(ROSE_PLANT)
    narrow.dispose()


@only(postgresql)
def test_client_encoding_of_the_url(place: Place) -> None:
    """A client_encoding in the URL that lacks characters is refused."""
    with (
        open_sql(f"{place.url}?client_encoding=latin1") as store,
        pytest.raises(StoreMisconfigured, match="encoding of the connection"),
    ):
        store.ping()


@only(postgresql)
@pytest.mark.parametrize(
    ("id", "name", "problem"),
    [
        ("INT", "TEXT", "the column id must be a signed BIGINT"),
        ("BIGINT", "name", "the column name must be TEXT"),
        ("BIGINT", '"char"', "the column name must be TEXT"),
    ],
)
def test_wrong_columns_on_postgresql(
    engine: Engine, id: str, name: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On PostgreSQL, types that cannot have each id or text are refused."""
    create_plants(engine, f"(id {id} PRIMARY KEY, name {name}, tag TEXT)")
    check_refused(engine, problem, caplog)


@only(postgresql)
@pytest.mark.parametrize("name", ["plants", "Garden 'plants\""])
def test_unlogged_table(engine: Engine, name: str) -> None:
    """On PostgreSQL, a table that a crash would empty is refused until it is LOGGED."""
    quoted = engine.dialect.identifier_preparer.quote(name)
    execute(engine, f"CREATE UNLOGGED TABLE {quoted} {RIGHT}")
    store = SQLStore(engine, table=name)
    for use in (store.ping, lambda: store.add(ROSE_PLANT), lambda: store.add_all([ROSE_PLANT])):
        with pytest.raises(StoreMisconfigured, match="it must not be UNLOGGED"):
            use()
    execute(engine, f"ALTER TABLE {quoted} SET LOGGED")
    store.add(ROSE_PLANT)
    execute(engine, f"DROP TABLE {quoted}")


@only(postgresql)
def test_unlogged_partition(engine: Engine) -> None:
    """On PostgreSQL, a table is refused if a crash would empty one of its partitions."""
    execute(
        engine,
        f"CREATE TABLE plants {RIGHT} PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF plants FOR VALUES FROM (MINVALUE) TO (500)",
        "CREATE TABLE high PARTITION OF plants DEFAULT PARTITION BY RANGE (id)",
        "CREATE UNLOGGED TABLE highest PARTITION OF high DEFAULT",
    )
    with pytest.raises(StoreMisconfigured, match="it must not be UNLOGGED"):
        SQLStore(engine).add(ROSE_PLANT)


@only(postgresql)
def test_rule_that_redirects_plants(engine: Engine) -> None:
    """A plant is refused if a rule of the table replaces the insert."""
    create_plants(engine, RIGHT)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE garden_plants (LIKE plants)"))
        connection.execute(
            text(
                "CREATE RULE move AS ON INSERT TO plants"
                " DO INSTEAD INSERT INTO garden_plants VALUES (NEW.*)"
            )
        )
    store = SQLStore(engine)
    for add in (lambda: store.add(LILY), lambda: store.add_all([LILY])):
        with pytest.raises(StoreMisconfigured, match="RULE|rule"):
            add()
    assert list(store) == []


@only(postgresql)
def test_rule_that_drops_plants(engine: Engine) -> None:
    """A plant is never acknowledged if a rule of the table has dropped it."""
    create_plants(engine, RIGHT)
    with engine.begin() as connection:
        connection.execute(text("CREATE RULE drop AS ON INSERT TO plants DO INSTEAD NOTHING"))
    store = SQLStore(engine)
    for add in (lambda: store.add(LILY), lambda: store.add_all([LILY])):
        with pytest.raises(StoreMisconfigured):
            add()


@only(postgresql)
def test_encoding_of_postgresql(place: Place, engine: Engine) -> None:
    """A PostgreSQL database whose encoding lacks characters is refused."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(
            text("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        )
    latin = create_engine(engine.url.set(database="latin"))
    for use in (SQLStore(latin).ping, lambda: SQLStore(latin).add(ROSE_PLANT)):
        with pytest.raises(StoreMisconfigured, match="the encoding of the database must be UTF8"):
            use()
    latin.dispose()


def test_columns_that_the_database_fills_are_allowed(engine: Engine) -> None:
    """The table may have other columns, if they are nullable or have a default."""
    create_plants(engine, f"{RIGHT[:-1]}, price INT, sold INT NOT NULL DEFAULT 0)")
    store = SQLStore(engine)
    store.add(ROSE_PLANT)
    assert store.add_all([LILY]) == 1
    assert list(store) == [ROSE_PLANT, LILY]
    assert store.get(1) == ROSE_PLANT


def test_column_that_nobody_fills(place: Place, engine: Engine) -> None:
    """If a column of a site needs a value, a plant is refused, and the message says which one."""
    create_plants(engine, f"{RIGHT[:-1]}, price INT NOT NULL)")
    with open_sql(place.url) as store:
        for add in (lambda: store.add(LILY), lambda: store.add_all([LILY])):
            with pytest.raises(StoreMisconfigured, match="it refuses an operation: .*price"):
                add()


def test_constraint_of_the_site(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A plant that violates a constraint of the site is 50303, and the log says which one."""
    create_plants(engine, f"{RIGHT[:-1]}, CONSTRAINT short CHECK (LENGTH(name) < 9))")
    store = SQLStore(engine)
    client = make_site(store=store).test_client()
    check_error(create(client, {"id": 1, "name": "Chrysanthemum"}), 50303)
    (line,) = caplog.messages
    assert re.match(
        "50303: The store is not set up .* table plants: it refuses an operation: [^(].*short", line
    )
    assert create(client, {"id": 1, "name": "Rose"}).status_code == 200
    check_error(create(client, {"id": 1, "name": "Rose"}), 40004)


def test_constraint_of_the_site_hides_the_plant(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """When a plant violates a constraint of the site, the log does not show the plant."""
    name = "name(9)" if engine.dialect.name == "mysql" else "name"
    create_plants(engine, RIGHT)
    with engine.begin() as connection:
        connection.execute(text(f"CREATE UNIQUE INDEX one_name ON plants ({name})"))
    client = make_site(store=SQLStore(engine)).test_client()
    assert create(client, {"id": 1, "name": "secret\nname"}).status_code == 200
    check_error(create(client, {"id": 2, "name": "secret\nname"}), 50303)
    (line,) = caplog.messages
    assert "secret" not in caplog.text
    assert "name" in line


@only(mariadb, postgresql)
def test_column_that_becomes_too_short(place: Place, engine: Engine) -> None:
    """A name is never truncated, also if its column became too short while the store was in use."""
    alter = {
        "mysql": "ALTER TABLE plants MODIFY name VARCHAR(5) NOT NULL",
        "postgresql": "ALTER TABLE plants ALTER name TYPE VARCHAR(5)",
    }
    with open_sql(place.url) as store:
        store.add_all([])
        with engine.begin() as connection:
            connection.execute(text(alter[engine.dialect.name]))
        for problem in ("it refuses an operation", "the column name must be"):
            with pytest.raises(StoreMisconfigured, match=problem):
                store.add(Plant(1, "Monstera"))
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT COUNT(*) FROM plants")) == 0


def test_table_that_cannot_be_created(tmp_path: Path) -> None:
    """If the store may not create its table, StoreUnavailable has the reason."""
    (tmp_path / "plants.db").touch()
    engine = create_engine(f"sqlite:///file:{tmp_path}/plants.db?mode=ro&uri=true")
    with pytest.raises(StoreUnavailable, match="readonly database"):
        SQLStore(engine).add(ROSE_PLANT)
    engine.dispose()


def test_two_tables_in_one_database(engine: Engine) -> None:
    """Two stores with two tables in one database have different plants."""
    store, garden = SQLStore(engine), SQLStore(engine, table="garden_plants")
    store.add(ROSE_PLANT)
    garden.add(LILY)
    assert (list(store), list(garden)) == ([ROSE_PLANT], [LILY])
    with pytest.raises(PlantExists):
        SQLStore(engine, table="garden_plants").add(LILY)


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


def test_model_of_the_site_with_the_same_name() -> None:
    """A site's model and a store cannot use one table name, whichever comes first."""
    engine = create_engine("sqlite://")

    def define_model(metadata: MetaData) -> None:
        Table("orders", metadata, Column("id", BigInteger, primary_key=True))

    model_first, store_first = MetaData(), MetaData()
    define_model(model_first)
    with pytest.raises(ValueError, match="orders.*table='garden_plants'"):
        SQLStore(engine, model_first, table="orders")
    SQLStore(engine, store_first, table="orders")
    with pytest.raises(exc.InvalidRequestError, match="orders"):
        define_model(store_first)


@pytest.mark.parametrize("table", ["", "\0", "x" * 10_000])
def test_impossible_table_name(table: str) -> None:
    """A table name that no database accepts is refused at once."""
    engine = create_engine("sqlite://")
    with pytest.raises(ValueError, match="table must be a name of 1 to"):
        SQLStore(engine, table=table)


def test_unusual_table_name(engine: Engine) -> None:
    """A table name may have any characters, also those that need quotes."""
    name = """Garden 'plants"; %s:x"""
    store = SQLStore(engine, table=name)
    store.add(ROSE_PLANT)
    assert list(SQLStore(engine, table=name)) == [ROSE_PLANT]
    metadata = MetaData()
    SQLStore(engine, metadata, table=name)
    metadata.drop_all(engine)


@only(mariadb)
@pytest.mark.parametrize("metadata", [True, False], ids=["site creates", "store creates"])
def test_engine_with_the_dialect_mariadb(place: Place, metadata: bool) -> None:
    """A table that is created by an engine of the dialect mariadb can store every plant.

    The server's defaults are the least safe ones.
    """
    engine = create_engine(place.url.replace("mysql+", "mariadb+"))
    assert engine.dialect.name == "mariadb"
    tables = MetaData()
    store = SQLStore(engine, tables if metadata else None)
    tables.create_all(engine)
    plant = Plant(1, "🌹" * 20_000, "é" * 70_000)
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
    assert (store.get(1), list(store), len(store)) == (None, [], 0)
    with pytest.raises(KeyError):
        store.remove(1)


@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
@pytest.mark.parametrize("add", ["add", "add_all"])
def test_only_an_add_creates_the_table(
    place: Place, engine: Engine, opened_by: str, add: str
) -> None:
    """Before the first add or add_all, the store is empty, and reading creates no table."""
    store = open_sql(place.url) if opened_by == "url" else SQLStore(engine)
    with store:
        read_all(store)
        assert not inspect(engine).has_table("plants")
        store.add(ROSE_PLANT) if add == "add" else store.add_all([ROSE_PLANT])
        assert list(store) == [ROSE_PLANT]


def test_table_that_another_store_creates(place: Place) -> None:
    """A store that has found no table sees the plants of another store that creates it."""
    with open_sql(place.url) as store, open_sql(place.url) as other:
        read_all(store)
        other.add(ROSE_PLANT)
        assert (store.get(1), list(store), len(store)) == (ROSE_PLANT, [ROSE_PLANT], 1)
        store.add(LILY)


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


def test_dropped_table(place: Place, engine: Engine) -> None:
    """When the table is dropped under a store, one read fails, and the store is then empty."""
    with open_sql(place.url) as store:
        store.add(ROSE_PLANT)
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE plants"))
        with pytest.raises(StoreUnavailable):
            store.get(1)
        read_all(store)
        store.add(LILY)
        assert list(store) == [LILY]


def test_wrong_table_is_not_taken_for_a_missing_one(engine: Engine) -> None:
    """Reading from a table that is not one of plants is StoreMisconfigured, and changes nothing."""
    create_plants(engine, "(title VARCHAR(9) PRIMARY KEY)")
    store = SQLStore(engine)
    for read in (store.ping, lambda: store.get(1), lambda: list(store), lambda: len(store)):
        with pytest.raises(StoreMisconfigured, match="it has no column id and no column name"):
            read()
    with pytest.raises(StoreMisconfigured):
        store.remove(1)


@only(mariadb)
def test_table_that_cannot_be_described(engine: Engine) -> None:
    """A view whose own table is missing is StoreMisconfigured, not an empty store."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE garden_plants (id BIGINT PRIMARY KEY)"))
        connection.execute(text("CREATE VIEW plants AS SELECT id FROM garden_plants"))
        connection.execute(text("DROP TABLE garden_plants"))
    store = SQLStore(engine)
    try:
        for use in (store.ping, lambda: store.add(ROSE_PLANT)):
            with pytest.raises(StoreUnavailable, match="references invalid table"):
                use()
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP VIEW plants"))


@only(mariadb, postgresql)
def test_reading_without_the_right_to_create(place: Place, engine: Engine) -> None:
    """A user who may only read can read a missing table and an existing one, and add to neither."""
    with engine.begin() as connection:
        for statement in READER[engine.dialect.name]:
            connection.execute(text(statement))
    url = engine.url.set(username="shy", password="hunter2")
    with open_sql(url.render_as_string(hide_password=False)) as reader:
        read_all(reader)
        with pytest.raises(StoreUnavailable, match=r"(?i)denied"):
            reader.add(ROSE_PLANT)
        SQLStore(engine).add(ROSE_PLANT)
        assert list(reader) == [ROSE_PLANT]
        with pytest.raises(StoreUnavailable, match=r"(?i)denied"):
            reader.add(LILY)


@only(postgresql)
def test_role_that_may_use_no_schema(place: Place, engine: Engine) -> None:
    """A role that may use no schema gets StoreMisconfigured, not an empty store."""
    SQLStore(engine).add(ROSE_PLANT)
    with engine.begin() as connection:
        connection.execute(text("CREATE ROLE outsider LOGIN"))
        connection.execute(text("REVOKE USAGE ON SCHEMA public FROM PUBLIC"))
    url = engine.url.set(username="outsider").render_as_string(hide_password=False)
    with open_sql(url) as outsider:
        for use in (outsider.ping, lambda: len(outsider)):
            with pytest.raises(StoreMisconfigured, match="the right to use a schema"):
                use()
    with engine.begin() as connection:
        connection.execute(text("GRANT USAGE ON SCHEMA public TO PUBLIC"))


READER = {
    "mysql": (
        "CREATE OR REPLACE USER shy@'%' IDENTIFIED BY 'hunter2'",
        "GRANT SELECT ON plants.* TO shy@'%'",
    ),
    "postgresql": (
        "CREATE ROLE shy LOGIN PASSWORD 'hunter2'",
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO shy",
    ),
}
