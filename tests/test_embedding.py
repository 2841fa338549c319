"""The blueprint in a host site: neither changes the other."""

import json
import logging
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from apiflask import APIFlask
from flask import Blueprint, Flask, abort, jsonify, redirect, request, session, url_for
from flask.json.provider import DefaultJSONProvider
from flask_smorest import Api
from marshmallow import ValidationError
from werkzeug.exceptions import HTTPException, TooManyRequests, default_exceptions
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.test import Client as WSGIClient

from plantstore import (
    Client,
    MemoryStore,
    Plant,
    PlantExists,
    StaticTokens,
    StoreMisconfigured,
    StoreUnavailable,
    create_app,
)
from plantstore.errors import ERRORS
from tests.support.responses import ALL, check_error
from tests.support.serving import ROOT
from tests.support.sites import BEARER, ROSE, TOKEN, make_blueprint

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

# A token that has no right to create, and the largest request body in bytes.
READER, MAX_BODY = "r3ader", 200
TOKENS = StaticTokens({TOKEN: "token-1", READER: Client("reader", ["read"])})


class PartlyUnavailableStore(MemoryStore):
    """A store that raises an exception for each id that is the number of its error."""

    def add(self, plant: Plant) -> None:
        if plant.id == 50301:
            raise StoreUnavailable("the store is full")
        if plant.id == 50303:
            raise StoreMisconfigured("the table has other columns")
        super().add(plant)


def garden(name: str = "garden") -> Blueprint:
    """Return the blueprint that every host site embeds, with all operations."""
    store = PartlyUnavailableStore()
    options: dict[str, Any] = {"verify_token": TOKENS, "max_body": MAX_BODY, "operations": ALL}
    return make_blueprint(store=store, name=name, **options)


class DecimalProvider(DefaultJSONProvider):
    """A JSON provider with decimal numbers, upper case keys, indentation and another MIME type."""

    mimetype = "application/vnd.api+json"

    def dumps(self, obj: Any, **kwargs: Any) -> str:
        return super().dumps({key.upper(): value for key, value in obj.items()}, indent=8)

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:
        return json.loads(s, parse_float=Decimal, parse_int=Decimal)


def error_handlers(site: Flask) -> None:
    """Handle every error, by class and by status."""
    for kind in (Exception, HTTPException, 400, 401, 404, 405, 413, 429, 500, 503):
        site.register_error_handler(kind, lambda error: ("the site's own page", 299))


def smorest(site: Flask) -> None:
    """Let the site have an API by flask-smorest."""
    site.config.from_mapping(API_TITLE="Site", API_VERSION="v1", OPENAPI_VERSION="3.1.0")
    Api(site)


# The configurations of a host site.
CONFIGURATIONS: dict[str, Callable[[Flask], object]] = {
    "JSON provider": lambda site: setattr(site, "json", DecimalProvider(site)),
    "debug": lambda site: site.config.update(DEBUG=True, TRAP_HTTP_EXCEPTIONS=True),
    "testing": lambda site: site.config.update(TESTING=True, TRAP_BAD_REQUEST_ERRORS=True),
    "server_name": lambda site: site.config.update(SERVER_NAME="x:8080", APPLICATION_ROOT="/y"),
    **{configure.__name__: configure for configure in (error_handlers, smorest)},
}


def with_prefix(site: Flask) -> "WSGIApplication":
    """Register with a prefix, as the README does."""
    site.register_blueprint(garden(), url_prefix="/garden")
    return site


def twice(site: Flask) -> "WSGIApplication":
    """Register twice, the second time with another prefix and another name."""
    site.register_blueprint(garden("first"), url_prefix="/first")
    site.register_blueprint(garden("first"), url_prefix="/garden", name="second")
    return site


def nested(site: Flask) -> "WSGIApplication":
    """Register in a blueprint that is itself in a blueprint."""
    outer = Blueprint("outer", "outer", url_prefix="/garden")
    inner = Blueprint("inner", "inner")
    inner.register_blueprint(garden())
    outer.register_blueprint(inner)
    site.register_blueprint(outer)
    return site


def under_script_name(site: Flask) -> "WSGIApplication":
    """Serve the whole site below a SCRIPT_NAME."""
    site.register_blueprint(garden())
    return DispatcherMiddleware(Flask("front"), {"/garden": site})


