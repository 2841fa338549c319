"""The OpenAPI document and its page: what they say, and where they are served."""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from flask import Blueprint, Flask
from flask.testing import FlaskClient
from marshmallow import Schema, fields

from plantstore import create_app, create_docs_blueprint
from plantstore.blueprint import OPERATIONS
from plantstore.errors import ERRORS
from plantstore.openapi.document import make_document
from plantstore.schemas import ErrorSchema, Int64, NewPlantSchema, PlantSchema
from tests.support.commands import Run
from tests.support.responses import ALL, check_error
from tests.support.sites import BEARER, TOKEN, documented_site, make_blueprint, make_site

# The SHA-256 digest of the document of interface 1.0.0, in UTF-8 and without white space.
INTERFACE = "4f9d826099af7019c8c5b6d2bdc68374f7f0be44f7dc568a0b7d0dc4450f6816"
FILES = ["docs.css", "docs.js", "icon.svg", "swagger-ui.css", "swagger-ui-bundle.js"]
# A request for each error whose message depends on the request.
VARIABLE: dict[int, dict[str, Any]] = {
    40002: {"method": "POST", "data": b"", "content_type": "application/json"},
    40003: {"method": "POST", "json": {"id": 1}},
    40006: {"query_string": "limit=0"},
}
# The errors of all operations, and those of each.
COMMON = {40005, 40101, 40102, 40301, 40501, 50001, 50301, 50302, 50303, 50304}
ERRORS_OF = {
    "createPlant": {40001, 40002, 40003, 40004, 41301},
    "listPlants": {40006},
    "readPlant": {40402},
    "updatePlant": {40001, 40002, 40003, 40402, 41301},
    "deletePlant": {40402},
}
# The types of the fields of marshmallow in OpenAPI.
TYPES: "dict[type[fields.Field[Any]], dict[str, Any]]" = {
    Int64: {"type": "integer", "format": "int64", "minimum": -(2**63), "maximum": 2**63 - 1},
    fields.Integer: {"type": "integer", "format": "int32"},
    fields.String: {"type": "string"},
}


