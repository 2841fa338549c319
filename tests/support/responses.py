"""Create requests of the test client, and the checks of their responses."""

from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from plantstore.blueprint import OPERATIONS
from plantstore.schemas import ErrorSchema
from tests.support.sites import BEARER


def create(client: FlaskClient, json: Any, **options: Any) -> TestResponse:
    """Send a create request with a token."""
    return client.post("/plants", json=json, headers=BEARER, **options)


def check_error(response: TestResponse, error: int) -> str:
    """Check that a response is the Error with this number; return its message."""
    assert response.status_code == error // 100
    assert response.headers.getlist("Content-Type") == ["application/json"]
    assert response.json is not None
    assert set(response.json) == {"error", "message"}
    assert ErrorSchema().load(response.json)["error"] == error
    message: str = response.json["message"]
    assert 0 < len(message) <= 500
    return message


def send(client: FlaskClient, body: Any, path: str = "/plants", **options: Any) -> TestResponse:
    """Send a body unchanged; the default Content-Type is application/json."""
    options.setdefault("content_type", "application/json")
    headers = BEARER | options.pop("headers", {})
    return client.post(path, data=body, headers=headers, **options)


ALL = (*OPERATIONS,)


def perform(client: FlaskClient, name: str, prefix: str = "", **options: Any) -> TestResponse:
    """Send a request for an operation with a token. If it names a plant, that has the id 1."""
    operation = OPERATIONS[name]
    path = prefix + operation.path.replace("{id}", "1")
    new = {"id": 7, "name": "Lily"}
    return client.open(path, method=operation.method, json=new, headers=BEARER, **options)


def get(client: FlaskClient, path: str, **options: Any) -> TestResponse:
    """Send a GET request with a token."""
    return client.get(path, headers=BEARER, **options)


def delete(client: FlaskClient, id: object) -> TestResponse:
    """Send a DELETE request with a token."""
    return client.delete(f"/plants/{id}", headers=BEARER)