JSON = {"path": "/garden/plants", "method": "POST", "headers": BEARER}
PLANT = {"path": "/garden/plants/1", "method": "GET", "headers": BEARER}
WRONG = {"Authorization": "Bearer wrong"}
# A request for each response that an embedded store can have, by the status or error number.
REQUESTS: dict[int, dict[str, Any]] = {
    200: {**JSON, "json": ROSE},
    40001: {**JSON, "data": b"{}"},
    40002: {**JSON, "data": b"{", "content_type": "application/json"},
    40003: {**JSON, "json": {"id": 2.5, "name": None, "tag": "\0"}},
    40004: {**JSON, "json": ROSE},
    40006: {**JSON, "method": "GET", "query_string": "limit=0"},
    40101: {**JSON, "json": ROSE, "headers": {}},
    40102: {**JSON, "json": ROSE, "headers": WRONG},
    40301: {**JSON, "json": ROSE, "headers": {"Authorization": f"Bearer {READER}"}},
    40402: {**PLANT, "path": "/garden/plants/x"},
    41301: {**JSON, "json": {"id": 2, "name": "x" * MAX_BODY}},
    50301: {**JSON, "json": {"id": 50301, "name": "Nettle"}},
    50302: {**JSON, "json": {}, "environ_overrides": {"wsgi.multiprocess": True}},
    50303: {**JSON, "json": {"id": 50303, "name": "Nettle"}},
}

# Requests that succeed after the others.
LATER = [{**PLANT, "method": "PUT", "json": {"name": "Rosa"}}, {**JSON, "method": "GET"}]
LATER += [{**PLANT, "method": method} for method in ("GET", "HEAD", "DELETE")]
# The parts of a response that a client can see.
ClientView = tuple[str, list[tuple[str, str]], bytes]


def send(app: "WSGIApplication", request: dict[str, Any]) -> ClientView:
    """Return the status, the headers and the body of a response of an application."""
    response = WSGIClient(app).open(**request)
    # The id of a request is random.
    headers = [header for header in response.headers if header[0] != "X-Request-ID"]
    return response.status, headers, response.data


def send_all(app: "WSGIApplication") -> list[ClientView]:
    """Return the responses of an application to all REQUESTS, and to LATER."""
    return [send(app, request) for request in (*REQUESTS.values(), *LATER)]


# Requests for pages of the host site.
VISITS = [
    *({"path": path} for path in ["/", "/url", "/static/__init__.py", "/fail", "/gardens"]),
    *({"path": f"/abort/{status}"} for status in (400, 401, 403, 404, 413, 418, 429, 500, 503)),
    *({"path": "/", "method": method} for method in ["POST", "OPTIONS", "HEAD", "FOO"]),
    *({"path": path, "method": "POST"} for path in ["/plants", "/garden/", "/garden/plants/"]),
    *({"path": path} for path in ["/garden", "/garden/plants/1/", "/garden/plantsx"]),
]
# Statuses for which werkzeug has a class.
STATUSES = (400, 401, 404, 413, 429, 503)


def test_requests_cover_every_error() -> None:
    """REQUESTS has a request for every error of an embedded store; none uses the site's session."""
    site = Flask("site")
    site.secret_key = "hunter2"
    responses = send_all(with_prefix(site))
    names = {name for _, headers, _ in responses for name, _ in headers}
    assert names.isdisjoint({"Set-Cookie", "Vary"})
    assert {200, *ERRORS} - {40005, 40401, 40501, 50001, 50304} == {*REQUESTS}
    for number, (_, _, body) in zip(REQUESTS, responses, strict=False):
        assert number == 200 or b'"error":%d,' % number in body
    successes = responses[0], *responses[len(REQUESTS) :]
    assert [status for status, *_ in successes] == ["200 OK"] * 5 + ["204 NO CONTENT"]


def test_embedded_responses_are_those_of_the_service() -> None:
    """An embedded store responds exactly as the standalone service."""
    config = {"PLANTSTORE_MAX_BODY": MAX_BODY, "PLANTSTORE_OPERATIONS": ALL}
    standalone = create_app(config, store=PartlyUnavailableStore(), verify_token=TOKENS)
    service = DispatcherMiddleware(Flask("front"), {"/garden": standalone})
    assert send_all(service) == send_all(with_prefix(Flask("site")))


