"""The standalone service: paths and methods that it does not have, and trusted hosts."""

from http import HTTPMethod
from itertools import product

import pytest
from flask import Flask
from flask.testing import FlaskClient

from plantstore import create_app
from plantstore.blueprint import OPERATIONS
from tests.support.responses import check_error
from tests.support.sites import BEARER, ROSE, TOKEN


@pytest.mark.parametrize(
    "path",
    ["/", "/plants/", "/x//plants", "/plants/x/y", "/Plants", "/plants/a%2Fb", "/static/x", "/%00"],
)
def test_not_found(path: str) -> None:
    """Every other path of the standalone service is 40401, with any method."""
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": [*OPERATIONS]}
    client = create_app(config).test_client()
    for method, headers in product(("GET", "POST", "OPTIONS", "FOO"), ({}, BEARER)):
        check_error(client.open(path, method=method, json=ROSE, headers=headers), 40401)


def test_untrusted_host_is_refused(app: Flask) -> None:
    """In the standalone service a Host header that is not in TRUSTED_HOSTS is 40005."""
    app.config["TRUSTED_HOSTS"] = ["example.com"]
    message = check_error(app.test_client().post("/plants", headers={"Host": "hunter2"}), 40005)
    assert "hunter2" not in message


@pytest.mark.parametrize("method", [*HTTPMethod])
def test_websocket_handshake(client: FlaskClient, method: HTTPMethod) -> None:
    """In the standalone service, the handshake of a WebSocket is 40005 with every method."""
    handshake = {"Connection": "Upgrade", "Upgrade": "websocket"}
    response = client.open("/plants", method=method, headers=BEARER | handshake)
    assert response.status_code == 400
    if method != "HEAD":
        check_error(response, 40005)


def test_options_without_credentials(client: FlaskClient) -> None:
    """OPTIONS needs no credentials, and reveals nothing but Allow."""
    response = client.options("/plants", headers={"Authorization": "Bearer wrong"})
    assert (response.status_code, response.data) == (200, b"")
    sent = dict(response.headers)
    assert sent.pop("X-Request-ID")
    assert {*sent.pop("Allow").split(", ")} == {"OPTIONS", "POST"}
    assert sent == {"Content-Length": "0", "Content-Type": "text/html; charset=utf-8"}


@pytest.mark.parametrize("slashes", ["/%2F", "/%2f%2F"])
def test_path_with_two_slashes(site: Flask, slashes: str) -> None:
    """A path that begins with two slashes, which a proxy may not recognize, is always 40401."""
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": [*OPERATIONS]}
    client = create_app({**config, "PLANTSTORE_METRICS": 1}).test_client()
    paths = "plants", "plants/1", "healthz", "readyz", "metrics", "openapi.json", "docs"
    for path, method in product(paths, ("GET", "POST", "PUT", "DELETE")):
        message = check_error(client.open(slashes + path, method=method, headers=BEARER), 40401)
        assert message == "There is nothing at this path. It begins with two slashes."
    check_error(site.test_client().post(f"{slashes}garden/plants", headers=BEARER), 40401)
