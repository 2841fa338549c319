"""The operation update, and stores without the method replace."""

from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import Engine, create_engine

from plantstore import MemoryStore, Plant, SQLStore, Store, StoreMisconfigured, create_app
from plantstore.testing import StoreContract
from tests.support.commands import Run
from tests.support.databases import SERVERS, Place, mariadb, only
from tests.support.installing import install
from tests.support.responses import ALL, check_error, create, get
from tests.support.sites import BEARER, LILY, ROSE, ROSE_PLANT, TOKEN, make_blueprint, make_site
from tests.support.sql import execute

# A plant with the id of ROSE_PLANT.
ROSA = Plant(1, "Rosa")
# A request with each fault of a body, in the order in which they are found.
FAULTS: dict[int, dict[str, Any]] = {
    40001: {"data": b"x" * 100_000},
    41301: {"data": b"x" * 100_000, "content_type": "application/json"},
    40002: {"data": b'{"id": 1, "name": "\xff"', "content_type": "application/json"},
    40003: {"json": {"id": 1, "name": 5, "tag": None}},
}


@pytest.fixture
def client(store: MemoryStore) -> FlaskClient:
    """Return a client of the standalone service with all operations, and with two plants."""
    store.add(ROSE_PLANT)
    store.add(LILY)
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": ALL}
    return create_app(config, store=store).test_client()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"name": "Rosa", "tag": ""}, Plant(1, "Rosa", "")),
        ({"name": "Rosa"}, ROSA),
        (ROSE, ROSE_PLANT),
        ({"id": "x", "name": "🌵", "age": 5}, Plant(1, "🌵")),
    ],
)
def test_update_replaces_the_plant(
    client: FlaskClient, store: MemoryStore, body: Any, expected: Plant
) -> None:
    """An update, also a repeated one, is 200 with the Plant; other members are ignored."""
    members = {name: value for name, value in expected.members().items() if name != "id"}
    for _ in range(2):
        response = client.put("/plants/1", json=body, headers=BEARER)
        assert (response.status_code, response.json) == (200, members)
        assert list(store) == [expected, LILY]
        assert get(client, "/plants/1").data == response.data


@only(mariadb)
def test_update_if_the_driver_of_a_site_counts_only_changes(place: Place) -> None:
    """An equal plant replaces a plant also if the site's driver counts only rows that change."""
    engine = create_engine(place.site_url, connect_args={"client_flag": 0})
    store = SQLStore(engine)
    for id in (0, -(2**63), 2**63 - 1):
        with pytest.raises(KeyError):
            store.replace(Plant(id, "x"))
        store.add(Plant(id, "x"))
        store.replace(Plant(id, "x"))
        assert store.get(id) == Plant(id, "x")
    engine.dispose()


@only(*SERVERS)
def test_update_that_a_constraint_refuses(place: Place, engine: Engine) -> None:
    """If a constraint of a site refuses an update, it is StoreMisconfigured; nothing changes."""
    store = SQLStore(engine)
    store.add(ROSE_PLANT)
    execute(engine, "ALTER TABLE plants ADD CONSTRAINT named CHECK (name <> '')")
    with pytest.raises(StoreMisconfigured):
        store.replace(Plant(1, ""))
    assert list(store) == [ROSE_PLANT]
    execute(engine, "DROP TABLE plants")


@pytest.mark.parametrize("number", FAULTS)
def test_body_of_an_update_has_the_rules_of_a_create(
    client: FlaskClient, store: MemoryStore, number: int
) -> None:
    """A wrong body of an update gets the Error of a create, also if there is no such plant."""
    expected = check_error(client.post("/plants", headers=BEARER, **FAULTS[number]), number)
    for id in (1, 3, "x"):
        response = client.put(f"/plants/{id}", headers=BEARER, **FAULTS[number])
        assert check_error(response, number) == expected
    check_error(client.put("/plants/1", **FAULTS[number]), 40101)
    assert list(store) == [ROSE_PLANT, LILY]


class Unchangeable(MemoryStore):
    """A store of a package that was written before there were updates."""

    one_process = False
    replace = Store.replace


def test_store_without_replace(store: MemoryStore) -> None:
    """A store without replace has all other operations; update is refused when it is embedded."""
    with pytest.raises(ValueError, match="^this store cannot change plants: leave out the "):
        make_blueprint(store=Unchangeable(), operations=["create", "update"])
    others = [name for name in ALL if name != "update"]
    client = make_site(store=Unchangeable(), operations=others).test_client()
    assert create(client, ROSE).status_code == 200
    with pytest.raises(NotImplementedError, match="^this store cannot change plants$"):
        Unchangeable().replace(ROSA)
    StoreContract().test_replace_changes_one_plant(Unchangeable())
    silent = type("silent", (MemoryStore,), {"replace": lambda it, plant: None})
    with pytest.raises(AssertionError):
        StoreContract().test_replace_changes_one_plant(silent())


def test_unchangeable_store_of_another_package(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service, `plantstore check` and `plantstore change` say that a store has no replace."""
    source = f"from {__name__} import Unchangeable\ndef open(url):\n    return Unchangeable()\n"
    install(monkeypatch, tmp_path, "plantstore-shelf", "shelf", source)
    monkeypatch.setenv("PLANTSTORE_TOKENS", TOKEN)
    monkeypatch.setenv("PLANTSTORE_OPERATIONS", "create update")
    fault = "PLANTSTORE_STORE: this store cannot change plants: leave out the operation update"
    assert f"error  {fault}\n" in run("check", "--store", "shelf://").stdout
    monkeypatch.setenv("PLANTSTORE_OPERATIONS", "create")
    assert "error" not in run("check", "--store", "shelf://").stdout
    result = run("change", "1", "--name", "Rosa", "--store", "shelf://")
    assert result.exit_code == 2
    assert result.stderr.endswith("\nError: this store cannot change plants.\n")
