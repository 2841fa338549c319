"""The methods of a path, and paths with two slashes."""

from http import HTTPMethod
from typing import Any

import pytest
from flask import Flask, url_for
from flask.testing import FlaskClient

from plantstore import MemoryStore, create_app, create_docs_blueprint, create_health_blueprint
from plantstore.blueprint import OPERATIONS
from tests.support.responses import check_error
from tests.support.sites import BEARER, TOKEN, make_blueprint

HTML = "text/html; charset=utf-8"
OTHER_METHODS = [*sorted({*HTTPMethod} - {HTTPMethod.OPTIONS, HTTPMethod.POST}), "PROPFIND", "FOO"]


@pytest.mark.parametrize("headers", [{}, BEARER])
@pytest.mark.parametrize("method", OTHER_METHODS)
def test_method_not_allowed(client: FlaskClient, method: str, headers: dict[str, str]) -> None:
    """In the standalone service, any other method is 40501; Allow and message name the methods."""
    response = client.open("/plants", method=method, headers=headers)
    assert response.headers["Allow"] == "OPTIONS, POST"
    if method == "HEAD":
        assert (response.status_code, response.data) == (405, b"")
    else:
        message = "There is no such operation on this path. The path has only the methods"
        assert check_error(response, 40501) == f"{message} OPTIONS, POST."


def test_methods_of_every_path() -> None:
    """In the standalone service, Allow of a 405 has the methods of all operations of the path."""
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": [*OPERATIONS]}
    client = create_app(config).test_client()
    for path, allow in (
        ("/plants", "GET, HEAD, OPTIONS, POST"),
        ("/plants/1", "DELETE, GET, HEAD, OPTIONS, PUT"),
        ("/healthz", "GET, HEAD, OPTIONS"),
        ("/openapi.json", "GET, HEAD, OPTIONS"),
    ):
        response = client.patch(path)
        check_error(response, 40501)
        assert response.headers["Allow"] == allow
        assert {*client.options(path).headers["Allow"].split(", ")} == {*allow.split(", ")}


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
    site.register_error_handler(405, lambda error: (f"only {error.valid_methods}", 405))
    response = site.test_client().put("/garden/plants", headers=BEARER)
    assert response.status_code == 405
    assert {*response.text.removeprefix("only ").strip("[]").split(", ")} == {"'OPTIONS'", "'POST'"}


def test_site_page_keeps_its_methods(site: Flask) -> None:
    """A page that the host site has at the same path keeps its methods, and is in Allow."""
    site.add_url_rule("/garden/plants", "page", lambda: "my plants", methods=["GET", "PUT"])
    client = site.test_client()
    assert client.put("/garden/plants").data == b"my plants"
    assert "PUT" in client.delete("/garden/plants", headers=BEARER).headers["Allow"]


def test_site_has_only_the_rules_of_the_operations() -> None:
    """The blueprint has one rule for each operation, whose endpoint is the operation's name."""
    site = Flask("site", static_folder=None)
    site.register_blueprint(make_blueprint(operations=[*OPERATIONS]), url_prefix="/garden")
    assert {(rule.endpoint, rule.rule) for rule in site.url_map.iter_rules()} == {
        ("plantstore.create", "/garden/plants"),
        ("plantstore.read", "/garden/plants/<plantstore_id>"),
        ("plantstore.list", "/garden/plants"),
        ("plantstore.update", "/garden/plants/<plantstore_id>"),
        ("plantstore.delete", "/garden/plants/<plantstore_id>"),
    }


def test_other_paths_get_the_404_page_of_the_site(site: Flask) -> None:
    """A path that no operation has gets the 404 page of the host site, with every method."""
    for path in ("/garden", "/garden/", "/garden/plants/", "/garden/plants/x/y", "/garden/plantsx"):
        for method in HTTPMethod:
            response = site.test_client().open(path, method=method, headers=BEARER)
            assert (response.status_code, response.content_type) == (404, HTML)


def test_url_of_every_rule(site: Flask) -> None:
    """A host site can build a URL for each of its rules, such as for a list of its pages."""
    site.register_blueprint(create_health_blueprint(store=MemoryStore()))
    site.register_blueprint(create_docs_blueprint(), url_prefix="/garden")
    site.register_blueprint(make_blueprint(name="all", operations=[*OPERATIONS]), url_prefix="/all")
    with site.test_request_context():
        for rule in site.url_map.iter_rules():
            values: dict[str, Any] = dict.fromkeys(rule.arguments, "x")
            url = url_for(rule.endpoint, **values)
            assert site.test_client().options(url).status_code == 200


@pytest.mark.parametrize("slashes", ["/%2F", "/%2f%2F"])
def test_path_with_two_slashes(site: Flask, slashes: str) -> None:
    """A path that begins with two slashes is 40401, whatever it would be with one slash.

    A proxy that lets only some clients reach /plants would not recognize it.
    """
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": [*OPERATIONS]}
    client = create_app({**config, "PLANTSTORE_METRICS": 1}).test_client()
    for path in ("plants", "plants/1", "healthz", "readyz", "metrics", "openapi.json", "docs"):
        for method in ("GET", "POST", "PUT", "DELETE"):
            message = check_error(client.open(slashes + path, method=method, headers=BEARER), 40401)
            assert message == "There is nothing at this path. It begins with two slashes."
    garden = site.test_client().post(f"{slashes}garden/plants", headers=BEARER)
    check_error(garden, 40401)