@pytest.mark.parametrize("configure", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_site_configuration_does_not_change_responses(configure: Callable[[Flask], object]) -> None:
    """Responses are the same with any configuration of the host site."""
    site = Flask("site")
    configure(site)
    assert send_all(with_prefix(site)) == send_all(with_prefix(Flask("site")))


@pytest.mark.parametrize("register", [twice, nested, under_script_name])
def test_mount_point_does_not_change_responses(
    register: Callable[[Flask], "WSGIApplication"],
) -> None:
    """Responses are the same at any mount point, also if the site handles each error."""
    site = Flask("site")
    error_handlers(site)
    assert send_all(register(site)) == send_all(with_prefix(Flask("site")))


def test_document_of_apiflask_is_unchanged() -> None:
    """The OpenAPI document of a site that is an APIFlask does not have the embedded store."""
    without, embedding = APIFlask("site"), APIFlask("site")
    with_prefix(embedding)
    documents = [site.test_client().get("/openapi.json").json for site in (without, embedding)]
    assert documents[0] == documents[1]


def full_site() -> Flask:
    """Return a host site with pages of all kinds, error handlers and hooks."""
    site = Flask("site", static_folder=str(ROOT / "tests"))
    site.secret_key = "hunter2"
    site.add_url_rule("/", "home", lambda: jsonify(b=1, a=session.setdefault("visits", 7)))
    site.add_url_rule("/abort/<int:code>", "abort", abort)
    site.add_url_rule("/fail", "fail", lambda: str(1 / 0))
    site.add_url_rule("/url", "url", lambda: url_for("home", _external=True))
    site.register_error_handler(404, lambda error: (f"no {request.path}", 404))
    site.before_request(lambda: session.update(seen=True))
    site.after_request(lambda response: response.headers.add("X-Site", "1") or response)
    return site


def test_site_pages_are_unchanged() -> None:
    """Every page of the host site, with its errors and cookies, stays the same byte for byte."""
    without, embedding = full_site(), full_site()
    embedding.register_blueprint(garden(), url_prefix="/garden")
    for visit in VISITS:
        assert visit_page(embedding, visit) == visit_page(without, visit)


def visit_page(site: Flask, visit: dict[str, Any]) -> tuple[ClientView, dict[str, Any]]:
    """Return what a visitor of a site sees, and the content of the cookie."""
    client = site.test_client()
    response = client.open(**visit)
    headers = [header for header in response.headers if header[0] not in {"Date", "Set-Cookie"}]
    with client.session_transaction() as cookie:
        return (response.status, headers, response.data), dict(cookie)


def own(status: int, description: str | None = None) -> HTTPException:
    """Return an exception of the host site's own class."""
    exception: HTTPException = type("Own", (HTTPException,), {"code": status})(description)
    return exception


@pytest.mark.parametrize(
    ("error", "number", "message"),
    [
        *((default_exceptions[code]("Closed."), code * 100, ": Closed.") for code in STATUSES),
        (TooManyRequests(retry_after=7), 42900, "Too Many Requests: "),
        (own(402, "Pay first."), 40200, "Payment Required: Pay first."),
        (own(499), 49900, "Unknown Error"),
        (own(500), 50000, "Internal Server Error"),
        (default_exceptions[500]("Closed."), 50001, "The service failed."),
        (ValidationError({"token": ["hunter2"]}), 50001, "The service failed."),
        (PlantExists(1), 40004, "A plant with this id already exists."),
        (StoreUnavailable("hunter2"), 50301, "The store is unavailable now."),
        (StoreMisconfigured("hunter2"), 50303, "The store is not set up for plants; "),
    ],
)
def test_exception_in_a_site_hook_becomes_an_error(
    site: Flask, caplog: pytest.LogCaptureFixture, error: Exception, number: int, message: str
) -> None:
    """An exception of a site's hook becomes an Error, and a line of the log at the right level."""
    caplog.set_level("INFO", "plantstore")

    def refuse() -> None:
        raise error

    site.before_request(refuse)
    for kind in default_exceptions:
        site.register_error_handler(kind, lambda error: "the site's own page")
    site.register_error_handler(HTTPException, lambda error: "the site's own page")
    response = site.test_client().open(**REQUESTS[200])
    sent = check_error(response, number)
    assert message in sent
    assert "hunter2" not in sent
    retry = "7" if number == 42900 and "Closed" not in sent else None
    assert response.headers.get("Retry-After") == ("5" if number == 50301 else retry)
    record = caplog.records[-1]
    assert record.levelno == (logging.ERROR if number >= 50000 else logging.INFO)
    assert (record.exc_info is not None) == (number in {50000, 50001, 50300})
    assert record.getMessage().startswith(f"{number}: ")
    assert ("The site refuses the request: " in record.getMessage()) == (number % 100 == 0)


@pytest.mark.parametrize(
    ("result", "status", "body"),
    [
        (redirect("/login"), 302, "/login"),
        (HTTPException(response=redirect("/login")), 302, "/login"),  # As by abort.
        (own(202, "Done."), 202, "Done."),
    ],
)
def test_response_of_a_site_hook_is_unchanged(
    site: Flask, result: Any, status: int, body: str
) -> None:
    """A response that a host site's hook returns or raises, or that is no error, is unchanged."""

    @site.before_request
    def answer() -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    for site.config["TRAP_HTTP_EXCEPTIONS"] in (True, False):
        response = site.test_client().open(**REQUESTS[200])
        assert (response.status_code, body in response.text) == (status, True)
        assert response.mimetype != "application/json"
