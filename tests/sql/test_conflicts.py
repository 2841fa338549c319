"""Duplicates, which the error of the database itself identifies, and retries after conflicts."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, event, text

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from tests.support.databases import Place, mariadb, only, postgresql, sqlite
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import (
    COLUMNS,
    add_in_one_group,
    create_trigger,
    execute,
    open_sql,
    own_connections,
    raise_conflicts,
    statements_of,
)


def test_no_query_after_a_duplicate(store: SQLStore) -> None:
    """A duplicate is known from an insert that adds nothing, which no replica executes.

    What exists is known after that: in PostgreSQL by another insert, which also finds it, in
    MariaDB in a transaction, with a lock.
    """
    store.add(ROSE_PLANT)
    with statements_of(store) as statements:
        for _ in range(3):
            with pytest.raises(PlantExists, match="^1$"):
                store.add(Plant(1, "Lily"))
    each = {
        "sqlite": ["INSERT", "SELECT", "SELECT"],  # The first one only begins a transaction.
        "postgresql": ["INSERT", "WITH"],  # It inserts, too.
        "mysql": ["INSERT", "SET", "START", "SELECT", "COMMIT"],
    }
    assert statements == 3 * each[store._url.get_backend_name()]  # noqa: SLF001


def unique_names(engine: Engine) -> None:
    """Add a constraint to the table of plants: their names differ."""
    name = "name(50)" if engine.dialect.name == "mysql" else "name"
    execute(engine, f"CREATE UNIQUE INDEX names ON plants ({name})")


def test_other_constraint_is_not_retried(store: SQLStore, engine: Engine) -> None:
    """A plant that violates a constraint of the site is refused at once."""
    unique_names(engine)
    store.add(ROSE_PLANT)
    with (
        statements_of(store) as statements,
        pytest.raises(StoreMisconfigured, match="refuses an operation: .*name"),
    ):
        store.add(Plant(2, "Rose"))
    assert statements.count("INSERT") <= 2
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
        assert statements.count("INSERT") <= 2
    assert list(store) == [ROSE_PLANT]


@only(mariadb)
def test_same_id_in_another_table(store: SQLStore, engine: Engine) -> None:
    """If a trigger violates the primary key of another table, it is not a duplicate.

    The message of MariaDB does not name the table, and the id is the same.
    """
    execute(engine, "CREATE TABLE labels (id BIGINT PRIMARY KEY)")
    execute(engine, "INSERT INTO labels VALUES (2)")
    create_trigger(engine, "INSERT INTO labels VALUES (NEW.id)")
    with pytest.raises(StoreMisconfigured):
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
    with pytest.raises(StoreMisconfigured):
        store.add(LILY)


@only(postgresql)
@pytest.mark.parametrize(
    "definition",
    [
        [f"CREATE TABLE plants ({COLUMNS.replace('PRIMARY', 'CONSTRAINT a_name PRIMARY')})"],
        [
            f"CREATE TABLE plants ({COLUMNS}) PARTITION BY HASH (id)",
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
    event.listen(own_connections(store).engine, "connect", lambda *_: opened.append(1))
    store.add(ROSE_PLANT)
    opened.clear()
    for _ in range(3):
        with pytest.raises(PlantExists):
            store.add(ROSE_PLANT)
    assert not opened


@only(sqlite, postgresql)
def test_refused_plants_keep_the_connection(store: SQLStore, engine: Engine) -> None:
    """A plant that a constraint of the site refuses does not cost a new connection either."""
    opened: list[object] = []
    event.listen(own_connections(store).engine, "connect", lambda *_: opened.append(1))
    unique_names(engine)
    store.add(ROSE_PLANT)
    opened.clear()
    for _ in range(3):
        with pytest.raises(StoreMisconfigured):
            store.add(Plant(2, ROSE_PLANT.name))
    assert not opened


def test_add_after_a_refused_plant(store: SQLStore, engine: Engine) -> None:
    """After a plant that a constraint of the site refuses, the next add is committed."""
    unique_names(engine)
    store.add(ROSE_PLANT)
    with pytest.raises(StoreMisconfigured):
        store.add(Plant(3, ROSE_PLANT.name))
    store.add(LILY)
    with engine.connect() as other:
        assert other.execute(text("SELECT COUNT(*) FROM plants")).scalar() == 2


@pytest.mark.parametrize(
    ("place", "code"),
    [(postgresql, "40003"), (postgresql, "08006"), (mariadb, "1180")],
    indirect=["place"],
)
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
def test_duplicate_in_a_new_partition(store: SQLStore, engine: Engine) -> None:
    """A duplicate in a partition that was added after the first use is a duplicate."""
    table = f"CREATE TABLE plants ({COLUMNS}) PARTITION BY RANGE (id)"
    execute(engine, "DROP TABLE plants", table)
    store.ping()
    execute(engine, "CREATE TABLE first PARTITION OF plants FOR VALUES FROM (0) TO (10)")
    store.add(ROSE_PLANT)
    with pytest.raises(PlantExists):
        store.add(ROSE_PLANT)


@pytest.fixture(params=["psycopg2", "pg8000"])
def other_driver(request: pytest.FixtureRequest, place: Place) -> Iterator[Engine]:
    """Return the engine of a site that has another driver than plantstore's own."""
    engine = create_engine(place.url.replace("psycopg", request.param))
    yield engine
    engine.dispose()


