"""add_some of SQL stores, and imports: conflicts, duplicates, faults, and clients beside them."""

from contextlib import suppress
from functools import partial
from itertools import count
from threading import Event

import pytest
from sqlalchemy import Engine

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from tests.support.commands import invoke
from tests.support.databases import SERVERS, Place, mariadb, only
from tests.support.sql import (
    add_in_one_group,
    create_table,
    execute,
    open_sql,
    raise_conflicts,
    started,
    statements,
)
from tests.support.waiting import wait_until


@only(*SERVERS)
def test_batch_that_is_rolled_back(store: SQLStore, engine: Engine) -> None:
    """If the server ends a batch because of another client, it is executed again."""
    raise_conflicts(engine, "40P01" if engine.dialect.name == "postgresql" else "1213", "n = 250")
    plants = [Plant(id, "Rose") for id in range(600)]
    assert store.add_some(plants) == set()
    assert list(store) == plants


def test_batch_with_a_refused_plant(store: SQLStore, engine: Engine) -> None:
    """If the database refuses a plant, its error says why, and those before it are added."""
    name = "name(9)" if engine.dialect.name == "mysql" else "name"
    execute(engine, f"CREATE UNIQUE INDEX unique_name ON plants ({name})")
    plants = [Plant(id, f"{id % 7}") for id in range(20)]
    with pytest.raises(StoreMisconfigured, match="name"):
        store.add_some(plants)
    assert list(store) == plants[:7]


@pytest.mark.parametrize("step", [1, 2], ids=["all exist", "half of them exist"])
def test_batch_of_plants_that_exist(store: SQLStore, step: int) -> None:
    """To add plants that exist, and to read them, takes a few statements for all of them."""
    plants = [Plant(id, f"plant {id}") for id in range(200)]
    store.add_some(plants[::step])
    with statements() as executed:
        existing = store.add_some(plants[::-1])
        assert existing == {plant.id for plant in plants[::step]}
        assert store.get_some([*existing, -1, 2**63]) == {it.id: it for it in plants[::step]}
    assert len(executed) <= 8
    assert list(store) == plants


@pytest.mark.usefixtures("patient")
def test_clients_beside_an_import(place: Place, store: SQLStore) -> None:
    """During an import, each create of others succeeds, also one of an id of the import."""
    is_over, added = Event(), list[Plant]()
    lines = b"".join(b'{"id":%d,"name":"imported"}\n' % id for id in range(20_000))

    def create(thread: int) -> None:
        for number in count(thread, 4):
            if is_over.wait(0.01):  # Without a pause, the import would not get the lock of a file.
                break
            for id in (-1 - number, 20_000 - 37 * (number % 500)):
                with suppress(PlantExists):
                    other.add(Plant(id, "of a client"))
                    added.append(Plant(id, "of a client"))

    with open_sql(place.url) as other, started(*[partial(create, i) for i in range(4)]) as creating:
        wait_until(lambda: bool(added))
        result = invoke("import", "-", "--store", place.url, input=lines)
        is_over.set()
    assert [call.exception() for call in creating] == [None] * 4
    assert {plant for plant in store if plant.name == "of a client"} == {*added}
    different = sum(0 <= plant.id < 20_000 for plant in added)
    assert result.exit_code == (different > 0)
    last = f"{20_000 - different} added, 0 already there, {different} different"
    assert result.stdout.splitlines()[-1] == last


@only(mariadb)
def test_plants_that_are_large_for_the_server(place: Place, engine: Engine) -> None:
    """A plant that is too large for the server is refused. Groups and batches are never too large.

    A quote and an emoji have the most bytes in a statement.
    """
    plants = [Plant(id, "🌵'" * 7_500) for id in range(40)]
    execute(engine, f"SET GLOBAL max_allowed_packet = {2**20}")
    with open_sql(place.url) as store:
        create_table(store)
        with statements() as executed:
            assert add_in_one_group(store, plants[:20]) == [None] * 20
            assert store.add_some([*plants[20:], Plant(99, "x" * 900_000)]) == set()
        assert executed.count("INSERT") == 11  # Four plants in each, and the last one.
        # The server may close the connection before the client has read the reason.
        with pytest.raises(StoreUnavailable, match="max_allowed_packet|gone away|Lost connection"):
            store.add(Plant(100, "x" * 2**20))
        store.add(Plant(100, "Rose"))
        assert len(store) == 42
    execute(engine, "SET GLOBAL max_allowed_packet = DEFAULT")
