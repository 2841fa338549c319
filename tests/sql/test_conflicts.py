"""Duplicates, which the error of the database itself identifies, and retries after conflicts."""

from contextlib import nullcontext

import pytest
from sqlalchemy import Engine, create_engine

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.databases import Place, mariadb, only, postgresql
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import (
    Listen,
    add_in_one_group,
    execute,
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


conflicts = pytest.mark.parametrize(
    ("place", "code"),
    [(postgresql, code) for code in ("40001", "40P01")]
    + [(mariadb, code) for code in ("1205", "1213", "1047")],
    indirect=["place"],
)


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
