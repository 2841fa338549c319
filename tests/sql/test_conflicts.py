"""Duplicates, which the error of the database itself identifies, and retries after conflicts."""

import pytest
from sqlalchemy import Engine, create_engine, event, exc

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from tests.support.databases import Place, mariadb, only, postgresql
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import create_trigger, execute, open_sql, raise_conflicts, statements_of


def test_no_query_after_a_duplicate(store: SQLStore) -> None:
    """A duplicate is reported after one insert, without a query that a replica may answer."""
    store.add(ROSE_PLANT)
    with statements_of(store) as statements:
        for _ in range(3):
            with pytest.raises(PlantExists, match="^1$"):
                store.add(Plant(1, "Lily"))
    assert statements == ["INSERT"] * 3


def unique_names(engine: Engine) -> None:
    """Add a constraint to the table of plants: their names differ."""
    name = "name(50)" if engine.dialect.name == "mysql" else "name"
    execute(engine, f"CREATE UNIQUE INDEX names ON plants ({name})")


def test_other_constraint_is_not_retried(store: SQLStore, engine: Engine) -> None:
    """A plant that violates a constraint of the site is refused after one insert."""
    unique_names(engine)
    store.add(ROSE_PLANT)
    with (
        statements_of(store) as statements,
        pytest.raises(StoreMisconfigured, match="refuses an operation: .*name"),
    ):
        store.add(Plant(2, "Rose"))
    # On PostgreSQL, the catalog is then searched for new partitions.
    assert statements in (["INSERT"], ["INSERT", "WITH"])
    assert list(store) == [ROSE_PLANT]


@pytest.mark.parametrize(
    "name", ["1", "5' for key 'PRIMARY", "5' for key 'PRIMARY' '", "plants.id", 'key "plants_pkey"']
)
def test_name_that_looks_like_a_key(store: SQLStore, engine: Engine, name: str) -> None:
    """A name cannot make a violation of another constraint look like a duplicate."""
    unique_names(engine)
    store.add(Plant(1, name))
    with pytest.raises(StoreMisconfigured):
        store.add(Plant(5, name))
    with pytest.raises(StoreMisconfigured):
        store.add_all([Plant(5, name)], skip_existing=True)
    assert list(store) == [Plant(1, name)]


def test_primary_key_of_another_table(store: SQLStore, engine: Engine) -> None:
    """A violated primary key of a table to which a trigger writes is not a duplicate."""
    if engine.dialect.name == "sqlite":
        action = "CREATE TRIGGER refuse BEFORE INSERT ON plants BEGIN {} END"
        execute(engine, "CREATE TABLE labels (id BIGINT PRIMARY KEY) WITHOUT ROWID")
        execute(engine, action.format("INSERT INTO labels VALUES (7);"))
    else:
        execute(engine, "CREATE TABLE labels (id BIGINT PRIMARY KEY)")
        create_trigger(engine, "INSERT INTO labels VALUES (7)")
    store.add(ROSE_PLANT)
    with pytest.raises(StoreMisconfigured):
        store.add(LILY)
    for skip_existing in (True, False):
        with statements_of(store) as statements, pytest.raises(StoreMisconfigured):
            store.add_all([LILY], skip_existing=skip_existing)
        assert statements.count("INSERT") == 1
    assert list(store) == [ROSE_PLANT]


@only(mariadb)
def test_same_id_in_another_table(store: SQLStore, engine: Engine) -> None:
    """An import ends if a trigger violates the primary key of another table with the same id.

    The message of MariaDB does not name the table, so each add is reported as a duplicate.
    """
    execute(engine, "CREATE TABLE labels (id BIGINT PRIMARY KEY)")
    execute(engine, "INSERT INTO labels VALUES (2)")
    create_trigger(engine, "INSERT INTO labels VALUES (NEW.id)")
    with pytest.raises(PlantExists):
        store.add(LILY)
    for skip_existing in (True, False):
        with pytest.raises(StoreMisconfigured):
            store.add_all([ROSE_PLANT, LILY], skip_existing=skip_existing)
    assert list(store) == []


@only(postgresql)
def test_constraint_of_the_same_name_in_another_schema(store: SQLStore, engine: Engine) -> None:
    """A violated constraint of another schema is not a duplicate, whatever its name is."""
    execute(
        engine,
        "CREATE SCHEMA other",
        "CREATE TABLE other.plants (id BIGINT CONSTRAINT plants_pkey PRIMARY KEY)",
    )
    create_trigger(engine, "INSERT INTO other.plants VALUES (7)")
    store.add(ROSE_PLANT)
    with statements_of(store) as statements, pytest.raises(StoreMisconfigured):
        store.add(LILY)
    # On PostgreSQL, the catalog is then searched for new partitions.
    assert statements in (["INSERT"], ["INSERT", "WITH"])


