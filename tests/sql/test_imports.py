"""Imports into SQL stores: conflicts, duplicates and faults."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from sqlalchemy import Engine, exc

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from tests.support.databases import SERVERS, Place, mariadb, only
from tests.support.serving import LIMIT
from tests.support.sql import execute, open_sql, raise_conflicts, started
from tests.support.waiting import wait_until


@only(*SERVERS)
def test_imports_in_opposite_order(place: Place) -> None:
    """Two imports of the same plants in opposite order both succeed, and no plant is lost.

    The plants may come from a generator.
    """
    stores, start, ids = [open_sql(place.url) for _ in range(2)], Barrier(2), range(1000)

    def add_all(number: int) -> int:
        start.wait(LIMIT)
        plants = (Plant(id, f"{number}") for id in (ids, ids[::-1])[number])
        return stores[number].add_all(plants, skip_existing=True)

    with ThreadPoolExecutor(2) as threads:
        for _ in range(3):
            assert sum(threads.map(add_all, range(2))) == len(ids)
            assert [plant.id for plant in stores[0]] == [*ids]
            for id in ids:
                stores[0].remove(id)
    for store in stores:
        store.close()


@only(*SERVERS)
@pytest.mark.parametrize("skip_existing", [True, False])
def test_import_that_is_rolled_back(store: SQLStore, engine: Engine, skip_existing: bool) -> None:
    """If the server ends an import because of another client, it says that nothing is stored."""
    raise_conflicts(engine, "40P01" if engine.dialect.name == "postgresql" else "1213", "n = 250")
    plants = (Plant(id, "Rose") for id in range(600))
    with pytest.raises(StoreUnavailable, match="nothing was stored, run the import again"):
        store.add_all(plants, skip_existing=skip_existing)
    assert len(store) == 0


@only(*SERVERS)
def test_import_waits_for_another_one(
    place: Place, store: SQLStore, caplog: pytest.LogCaptureFixture
) -> None:
    """An import waits until another one has ended, however long that takes."""
    reading, other = Event(), open_sql(place.url)

    def plants() -> Iterator[Plant]:
        yield from (Plant(id, "first") for id in range(200))
        reading.set()
        wait_until(lambda: "Another import is in progress" in caplog.text)

    caplog.set_level("INFO", "plantstore")
    with started(lambda: store.add_all(plants())) as (adding,):
        assert reading.wait(LIMIT)
        assert other.add_all([Plant(7, "second"), Plant(300, "second")], skip_existing=True) == 1
    assert adding.result() == 200
    assert [plant.name for plant in other] == ["first"] * 200 + ["second"]
    other.close()


@only(*SERVERS)
def test_import_during_creates_of_the_same_ids(place: Place, store: SQLStore) -> None:
    """An import that skips existing plants succeeds while clients add the same ids."""
    other, ids, start = open_sql(place.url), range(1500), Barrier(5)

    def add(part: int) -> int:
        start.wait(LIMIT)
        added = 0
        for id in ids[part::4]:
            try:
                other.add(Plant(id, "of a client"))
                added += 1
            except PlantExists:
                pass
        return added

    with ThreadPoolExecutor(4) as threads:
        adding = [threads.submit(add, part) for part in range(4)]
        start.wait(LIMIT)
        imported = store.add_all((Plant(id, "imported") for id in ids[::-1]), skip_existing=True)
        added = sum(call.result() for call in adding)
    names = [plant.name for plant in store]
    assert len(names) == len(ids)
    assert (names.count("imported"), names.count("of a client")) == (imported, added)
    other.close()


class LookAlike(StoreUnavailable):
    """An error of another store, which has failed because of a conflict in its database."""


@pytest.mark.parametrize("skip_existing", [False, True])
@pytest.mark.parametrize("kind", ["conflict", "duplicate", "unavailable"])
def test_error_of_the_source_of_an_import(store: SQLStore, kind: str, skip_existing: bool) -> None:
    """If the plants come from a database that fails, no plant is added, and its error is raised."""
    driver_error = Exception(1213, "Deadlock found")
    driver_error.sqlstate = "40001"  # type: ignore[attr-defined]
    conflict = exc.OperationalError("SELECT", {}, driver_error)
    unavailable = LookAlike("Deadlock found")
    unavailable.__cause__ = conflict
    duplicate = exc.IntegrityError("INSERT", {}, Exception(1062, "entry '1' for key 'PRIMARY'"))
    error = {"conflict": conflict, "duplicate": duplicate, "unavailable": unavailable}[kind]

    def plants() -> Iterator[Plant]:
        yield from (Plant(id, "") for id in range(250))
        raise error

    with pytest.raises(type(error)) as caught:
        store.add_all(plants(), skip_existing=skip_existing)
    assert caught.value is error
    assert len(store) == 0


@pytest.fixture
def small_packets(engine: Engine) -> Iterator[None]:
    """Let MariaDB refuse a statement of more than a mebibyte."""
    setting = "SET GLOBAL max_allowed_packet ="
    execute(engine, f"{setting} {2**20}")
    yield
    execute(engine, f"{setting} {2**24}")


@only(mariadb)
@pytest.mark.usefixtures("small_packets")
@pytest.mark.parametrize("text", ["x", "é", "'"])
def test_import_of_more_bytes_than_a_statement_may_have(place: Place, text: str) -> None:
    """The plants of an import are as many bytes as the server accepts at a time."""
    with open_sql(place.url) as store:
        plants = [Plant(id, text * (60_000 // len(text.encode()))) for id in range(40)]
        assert store.add_all([*plants, Plant(99, "x" * 900_000)]) == 41
        assert len(store) == 41


@only(mariadb)
@pytest.mark.usefixtures("small_packets")
def test_adds_of_more_bytes_than_a_statement_may_have(place: Place) -> None:
    """If the adds of a group have too many bytes together, each of them succeeds alone."""
    with open_sql(place.url) as store:
        store.add_all([])
        adds = [lambda id=id: store.add(Plant(id, "é" * 30_000)) for id in range(60)]
        with started(*adds) as adding:
            pass
        assert [add.exception() for add in adding] == [None] * 60


@only(mariadb)
@pytest.mark.usefixtures("small_packets")
@pytest.mark.parametrize("size", [2**20, 20_000_000])
def test_plant_of_more_bytes_than_a_statement_may_have(place: Place, size: int) -> None:
    """A plant that is larger than a statement may be is StoreMisconfigured. Others are added."""
    with open_sql(place.url) as store:
        plant = Plant(1, "x" * size)
        for add in (store.add, lambda plant: store.add_all([plant])):
            with pytest.raises(StoreMisconfigured, match="max_allowed_packet"):
                add(plant)
        store.add(Plant(2, "Rose"))


@only(mariadb)
def test_plant_of_many_bytes(place: Place) -> None:
    """A plant of some megabytes is stored, if a statement may have as many bytes."""
    with open_sql(place.url) as store:
        plant = Plant(1, "x" * 5_000_000)
        store.add(plant)
        assert store.get(1) == plant
