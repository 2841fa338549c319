"""A table that changes while a store uses it: an add checks it again each minute."""

from typing import Any

import pytest
from sqlalchemy import Engine, event

from plantstore import Plant, PlantExists, SQLStore, StoreUnavailable
from plantstore.stores.deadline import Limits
from tests.support.databases import Place, mariadb, only
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import (
    COLUMNS,
    add_in_one_group,
    execute,
    open_sql,
    own_connections,
    started,
)
from tests.support.waiting import wait_until

WITHOUT_KEY = COLUMNS.replace(" PRIMARY KEY", "")
# The statements that remove the primary key: in SQLite, this is another table.
CHANGES = {
    "sqlite": ("ALTER TABLE plants RENAME TO labels", f"CREATE TABLE plants ({WITHOUT_KEY})"),
    "postgresql": ("ALTER TABLE plants DROP CONSTRAINT plants_pkey",),
    "mysql": ("ALTER TABLE plants DROP PRIMARY KEY",),
}


@pytest.mark.usefixtures("store")  # It creates the table.
def test_primary_key_that_is_removed(
    place: Place, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the primary key is removed under a store, adds fail as soon as the table is checked again.

    When the key is there again, adds succeed.
    """
    monkeypatch.setattr(Limits, "table_check", 0.5)
    with open_sql(place.url) as store:
        store.add(ROSE_PLANT)
        execute(engine, *CHANGES[engine.dialect.name])

        def is_noticed() -> bool:
            try:
                store.add(Plant(3, ""))
            except StoreUnavailable as error:
                return "primary key" in str(error)
            except PlantExists:
                pass
            return False

        wait_until(is_noticed)
        execute(engine, "DROP TABLE plants")
        store.add(LILY)
        assert list(store) == [LILY]


def test_one_add_checks_the_table(store: SQLStore) -> None:
    """When it is time to check the table again, one add does so, and the others only insert."""
    store.add(ROSE_PLANT)
    store._statements._next_check = 0.0  # noqa: SLF001
    checks, engine = list[str](), own_connections(store).engine

    def note(*arguments: Any) -> None:
        if "EXISTS (" in arguments[2]:
            checks.append(arguments[2])

    event.listen(engine, "before_cursor_execute", note)
    with started(*[lambda id=id: store.add(Plant(id, "")) for id in range(10, 18)]):
        pass
    assert len(checks) == 1
    assert len(store) == 9


@only(mariadb)
def test_group_that_is_too_large_for_the_server(place: Place, engine: Engine) -> None:
    """If a server refuses a group of adds for its size, each of them is executed alone."""
    execute(engine, "SET GLOBAL max_allowed_packet = 65536")
    try:
        with open_sql(place.url) as store:
            store.add_all([])
            plants = [Plant(id, "x" * 20_000) for id in range(10)]
            assert add_in_one_group(store, plants) == [None] * 10
            assert list(store) == plants
    finally:
        execute(engine, "SET GLOBAL max_allowed_packet = DEFAULT")
