"""add_some of SQL stores, and imports: conflicts, duplicates, faults, and clients beside them."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import Engine

from plantstore import Plant, PlantExists, SQLStore, StoreMisconfigured
from tests.support.certificates import with_certificate
from tests.support.commands import invoke
from tests.support.databases import SERVERS, Place, mariadb, only
from tests.support.sql import (
    add_in_one_group,
    call_all,
    check_refused,
    create_table,
    execute,
    open_sql,
    raise_conflicts,
    started,
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
    limit = "LENGTH(name) < 9" if engine.dialect.name != "sqlite" else ""
    if limit:
        execute(engine, f"ALTER TABLE plants ADD CONSTRAINT short CHECK ({limit})")
    else:
        execute(
            engine,
            "CREATE TRIGGER short BEFORE INSERT ON plants WHEN LENGTH(NEW.name) > 8"
            " BEGIN SELECT RAISE(ABORT, 'short'); END",
        )
    plants = [Plant(id, "x" * (8 + (id == 7))) for id in range(20)]
    with pytest.raises(StoreMisconfigured, match="short"):
        store.add_some(plants)
    assert list(store) == plants[:7]


@pytest.mark.usefixtures("patient")
def test_concurrent_batches_of_the_same_plants(place: Place, store: SQLStore) -> None:
    """Of two calls with the same ids in another order at the same time, each plant is of one."""
    added = list[Plant]()

    def add_some(used: SQLStore, name: str, step: int) -> None:
        plants = [Plant(id, name) for id in range(5000)][::step]
        existing = used.add_some(plants)
        added.extend(plant for plant in plants if plant.id not in existing)

    with open_sql(place.url) as other:
        calls = partial(add_some, store, "one", 1), partial(add_some, other, "other", -1)
        assert call_all(*calls) == [None] * 2
    assert sorted(added) == list(store)
    assert len(store) == 5000


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return the path of a file with 20,000 plants, whose ids are not negative."""
    path = tmp_path / "plants.jsonl"
    path.write_bytes(b"".join(b'{"id":%d,"name":"imported"}\n' % id for id in range(20_000)))
    return str(path)


@pytest.mark.usefixtures("patient")
def test_clients_beside_an_import(place: Place, store: SQLStore, file: str) -> None:
    """During an import, each create of others succeeds, also one of an id of the import."""
    is_over, added = Event(), list[Plant]()

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
        result = invoke("import", file, "--store", place.url)
        is_over.set()
    assert [call.exception() for call in creating] == [None] * 4
    assert {plant for plant in store if plant.name == "of a client"} == {*added}
    different = sum(0 <= plant.id < 20_000 for plant in added)
    assert result.exit_code == (different > 0)
    last = f"{20_000 - different} added, 0 already there, {different} different"
    assert result.stdout.splitlines()[-1] == last


@pytest.fixture
def small_packets(engine: Engine) -> Iterator[None]:
    """Let MariaDB refuse a statement of more than a mebibyte."""
    execute(engine, f"SET GLOBAL max_allowed_packet = {2**20}")
    yield
    execute(engine, "SET GLOBAL max_allowed_packet = DEFAULT")


@only(mariadb)
@pytest.mark.usefixtures("small_packets")
@pytest.mark.parametrize("text", ["x", "é", "'"])
def test_batch_of_more_bytes_than_a_statement_may_have(place: Place, text: str) -> None:
    """The plants of an import are as many bytes as the server accepts at a time."""
    plants = [Plant(id, text * (60_000 // len(text.encode()))) for id in range(40)]
    with open_sql(place.url) as store:
        assert store.add_some([*plants, Plant(99, "x" * 900_000)]) == set()
        assert len(store) == 41


@only(mariadb)
@pytest.mark.usefixtures("small_packets")
@pytest.mark.parametrize("call", ["add", "add_some"])
def test_group_that_is_too_large_for_the_server(place: Place, engine: Engine, call: str) -> None:
    """If a server refuses a group of adds for its size, each of them is executed alone."""
    execute(engine, "SET GLOBAL max_allowed_packet = 65536")
    plants = [Plant(id, ("x" if call == "add" else "é") * 20_000) for id in range(10)]
    with open_sql(place.url) as store:
        create_table(store)
        if call == "add":
            assert add_in_one_group(store, plants) == [None] * 10
        else:
            assert store.add_some(plants) == set()
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
            create_table(store)
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
