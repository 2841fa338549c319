"""The tests of the nursery: run pytest in this folder."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from app import create_app, db, plants
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from plantstore import Plant


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flask]:
    """Return a nursery with an empty database."""
    monkeypatch.setenv("NURSERY_PASSWORD", "green-thumb")
    monkeypatch.setenv("NURSERY_TOKEN", "s3cret")
    monkeypatch.setenv("NURSERY_SQLALCHEMY_DATABASE_URI", f"sqlite:///{tmp_path}/test.db")
    app = create_app()
    yield app
    with app.app_context():
        plants().close()
        db.engine.dispose()


def submit(client: FlaskClient, page: str, **form: str) -> TestResponse:
    """Submit the form of a page, which has a token against CSRF."""
    found = re.search('name="csrf_token".*? value="(.*?)"', client.get(page).text)
    assert found is not None
    return client.post(page, data=form | {"csrf_token": found[1]}, follow_redirects=True)


def test_supplier_sends_a_plant(app: Flask) -> None:
    """A plant that a supplier sends is on the page, with the name of the supplier."""
    client = app.test_client()
    headers = {"Authorization": "Bearer s3cret"}
    response = client.post("/api/plants", json={"id": 1, "name": "Rose"}, headers=headers)
    assert response.json == {"name": "Rose"}
    page = client.get("/").text
    assert "Rose" in page
    assert "from the greenhouse" in page


def test_gardener_adds_a_plant(app: Flask) -> None:
    """A gardener who has logged in adds a plant with the form."""
    client = app.test_client()
    submit(client, "/login", name="flora", password="green-thumb")
    page = submit(client, "/", id="2", name="Lily", tag="").text
    assert "Lily is in stock." in page
    with app.app_context():
        assert list(plants()) == [Plant(2, "Lily")]