def resolve(document: Any, value: Any) -> Any:
    """Return a part of a document with every reference replaced by what it refers to."""
    if isinstance(value, list):
        return [resolve(document, item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" not in value:
        return {name: resolve(document, member) for name, member in value.items()}
    target = document
    for name in value["$ref"].removeprefix("#/").split("/"):
        target = target[name]
    return resolve(document, target)


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the path, the method and the description of each operation of a document."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method.upper(), resolve(document, operation)


@pytest.mark.parametrize("count", range(1, len(ALL) + 1))
def test_document_describes_the_enabled_operations(count: int) -> None:
    """The document describes the enabled operations only; interface 1.0.0 has just create.

    It has no link to another operation, no component that is not used, and no empty object.
    """
    for names in combinations(ALL, count):
        document = make_document(names)
        described = {(path, method): operation for path, method, operation in operations(document)}
        assert {*described} == {(OPERATIONS[name].path, OPERATIONS[name].method) for name in names}
        assert document["info"]["version"] == ("1.0.0" if names == ("create",) else "1.1.0")
        assert document["openapi"] == "3.1.0"
        assert document["info"]["license"]["identifier"] == "MIT"
        assert document["servers"] == [{"url": "."}]
        ids = {operation["operationId"] for operation in described.values()}
        assert ids == {f"{name}Plant{'s' * (name == 'list')}" for name in names}
        for operation in described.values():
            links = operation["responses"].get("200", {}).get("links", {})
            assert {link["operationId"] for link in links.values()} <= ids
        components = document["components"]
        defined = {f"{kind}/{name}" for kind in components for name in components[kind]}
        defined -= {f"securitySchemes/{name}" for name in components["securitySchemes"]}
        text = json.dumps(document)
        assert defined == {*re.findall('"#/components/(.*?)"', text)}
        assert "{}" not in text


def test_document_without_operations() -> None:
    """A document of no operations is complete, too: it has paths, of which there are none."""
    assert make_document(()) | {"paths": {}} == make_document(())


def test_document_of_the_interface(app: Flask) -> None:
    """With create alone, the document is that of interface 1.0.0, byte for byte."""
    document = app.test_client().get("/openapi.json").json
    assert document is not None
    document.pop("externalDocs", None)  # The address of the errors, once they are published.
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    assert sha256(text.encode()).hexdigest() == INTERFACE


def described_members(schema: Any) -> tuple[set[str], dict[str, Any]]:
    """Return the required members of a schema of the document, and all of them."""
    required, members = {*schema.get("required", [])}, {**schema.get("properties", {})}
    for part in schema.get("allOf", []):
        more_required, more = described_members(part)
        required, members = required | more_required, members | more
    return required, members


@pytest.mark.parametrize("schema", [PlantSchema(), NewPlantSchema(), ErrorSchema()])
def test_schemas_of_the_document_are_those_of_marshmallow(schema: Schema) -> None:
    """The document has the same members, required members and types as the marshmallow schemas."""
    document = make_document()
    name = type(schema).__name__.removesuffix("Schema")
    described = resolve(document, document["components"]["schemas"][name])
    required, members = described_members(described)
    assert required == {name for name, field in schema.fields.items() if field.required}
    assert {*members} == {*schema.fields}
    for name, member in members.items():
        kind = next(kind for kind in TYPES if isinstance(schema.fields[name], kind))
        assert {key: member.get(key) for key in TYPES[kind]} == TYPES[kind]


def test_parameters_of_the_document() -> None:
    """The document has the parameters of a list, with their limits."""
    document = make_document(ALL)
    described = resolve(document, document["paths"]["/plants"]["get"]["parameters"])
    limits = {}
    for parameter in described:
        assert (parameter["in"], parameter.get("required", False)) == ("query", False)
        schema = parameter["schema"]
        limits[parameter["name"]] = schema["minimum"], schema["maximum"], schema.get("default")
    assert limits == {"limit": (1, 1000, 100), "after": (-(2**63), 2**63 - 1, None)}


@pytest.fixture
def client() -> FlaskClient:
    """Return a client of a service with all operations."""
    config = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": ALL}
    return create_app(config).test_client()


def test_document_has_every_error(client: FlaskClient) -> None:
    """Each operation has an example of each of its errors, with its message and headers."""
    for _, _, operation in operations(make_document(ALL)):
        found = set()
        for status, response in operation["responses"].items():
            values = {} if status in {"200", "204", "default"} else examples(response)
            for number, value in values.items():
                error = int(number)
                message, headers = ERRORS[error]
                if error in VARIABLE:
                    sent = client.open("/plants", headers=BEARER, **VARIABLE[error])
                    message = check_error(sent, error)
                assert value == {"error": error, "message": message}
                assert error // 100 == int(status)
                assert {*headers} <= {*response["headers"]}
                found.add(error)
        assert found == COMMON | ERRORS_OF[operation["operationId"]]
    assert COMMON.union(*ERRORS_OF.values()) == {*ERRORS} - {40401}


def test_examples_of_the_document(client: FlaskClient) -> None:
    """Each example of a request has the example of a response with the same name."""
    paths = resolve(make_document(ALL), make_document(ALL)["paths"])
    create = paths["/plants"]["post"]
    requests = examples(create["requestBody"])
    assert {*requests} == {"with a tag", "without a tag"}
    for name, new in requests.items():
        response = client.post("/plants", json=new, headers=BEARER)
        assert response.json == examples(create["responses"]["200"])[name]
    for path, expected in (("/plants", "two plants"), ("/plants/{id}", "with a tag")):
        response = client.get(path.replace("{id}", "1"), headers=BEARER)
        assert response.json == examples(paths[path]["get"]["responses"]["200"])[expected]


def examples(message: Any) -> dict[str, Any]:
    """Return the examples of a request or a response, by their names."""
    described = message["content"]["application/json"]["examples"]
    return {name: example["value"] for name, example in described.items()}


# Another ETag, and headers that have a meaning for other servers.
IGNORED = {"If-None-Match": '"x"', "If-Match": '"x"', "Range": "bytes=0-9"}
IGNORED |= {"If-Modified-Since": "Mon, 01 Jan 2020 00:00:00 +9999999999999"}


def test_document_is_served_without_a_token(app: Flask) -> None:
    """GET /openapi.json returns the document with an ETag, without a token, and then 304.

    No date, range or If-Match changes the response.
    """
    client = app.test_client()
    response = client.get("/openapi.json")
    assert (response.status_code, response.json) == (200, make_document())
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["Cache-Control"] == "no-cache"
    for tags in (response.headers["ETag"], f'"x", W/{response.headers["ETag"]}'):
        again = client.get("/openapi.json", headers={"If-None-Match": tags})
        assert (again.status_code, again.data) == (304, b"")
    for ignored in IGNORED.items():
        whole = client.get("/openapi.json", headers=[ignored])
        assert (whole.status_code, whole.data) == (200, response.data)
    assert client.head("/openapi.json").headers["ETag"] == response.headers["ETag"]


def test_document_in_a_site() -> None:
    """In a site, the document describes the operations at its own prefix, if there are any."""
    site = make_site(name="other", url_prefix="/other")
    outer = Blueprint("outer", __name__)
    outer.register_blueprint(make_blueprint(operations=["read", "delete"]))
    outer.register_blueprint(create_docs_blueprint())
    site.register_blueprint(outer, url_prefix="/<place>")
    site.register_blueprint(create_docs_blueprint(name="docs"), url_prefix="/roses/red")
    document = site.test_client().get("/garden/openapi.json").json
    assert document == make_document(["read", "delete"])
    site.config["PROPAGATE_EXCEPTIONS"] = True
    with pytest.raises(RuntimeError, match="docs: register it with the same url_prefix as"):
        site.test_client().get("/roses/red/openapi.json")


def test_document_of_each_subdomain() -> None:
    """In a site with subdomains, each document describes the operations of its own subdomain."""
    site = Flask("site", subdomain_matching=True)
    site.config["SERVER_NAME"] = "example"
    for name in ("create", "read"):
        site.register_blueprint(make_blueprint(name=name, operations=[name]), subdomain=name)
        site.register_blueprint(create_docs_blueprint(name=f"docs-{name}"), subdomain=name)
    for name in ("create", "read"):
        document = site.test_client().get(f"http://{name}.example/openapi.json").json
        assert document == make_document([name])


def test_openapi_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`plantstore openapi` prints the document of the operations in PLANTSTORE_OPERATIONS."""
    assert json.loads(run("openapi").output) == make_document()
    monkeypatch.setenv("PLANTSTORE_OPERATIONS", "read,create")
    assert json.loads(run("openapi").output) == make_document(["create", "read"])
    monkeypatch.setenv("PLANTSTORE_OPERATIONS", "change")
    assert run("openapi").stderr.startswith("Error: PLANTSTORE_OPERATIONS: must have one or more")


@pytest.mark.parametrize("path", ["/docs", *(f"/docs/{file}" for file in FILES)])
def test_page_has_a_strict_content_security_policy(app: Flask, path: str) -> None:
    """The page and its files need no token; the browser loads nothing from another server."""
    with app.test_client().get(path) as response:
        assert (response.status_code, len(response.data) > 0) == (200, True)
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert ("unsafe" in policy, "http" in policy) == (False, False)
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert len(response.headers.getlist("X-Request-ID")) == 1
    tag = {"If-None-Match": response.headers["ETag"]}
    with app.test_client().get(path, headers=tag) as response:
        assert response.status_code == 304
    check_error(app.test_client().post(path, headers=BEARER), 40501)


def test_files_are_read_once(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document and the files of the page are made once: clients without a token get them."""
    client = app.test_client()
    paths = ("/openapi.json", "/docs", "/docs/docs.css", "/docs/swagger-ui-bundle.js")
    first = [client.get(path) for path in paths]
    monkeypatch.setattr(Path, "open", Mock(side_effect=AssertionError("it is read again")))
    for path, response in zip(paths, first, strict=True):
        assert client.get(path).data == response.data


def test_page_in_a_site() -> None:
    """A site may have the page under its own prefix, and read it. The page has no other files."""
    site = documented_site()
    site.after_request(lambda response: (response.get_data(), response)[1])
    client = site.test_client()
    with client.get("/garden/docs") as page:
        urls = re.findall('(?:href|src)="(.*?)"', page.get_data(as_text=True))
    assert {*urls} == {"openapi.json", *(f"docs/{file}" for file in FILES)}
    for path in ("x", "index.html", "docs.py"):
        check_error(client.get(f"/garden/docs/{path}"), 40401)
    assert client.get("/garden/docs/..%2fdocument.py").status_code == 404


def test_page_without_its_package(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without flask-swagger-ui, the service and a site say what to install for the page."""
    caplog.set_level("INFO", "plantstore.served")
    monkeypatch.setattr("plantstore.openapi.blueprint.find_spec", lambda _: None)
    client = create_app({"PLANTSTORE_TOKENS": TOKEN}).test_client()
    page = "Page to try requests: none; pip install 'plantstore[docs]' adds /docs"
    assert caplog.messages[1:] == ["Operations: create", page]
    for service, path in ((client, "/docs"), (documented_site().test_client(), "/garden/docs")):
        assert "pip install 'plantstore[docs]'" in check_error(service.get(path), 40401)
        check_error(service.get(f"{path}/swagger-ui.css"), 40401)
    message = check_error(client.get("/"), 40401)
    assert message.endswith("The service has POST /plants, and /openapi.json.")
    assert client.get("/openapi.json").status_code == 200
