"""Imports into SQL stores: conflicts, duplicates and faults."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import Engine, exc

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured, StoreUnavailable
from tests.support.certificates import with_certificate
from tests.support.databases import SERVERS, Place, mariadb, only
from tests.support.serving import LIMIT
from tests.support.sql import (
    add_in_one_group,
    call_all,
    check_refused,
    execute,
    open_sql,
    raise_conflicts,
    started,
)
from tests.support.waiting import wait_until


@only(*SERVERS)
@pytest.mark.parametrize("skip_existing", [True, False])
def test_import_that_is_rolled_back(store: SQLStore, engine: Engine, skip_existing: bool) -> None:
    """If the server ends an import because of another client, nothing is stored."""
    raise_conflicts(engine, "40P01" if engine.dialect.name == "postgresql" else "1213", "n = 250")
    plants = (Plant(id, "Rose") for id in range(600))
    with pytest.raises(StoreUnavailable):
        store.add_all(plants, skip_existing=skip_existing)
    assert len(store) == 0


@only(*SERVERS)
def test_import_waits_for_another_one(
    place: Place, store: SQLStore, caplog: pytest.LogCaptureFixture
) -> None:
    """An import waits until another one has ended, however long that takes."""
    reading = Event()

    def plants() -> Iterator[Plant]:
        yield from (Plant(id, "first") for id in range(200))
        reading.set()
        wait_until(lambda: "Another import is in progress" in caplog.text)

    caplog.set_level("INFO", "plantstore")
    with open_sql(place.url) as other, started(lambda: store.add_all(plants())) as (adding,):
        assert reading.wait(LIMIT)
        second = [Plant(7, "second"), Plant(300, "second")]
        assert other.add_all(second, skip_existing=True) == 1
    assert adding.result() == 200
    assert [plant.name for plant in store] == ["first"] * 200 + ["second"]


def test_imports_of_the_same_plants(place: Place, store: SQLStore) -> None:
    """Of several imports of the same ids at the same time, one is stored, and nothing of others."""
    stores = [open_sql(place.url) for _ in range(3)]
    plants = [[Plant(id, f"{number}") for id in range(300)] for number in range(3)]
    calls = [partial(it.add_all, new) for it, new in zip(stores, plants, strict=True)]
    outcomes = call_all(*calls)
    assert outcomes.count(None) == 1
    assert {type(error) for error in outcomes if error} == {PlantExists}
    assert list(store) == plants[outcomes.index(None)]
    for used in stores:
        used.close()


@only(*SERVERS)
def test_import_during_creates_of_the_same_ids(place: Place, store: SQLStore) -> None:
    """An import that skips existing plants succeeds while clients add the same ids."""
    ids, added = range(1500), set[int]()

    def add(part: int) -> None:
        for id in ids[part::4]:
            with suppress(PlantExists):
                other.add(Plant(id, "of a client"))
                added.add(id)

    def add_all() -> None:
        store.add_all((Plant(id, "imported") for id in ids[::-1]), skip_existing=True)

    with open_sql(place.url) as other:
        assert call_all(add_all, *[partial(add, part) for part in range(4)]) == [None] * 5
    assert [plant.id for plant in store] == [*ids]
    assert {plant.id for plant in store if plant.name == "of a client"} == added


def errors_of_a_source() -> dict[str, Exception]:
    """Return errors of another database, which look as if they came from the store's own."""
    driver_error = Exception(1213, "Deadlock found")
    driver_error.sqlstate = "40001"  # type: ignore[attr-defined]
    conflict = exc.OperationalError("SELECT", {}, driver_error)
    unavailable = StoreUnavailable("Deadlock found")
    unavailable.__cause__ = conflict
    duplicate = exc.IntegrityError("INSERT", {}, Exception(1062, "entry '1' for key 'PRIMARY'"))
    return {"conflict": conflict, "duplicate": duplicate, "unavailable": unavailable}


@pytest.mark.parametrize("skip_existing", [False, True])
@pytest.mark.parametrize("kind", errors_of_a_source())
def test_error_of_the_source_of_an_import(store: SQLStore, kind: str, skip_existing: bool) -> None:
    """If the plants come from a database that fails, no plant is added, and its error is raised."""
    error = errors_of_a_source()[kind]

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
    execute(engine, f"SET GLOBAL max_allowed_packet = {2**20}")
    yield
    execute(engine, "SET GLOBAL max_allowed_packet = DEFAULT")


@only(mariadb)
@pytest.mark.usefixtures("small_packets")
@pytest.mark.parametrize("text", ["x", "é", "'"])
def test_import_of_more_bytes_than_a_statement_may_have(place: Place, text: str) -> None:
    """The plants of an import are as many bytes as the server accepts at a time."""
    plants = [Plant(id, text * (60_000 // len(text.encode()))) for id in range(40)]
    with open_sql(place.url) as store:
        assert store.add_all([*plants, Plant(99, "x" * 900_000)]) == 41


@only(mariadb)
@pytest.mark.usefixtures("small_packets")
def test_group_that_is_too_large_for_the_server(place: Place, engine: Engine) -> None:
    """If a server refuses a group of adds for its size, each of them is executed alone."""
    execute(engine, "SET GLOBAL max_allowed_packet = 65536")
    plants = [Plant(id, "x" * 20_000) for id in range(10)]
    with open_sql(place.url) as store:
        store.add_all([])
        assert add_in_one_group(store, plants) == [None] * 10
        assert list(store) == plants


@pytest.mark.database
@pytest.mark.mariadb
def test_group_that_is_too_large_for_a_server_with_tls() -> None:
    """With TLS, too, a group that is too large for the server is split."""
    with mariadb() as place:
        folder = Path(place.server.options["cwd"])
        with_certificate(folder)
        with place.server.stopped():
            tls = [f"--ssl-cert={folder}/cert.pem", f"--ssl-key={folder}/key.pem"]
            place.server.command += [*tls, "--max-allowed-packet=65536"]
        plants = [Plant(id, "x" * 20_000) for id in range(40)]
        url = f"{place.url}?ssl_ca={folder}/cert.pem&ssl_check_hostname=false"
        with open_sql(url) as store:
            store.add_all([])
            for start in range(0, 40, 10):
                assert add_in_one_group(store, plants[start : start + 10]) == [None] * 10
            assert list(store) == plants


@only(mariadb)
@pytest.mark.usefixtures("small_packets")
@pytest.mark.parametrize(("text", "size"), [("é", 600_000), ("x", 2**20), ("x", 20_000_000)])
def test_plant_of_more_bytes_than_a_statement_may_have(place: Place, text: str, size: int) -> None:
    """A plant that is larger than a statement may be is StoreMisconfigured. Others are added."""
    with open_sql(place.url) as store:
        large = Plant(1, text * size)
        check_refused(store, StoreMisconfigured, "max_allowed_packet", large)
        store.add(Plant(2, "Rose"))
