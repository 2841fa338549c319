"""Blueprints in a site, and the choice of the operations that are served."""

from collections.abc import Collection
from itertools import combinations, product

import pytest
from flask import Flask
from flask.testing import FlaskClient

from plantstore import MemoryStore, Plant, SettingsError, StaticTokens, create_app
from tests.support.host_sites import REQUESTS
from tests.support.responses import ALL, check_error, create, delete, get
from tests.support.sites import BEARER, ROSE, ROSE_PLANT, TOKEN, make_site


def test_several_blueprints_in_one_site() -> None:
    """Blueprints in one host site have separate stores and tokens."""
    site, stores = Flask("site"), {"herbs": MemoryStore(), "trees": MemoryStore()}
    for name, store in stores.items():
        verify_token = StaticTokens({name: f"client of {name}"})
        make_site(site, store=store, verify_token=verify_token, name=name, url_prefix=f"/{name}")
    client = site.test_client()
    for prefix, token in product(stores, stores):
        headers = {"Authorization": f"Bearer {token}"}
        response = client.post(f"/{prefix}/plants", json=ROSE, headers=headers)
        assert response.status_code == (200 if token == prefix else 401)
    for store in stores.values():
        assert list(store) == [ROSE_PLANT]


def test_site_shares_the_store_with_its_clients(site: Flask, store: MemoryStore) -> None:
    """The host site reads what clients added, and clients cannot replace what it added."""
    client = site.test_client()
    store.add(Plant(2, "Iris"))
    check_error(client.open(**{**REQUESTS[200], "json": {"id": 2, "name": "Rose"}}), 40004)
    assert client.open(**REQUESTS[200]).status_code == 200
    assert [plant.name for plant in store] == ["Rose", "Iris"]
    assert store.get(1) == ROSE_PLANT


# The methods of each operation, by the path.
METHODS = {
    "/plants": {"create": {"POST"}, "list": {"GET", "HEAD"}},
    "/plants/1": {"read": {"GET", "HEAD"}, "update": {"PUT"}, "delete": {"DELETE"}},
}


@pytest.fixture
def client(store: MemoryStore) -> FlaskClient:
    """Return a client of the standalone service with all operations."""
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": ALL}
    return create_app(config, store=store).test_client()


@pytest.mark.parametrize(
    "operations", [names for count in range(1, len(ALL) + 1) for names in combinations(ALL, count)]
)
def test_each_operation_is_enabled_separately(operations: Collection[str]) -> None:
    """A path has the methods of the enabled operations; 405 and Allow name them.

    Without an operation, a path does not exist.
    """
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": ",".join(operations)}
    client = create_app(config).test_client()
    for path, methods in METHODS.items():
        served = set[str]().union(*(methods[name] for name in methods if name in operations))
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "FOO"} - served:
            response = client.open(path, method=method, headers=BEARER)
            assert response.status_code == (405 if served else 404)
            if served:
                allow = ", ".join(sorted({*served, "OPTIONS"}))
                assert response.headers["Allow"] == allow
                preflight = client.options(path)
                assert preflight.status_code == 200
                assert {*preflight.headers["Allow"].split(", ")} == {*served, "OPTIONS"}
            if method != "HEAD":
                message = check_error(response, 40501 if served else 40401)
                assert served or ("POST /plants" in message) == ("create" in operations)
        for method in served - {"DELETE"}:
            status = client.open(path, method=method, headers=BEARER, json=ROSE).status_code
            assert status == (404 if path == "/plants/1" and "create" not in operations else 200)


def test_only_create_by_default(app: Flask) -> None:
    """By default, the service and the blueprint have only the operation of interface 1.0.0."""
    site = make_site()
    for client in (app.test_client(), site.test_client()):
        assert create(client, ROSE).status_code == 200
        assert get(client, "/plants").status_code == 405
        assert get(client, "/plants/1").status_code == delete(client, 1).status_code == 404


@pytest.mark.parametrize("value", ["", " , ", "change", "create,Read", "create;read", [], None, 1])
def test_unknown_operation_is_refused_at_start(value: object) -> None:
    """A setting with an unknown operation, or with none, is refused. The message lists them all."""
    with pytest.raises(SettingsError) as caught:
        create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": value})
    assert str(caught.value) == (
        "PLANTSTORE_OPERATIONS: must have one or more of create, read, list, update, delete,"
        " and nothing else"
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/plants"),
        ("GET", "/plants"),
        ("GET", "/plants?limit=0"),
        ("GET", "/plants/1"),
        ("HEAD", "/plants/1"),
        ("GET", "/plants/x"),
        ("PUT", "/plants/1"),
        ("DELETE", "/plants/1"),
    ],
)
def test_credentials_are_checked_first(client: FlaskClient, path: str, method: str) -> None:
    """Without a token, no operation says whether a plant exists or a parameter is valid."""
    response = client.open(path, method=method)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Bearer realm="plantstore"'
