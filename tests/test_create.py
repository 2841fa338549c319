"""POST /plants: interface sections 2 and 4."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from flask import Flask
from flask.testing import FlaskClient

from plantstore import MemoryStore, Plant
from plantstore.schemas import NewPlantSchema, PlantSchema, error_schema, plant_schema
from tests.support.responses import check_error, create
from tests.support.sites import BEARER


@pytest.mark.parametrize("plant", [{"name": "Monstera"}, {"name": "Monstera", "tag": "indoor"}])
def test_create_returns_the_plant(client: FlaskClient, plant: dict[str, str]) -> None:
    """An accepted request has the response 200 with the Plant in JSON, without its id."""
    response = create(client, {"id": 1, **plant})
    assert (response.status_code, response.json) == (200, plant)
    assert response.content_type == "application/json"


def test_unknown_members_are_ignored(site: Flask, store: MemoryStore) -> None:
    """Unknown members are accepted and ignored."""
    new = {"id": 1, "name": "Monstera", "color": "green", "Name": 7, "": None}
    response = site.test_client().post("/garden/plants", json=new, headers=BEARER)
    assert (response.status_code, response.json) == (200, {"name": "Monstera"})
    assert list(store) == [Plant(1, "Monstera")]


@pytest.mark.parametrize(
    "text", ["", " ", "ü", "🌵", "\u2028", "\x01\x7f", "\ufffe", "a" * 30_000, "</script>", '"\\']
)
def test_text_is_returned_unchanged(site: Flask, store: MemoryStore, text: str) -> None:
    """Any text of any length, also the empty one, is stored and returned unchanged."""
    new = {"id": 1, "name": text, "tag": text}
    response = site.test_client().post("/garden/plants", json=new, headers=BEARER)
    assert (response.status_code, response.json) == (200, {"name": text, "tag": text})
    assert store.get(1) == Plant(1, text, text)


def test_response_is_unescaped_utf_8(client: FlaskClient) -> None:
    """Characters outside ASCII are UTF-8 in the response, without escapes."""
    response = create(client, {"id": 1, "name": "Efeutüte 🌿"})
    assert response.data == '{"name":"Efeutüte 🌿"}'.encode()


def test_duplicate_id_is_refused(site: Flask, store: MemoryStore) -> None:
    """A second plant with the same id is refused with 40004; the stored plant is unchanged."""
    client = site.test_client()
    first = {"id": 1, "name": "Monstera", "tag": "indoor"}
    assert client.post("/garden/plants", json=first, headers=BEARER).status_code == 200
    for second in (first, {"id": 1, "name": "Rose"}, {"id": 1.0, "name": "Rose"}):
        check_error(client.post("/garden/plants", json=second, headers=BEARER), 40004)
    assert list(store) == [Plant(1, "Monstera", "indoor")]


def test_concurrent_duplicates_are_acknowledged_once(site: Flask, store: MemoryStore) -> None:
    """When 32 clients create the same 100 ids, each id is acknowledged once."""
    start = Barrier(32)

    def client(number: int) -> Iterator[tuple[int, str]]:
        client, name = site.test_client(), f"plant of client {number}"
        start.wait()
        for id in range(100):
            new = {"id": id, "name": name}
            response = client.post("/garden/plants", json=new, headers=BEARER)
            if response.status_code == 200:
                yield id, name
            else:
                check_error(response, 40004)

    with ThreadPoolExecutor(32) as clients:
        created = sorted(
            win for wins in clients.map(lambda n: list(client(n)), range(32)) for win in wins
        )
    assert created == [(plant.id, plant.name) for plant in store]
    assert len(created) == 100


def test_plant_schema_omits_id_and_missing_tag() -> None:
    """The Plant schema omits the id and a missing tag, for a dict and for a Plant."""
    for plant in (Plant(1, "Monstera"), {"id": 1, "name": "Monstera", "tag": None}):
        assert plant_schema.dump(plant) == {"name": "Monstera"}


def test_schema_fields_match_the_interface() -> None:
    """Plant and NewPlant have the fields, and the required fields, of interface section 2."""
    for schema, names, required in (
        (PlantSchema(), {"name", "tag"}, {"name"}),
        (NewPlantSchema(), {"id", "name", "tag"}, {"id", "name"}),
    ):
        assert set(schema.fields) == names
        assert {name for name, field in schema.fields.items() if field.required} == required


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, "40001", 1.5, None])
def test_error_schema_requires_int32_and_message(number: object) -> None:
    """The Error schema accepts a number within int32 and a message, and nothing else."""
    assert error_schema.validate({"error": 40001, "message": "no"}) == {}
    assert {*error_schema.validate({"error": number})} == {"error", "message"}
