"""The routes of the service and of a site: operations, methods, paths and hosts."""

from collections.abc import Collection
from http import HTTPMethod
from itertools import combinations, product
from typing import Any

import pytest
from flask import Flask, url_for
from flask.testing import FlaskClient

from plantstore import create_app
from plantstore.blueprint import OPERATIONS
from tests.support.responses import ALL, check_error
from tests.support.sites import BEARER, ROSE, TOKEN, make_site

ID = "X-Request-ID"
# The methods of each operation, by the path.
METHODS: dict[str, dict[str, set[str]]] = {"/plants": {}, "/plants/1": {}}
for name, operation in OPERATIONS.items():
    methods = {operation.method, *(["HEAD"] if operation.method == "GET" else [])}
    METHODS[operation.path.replace("{id}", "1")][name] = methods


@pytest.mark.parametrize(
    "operations", [names for count in range(1, len(ALL) + 1) for names in combinations(ALL, count)]
)
def test_each_operation_is_enabled_separately(operations: Collection[str]) -> None:
    """A path has the methods of its enabled operations, and without one, it does not exist."""
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": ",".join(operations)}
    client = create_app(config).test_client()
    enabled = ", ".join(f"{OPERATIONS[name].method} {OPERATIONS[name].path}" for name in operations)
    for path, methods in METHODS.items():
        served = set[str]().union(*(methods[name] for name in methods if name in operations))
        allowed = {*served, "OPTIONS"}
        expected = f"There is nothing at this path. The service has {enabled}, and the page /docs."
        if served:
            names = ", ".join(sorted(allowed))
            expected = "There is no such operation on this path."
            expected += f" The path has only the methods {names}."
            sent = client.options(path)
            assert (sent.status_code, sent.data) == (200, b"")
            assert {*sent.headers["Allow"].split(", ")} == allowed
            assert {*sent.headers.keys()} == {"Allow", "Content-Length", "Content-Type", ID}
        others = {*HTTPMethod, "PROPFIND", "FOO"} - allowed
        for method, headers in product(others, ({}, BEARER)):
            response = client.open(path, method=method, headers=headers)
            assert response.status_code == (405 if served else 404)
            assert {*response.headers.get("Allow", "OPTIONS").split(", ")} == allowed
            if method == "HEAD":
                assert response.data == b""
            else:
                assert check_error(response, 40501 if served else 40401) == expected
        for method in served - {"DELETE"}:
            status = client.open(path, method=method, headers=BEARER, json=ROSE).status_code
            assert status == (404 if path == "/plants/1" and "create" not in operations else 200)


def test_site_has_only_the_rules_of_the_operations() -> None:
    """Each operation has one rule, whose endpoint is its name; a site can build a URL for it."""
    site = make_site(Flask("site", static_folder=None), url_prefix="/garden", operations=ALL)
    rules = {rule.endpoint: rule.rule for rule in site.url_map.iter_rules()}
    urls = {"/plants": "/garden/plants", "/plants/{id}": "/garden/plants/<plantstore_id>"}
    assert rules == {f"plantstore.{name}": urls[OPERATIONS[name].path] for name in ALL}
    with site.test_request_context():
        for rule in site.url_map.iter_rules():
            values: dict[str, Any] = dict.fromkeys(rule.arguments, "x")
            url = url_for(rule.endpoint, **values)
            assert site.test_client().options(url).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/", "/plants/", "/x//plants", "/plants/x/y", "/Plants", "/plants/a%2Fb", "/static/x", "/%00"],
)
def test_not_found(path: str) -> None:
    """Every other path of the standalone service is 40401, with any method."""
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": ALL}
    client = create_app(config).test_client()
    for method, headers in product(("GET", "POST", "OPTIONS", "FOO"), ({}, BEARER)):
        check_error(client.open(path, method=method, json=ROSE, headers=headers), 40401)


def test_untrusted_host_is_refused(app: Flask) -> None:
    """In the standalone service a Host header that is not in TRUSTED_HOSTS is 40005."""
    app.config["TRUSTED_HOSTS"] = ["example.com"]
    message = check_error(app.test_client().post("/plants", headers={"Host": "hunter2"}), 40005)
    assert "hunter2" not in message


def test_websocket_handshake(client: FlaskClient) -> None:
    """In the standalone service, the handshake of a WebSocket is 40005 with every method."""
    handshake = {"Connection": "Upgrade", "Upgrade": "websocket"}
    for method in {*HTTPMethod} - {"HEAD"}:
        check_error(client.open("/plants", method=method, headers=BEARER | handshake), 40005)


def test_path_with_two_slashes(site: Flask) -> None:
    """A path that begins with two slashes, which a proxy may not recognize, is always 40401."""
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": ALL}
    client = create_app({**config, "PLANTSTORE_METRICS": 1}).test_client()
    paths = "plants", "plants/1", "healthz", "readyz", "metrics", "openapi.json", "docs"
    for slashes, path, method in product(("/%2F", "/%2f%2F"), paths, ("GET", "POST", "DELETE")):
        message = check_error(client.open(slashes + path, method=method, headers=BEARER), 40401)
        assert message == "There is nothing at this path. It begins with two slashes."
        check_error(site.test_client().post(f"{slashes}garden/plants", headers=BEARER), 40401)
