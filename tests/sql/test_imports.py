"""Imports into SQL stores: conflicts, duplicates and faults."""

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import Engine, exc

from plantstore import Plant, PlantExists, SQLStore, StoreUnavailable
from tests.support.databases import SERVERS, Place, only
from tests.support.serving import LIMIT
from tests.support.sql import open_sql, raise_conflicts


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
            with stores[0]._connections.connect() as connection:  # noqa: SLF001
                connection.exec_driver_sql("DELETE FROM plants")
    for store in stores:
        store.close()


@only(*SERVERS)
@pytest.mark.parametrize("skip_existing", [True, False])
def test_import_restarts_after_a_deadlock(
    store: SQLStore, engine: Engine, skip_existing: bool
) -> None:
    """An import whose transaction is rolled back begins again, and stores each plant once."""
    raise_conflicts(engine, "40P01" if engine.dialect.name == "postgresql" else "1213", "n = 250")
    plants = (Plant(id, "Rose") for id in range(600))
    assert store.add_all(plants, skip_existing=skip_existing) == 600
    assert [plant.id for plant in store] == [*range(600)]


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
        added = sum(one.result() for one in adding)
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


@only(*SERVERS)
def test_no_room_for_temporary_files(
    store: SQLStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If a large import cannot write its temporary file, it adds no plant and says so."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    plants = [Plant(id, f"{id:<1000000}") for id in range(3)]
    with pytest.raises(StoreUnavailable, match="cannot use a temporary file"):
        store.add_all(plants)
    assert len(store) == 0