@only(postgresql)
@pytest.mark.parametrize(
    "definition",
    [
        ["CREATE TABLE plants (id BIGINT CONSTRAINT a_name PRIMARY KEY, name TEXT, tag TEXT)"],
        [
            "CREATE TABLE plants (id BIGINT PRIMARY KEY, name TEXT, tag TEXT)"
            " PARTITION BY HASH (id)",
            "CREATE TABLE even PARTITION OF plants FOR VALUES WITH (MODULUS 2, REMAINDER 0)"
            " PARTITION BY RANGE (id)",
            "CREATE TABLE low PARTITION OF even FOR VALUES FROM (MINVALUE) TO (500)",
            "CREATE TABLE high PARTITION OF even DEFAULT",
            "CREATE TABLE odd PARTITION OF plants FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        ],
    ],
    ids=["name", "partitions"],
)
def test_duplicates_in_a_table_of_the_site(
    place: Place, engine: Engine, definition: list[str]
) -> None:
    """A primary key with a name of its own, or those of partitions, identify duplicates."""
    execute(engine, *definition)
    store = open_sql(place.url)
    for id in range(0, 1000, 99):
        store.add(Plant(id, "Rose"))
        with pytest.raises(PlantExists):
            store.add(Plant(id, "Lily"))
    assert store.add_all([Plant(99, "Lily"), LILY], skip_existing=True) == 1
    with pytest.raises(PlantExists):
        store.add_all([Plant(3, ""), LILY])
    store.close()


def test_duplicates_keep_the_connection(store: SQLStore) -> None:
    """A refused plant does not cost a new connection to the database."""
    opened: list[object] = []
    event.listen(store._connections.engine, "connect", lambda *_: opened.append(1))  # noqa: SLF001
    store.add(ROSE_PLANT)
    opened.clear()
    for _ in range(3):
        with pytest.raises(PlantExists):
            store.add(ROSE_PLANT)
    assert not opened


@only(postgresql)
def test_duplicate_in_a_new_partition(store: SQLStore, engine: Engine) -> None:
    """A duplicate in a partition that was added after the first use is a duplicate."""
    columns = "(id BIGINT PRIMARY KEY, name TEXT NOT NULL, tag TEXT)"
    execute(engine, "DROP TABLE plants", f"CREATE TABLE plants {columns} PARTITION BY RANGE (id)")
    store.ping()
    execute(engine, "CREATE TABLE first PARTITION OF plants FOR VALUES FROM (0) TO (10)")
    store.add(ROSE_PLANT)
    with pytest.raises(PlantExists):
        store.add(ROSE_PLANT)


@only(postgresql)
@pytest.mark.parametrize("driver", ["psycopg2", "pg8000"])
def test_duplicates_with_other_drivers(place: Place, driver: str) -> None:
    """On a site's engine with another driver, a duplicate, and only a duplicate, is PlantExists."""
    engine = create_engine(place.url.replace("psycopg", driver))
    store = SQLStore(engine)
    store.add(ROSE_PLANT)
    unique_names(engine)
    with pytest.raises(PlantExists):
        store.add(Plant(1, "Lily"))
    with pytest.raises(StoreMisconfigured, match="names"):
        store.add(Plant(2, "Rose"))
    engine.dispose()


@only(mariadb)
def test_messages_in_other_languages(store: SQLStore) -> None:
    """MariaDB's messages identify duplicates in each of its languages."""
    languages = "bg_BG zh_CN cs_CZ da_DK nl_NL et_EE fr_FR ka_GE de_DE el_GR hi_IN hu_HU it_IT"
    languages += " ja_JP ko_KR no_NO pl_PL pt_PT ro_RO ru_RU sr_RS sk_SK es_ES sv_SE uk_UA"
    messages, connect = set(), store._connections.connect  # noqa: SLF001
    store.add(ROSE_PLANT)
    for language in languages.split():
        with connect() as connection:
            connection.exec_driver_sql(f"SET lc_messages = '{language}'")
            with pytest.raises(exc.IntegrityError) as caught:
                connection.exec_driver_sql("INSERT INTO plants VALUES (1, '', NULL)")
        messages.add(str(caught.value.orig))
        with pytest.raises(PlantExists):
            store.add(ROSE_PLANT)
    assert len(messages) > 10, "the translations of MariaDB are not installed"


conflicts = pytest.mark.parametrize(
    ("place", "code"),
    [(postgresql, code) for code in ("40001", "40P01")]
    + [(mariadb, code) for code in ("1205", "1213", "1047")],
    indirect=["place"],
)


@conflicts
def test_conflicts_are_retried(store: SQLStore, engine: Engine, code: str) -> None:
    """If the database asks to retry every third insert, all adds and imports succeed."""
    raise_conflicts(engine, code, "MOD(n, 3) = 0")
    for id in range(60):
        store.add(Plant(id, "Rose"))
    assert store.add_all([Plant(id, "Lily") for id in (60, 61)]) == 2
    assert store.add_all([Plant(id, "Lily") for id in (61, 62)], skip_existing=True) == 1
    assert [plant.id for plant in store] == [*range(63)]


@conflicts
def test_conflicts_that_never_end(
    store: SQLStore, engine: Engine, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conflict that never ends is StoreUnavailable within the deadline, and stores nothing."""
    raise_conflicts(engine, code, "n > 0")
    monkeypatch.setattr(store._connections, "timeout", 1.5)  # noqa: SLF001
    with pytest.raises(StoreUnavailable, match="conflict") as caught:
        store.add(ROSE_PLANT)
    assert not isinstance(caught.value, StoreMisconfigured)
    with pytest.raises(StoreUnavailable, match="conflict"):
        store.add_all([LILY])
    assert list(store) == []
