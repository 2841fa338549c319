"""POST /plants: the operation of the interface 1.0.0."""

import json
from typing import Any

import pytest
from flask.testing import FlaskClient

from plantstore import MemoryStore, Plant
from plantstore.schemas import plant_schema
from tests.support.responses import check_error, create
from tests.support.sites import make_site


@pytest.fixture
def client(store: MemoryStore) -> FlaskClient:
    """Return a client of a site that embeds the store."""
    return make_site(store=store).test_client()


@pytest.mark.parametrize(
    "more", [{}, {"tag": "indoor"}, {"tag": ""}, {"color": "green", "Name": 7, "": None}]
)
def test_create_returns_the_plant(client: FlaskClient, store: MemoryStore, more: Any) -> None:
    """An accepted request is 200 with the Plant, without its id; unknown members are ignored."""
    response = create(client, {"id": 1, "name": "Monstera", **more})
    tag = {"tag": more["tag"]} if "tag" in more else {}
    assert (response.status_code, response.json) == (200, {"name": "Monstera", **tag})
    assert response.content_type == "application/json"
    assert list(store) == [Plant(1, "Monstera", more.get("tag"))]


@pytest.mark.parametrize(
    "text", ["", " ", "ü", "🌵", "\u2028", "\x01\x7f", "\ufffe", "a" * 30_000, "</script>", '"\\']
)
def test_text_is_returned_unchanged(client: FlaskClient, store: MemoryStore, text: str) -> None:
    """Any text of any length is stored and returned unchanged, in UTF-8 without escapes."""
    response = create(client, {"id": 1, "name": text, "tag": text})
    expected = json.dumps({"name": text, "tag": text}, ensure_ascii=False, separators=(",", ":"))
    assert (response.status_code, response.data.decode()) == (200, expected)
    assert store.get(1) == Plant(1, text, text)


def test_duplicate_id_is_refused(client: FlaskClient, store: MemoryStore) -> None:
    """A second plant with the same id is refused with 40004; the stored plant is unchanged."""
    first = {"id": 1, "name": "Monstera", "tag": "indoor"}
    assert create(client, first).status_code == 200
    for second in (first, {"id": 1, "name": "Rose"}, {"id": 1.0, "name": "Rose"}):
        check_error(create(client, second), 40004)
    assert list(store) == [Plant(1, "Monstera", "indoor")]


def test_plant_schema_omits_id_and_missing_tag() -> None:
    """The Plant schema omits the id and a missing tag, for a dict and for a Plant."""
    for plant in (Plant(1, "Monstera"), {"id": 1, "name": "Monstera", "tag": None}):
        assert plant_schema.dump(plant) == {"name": "Monstera"}
