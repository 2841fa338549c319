"""The methods of a path, and paths with two slashes."""

from http import HTTPMethod
from itertools import product

import pytest
from flask import Flask
from flask.testing import FlaskClient

from plantstore import create_app
from plantstore.blueprint import OPERATIONS
from tests.support.responses import check_error
from tests.support.sites import BEARER, ROSE, TOKEN, make_site

HTML = "text/html; charset=utf-8"


def test_methods_of_other_paths(client: FlaskClient) -> None:
    """In the standalone service, Allow of a 405 has the methods of a path without operations."""
    for path in ("/healthz", "/openapi.json"):
        response = client.put(path)
        check_error(response, 40501)
        assert response.headers["Allow"] == "GET, HEAD, OPTIONS"
        assert {*client.options(path).headers["Allow"].split(", ")} == {"GET", "HEAD", "OPTIONS"}


@pytest.mark.parametrize("method", [*HTTPMethod])
def test_websocket_handshake(client: FlaskClient, method: HTTPMethod) -> None:
    """In the standalone service, the handshake of a WebSocket is 40005 with every method."""
    handshake = {"Connection": "Upgrade", "Upgrade": "websocket"}
    response = client.open("/plants", method=method, headers=BEARER | handshake)
    assert response.status_code == 400
    if method != "HEAD":
        check_error(response, 40005)


@pytest.mark.parametrize("headers", [{}, BEARER, {"Authorization": "Bearer wrong"}])
def test_options_without_credentials(client: FlaskClient, headers: dict[str, str]) -> None:
    """OPTIONS needs no credentials, and reveals nothing but Allow."""
    response = client.options("/plants", headers=headers)
    assert (response.status_code, response.data) == (200, b"")
    sent = dict(response.headers)
    assert sent.pop("X-Request-ID")
    assert {*sent.pop("Allow").split(", ")} == {"OPTIONS", "POST"}
    assert sent == {"Content-Length": "0", "Content-Type": HTML}


def test_other_methods_in_a_site(site: Flask) -> None:
    """In a site, a method that no operation has gets the 405 of the site, also with its Allow."""
    site.register_error_handler(405, lambda error: (f"only {sorted(error.valid_methods)}", 405))
    response = site.test_client().put("/garden/plants", headers=BEARER)
    assert (response.status_code, response.text) == (405, "only ['OPTIONS', 'POST']")


@pytest.mark.parametrize("before", [True, False])
def test_site_page_at_the_same_path(before: bool) -> None:
    """A page that the host site has at the same path keeps its methods, and is in Allow.

    Other methods reach the blueprint.
    """
    site = Flask("site", static_folder=None)
    if before:
        make_site(site, url_prefix="/garden")
    site.add_url_rule("/garden/plants", "page", lambda: "my plants", methods=["GET", "PUT"])
    if not before:
        make_site(site, url_prefix="/garden")
    client = site.test_client()
    assert client.get("/garden/plants").data == client.put("/garden/plants").data == b"my plants"
    assert "PUT" in client.delete("/garden/plants", headers=BEARER).headers["Allow"]
    assert client.post("/garden/plants", json=ROSE, headers=BEARER).status_code == 200


def test_other_paths_get_the_404_page_of_the_site(site: Flask) -> None:
    """A path that no operation has gets the 404 page of the host site, with every method."""
    paths = "/garden", "/garden/", "/garden/plants/", "/garden/plants/1", "/garden/plantsx"
    for path, method in product(paths, HTTPMethod):
        response = site.test_client().open(path, method=method, headers=BEARER)
        assert (response.status_code, response.content_type) == (404, HTML)


@pytest.mark.parametrize("slashes", ["/%2F", "/%2f%2F"])
def test_path_with_two_slashes(site: Flask, slashes: str) -> None:
    """A path that begins with two slashes is 40401, whatever it would be with one slash.

    A proxy that lets only some clients reach /plants would not recognize it.
    """
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": [*OPERATIONS]}
    client = create_app({**config, "PLANTSTORE_METRICS": 1}).test_client()
    paths = "plants", "plants/1", "healthz", "readyz", "metrics", "openapi.json", "docs"
    for path, method in product(paths, ("GET", "POST", "PUT", "DELETE")):
        message = check_error(client.open(slashes + path, method=method, headers=BEARER), 40401)
        assert message == "There is nothing at this path. It begins with two slashes."
    check_error(site.test_client().post(f"{slashes}garden/plants", headers=BEARER), 40401)