@only(postgresql)
def test_duplicates_with_other_drivers(other_driver: Engine) -> None:
    """On a site's engine with another driver, a duplicate, and only a duplicate, is PlantExists."""
    store = SQLStore(other_driver)
    store.add(ROSE_PLANT)
    unique_names(other_driver)
    with pytest.raises(PlantExists):
        store.add(Plant(1, "Lily"))
    with pytest.raises(StoreMisconfigured, match="names"):
        store.add(Plant(2, "Rose"))


@only(postgresql)
@pytest.mark.usefixtures("store")  # It removes what raise_conflicts creates.
@pytest.mark.parametrize("code", ["40001", "40P01", "55P03"])
def test_conflicts_with_other_drivers(other_driver: Engine, code: str) -> None:
    """On a site's engine with another driver, an add is repeated after a conflict."""
    raise_conflicts(other_driver, code, "MOD(n, 2) = 1")
    store = SQLStore(other_driver)
    for id in range(3):
        store.add(Plant(id, ""))
    assert [plant.id for plant in store] == [0, 1, 2]


@only(postgresql)
@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        ("42501", StoreMisconfigured),
        ("P0001", StoreMisconfigured),
        ("0A000", StoreMisconfigured),
        ("53100", StoreUnavailable),
    ],
)
def test_refusals_with_other_drivers(
    other_driver: Engine, code: str, meaning: type[StoreUnavailable]
) -> None:
    """On a site's engine with another driver, what an operator must correct is recognised, too."""
    raise_conflicts(other_driver, code, "n > 0")
    with pytest.raises(StoreUnavailable) as caught:
        SQLStore(other_driver).add(ROSE_PLANT)
    assert type(caught.value) is meaning


conflicts = pytest.mark.parametrize(
    ("place", "code"),
    [(postgresql, code) for code in ("40001", "40P01")]
    + [(mariadb, code) for code in ("1205", "1213", "1047")],
    indirect=["place"],
)


@only(mariadb)
@pytest.mark.usefixtures("store")  # It removes what raise_conflicts creates.
def test_node_that_is_not_ready_is_left(place: Place, engine: Engine) -> None:
    """If a node of Galera is not ready, an add is repeated on a new connection, to any node."""
    opened: list[object] = []
    with open_sql(place.url) as store:
        store.add(LILY)  # Its connection has also checked the table.
        event.listen(own_connections(store).engine, "connect", lambda *_: opened.append(1))
        raise_conflicts(engine, "1047", "n < 2")
        store.add(ROSE_PLANT)
    assert len(opened) == 1


@conflicts
def test_conflicts_are_retried(store: SQLStore, engine: Engine, code: str) -> None:
    """If the database asks to retry every third insert, all adds succeed."""
    raise_conflicts(engine, code, "MOD(n, 3) = 0")
    for id in range(60):
        store.add(Plant(id, "Rose"))
    assert [plant.id for plant in store] == [*range(60)]


@conflicts
def test_conflicts_that_never_end(
    store: SQLStore, engine: Engine, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conflict that never ends is StoreUnavailable within the deadline, and stores nothing."""
    raise_conflicts(engine, code, "n > 0")
    monkeypatch.setattr(store._executor, "timeout", 1.5)  # noqa: SLF001
    with pytest.raises(StoreUnavailable, match="conflict") as caught:
        store.add(ROSE_PLANT)
    assert not isinstance(caught.value, StoreMisconfigured)
    with pytest.raises(StoreUnavailable, match=r"nothing was stored, run the import again: .*conf"):
        store.add_all([LILY])
    assert list(store) == []
