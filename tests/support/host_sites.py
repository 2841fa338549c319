"""Host sites: their configurations, and the ways to register the store's blueprint in them.

Each serves all operations at /garden/plants.
"""

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Blueprint, Flask, request
from flask.json.provider import DefaultJSONProvider
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.test import Client as WSGIClient

from plantstore import MemoryStore, Plant, StoreMisconfigured, StoreUnavailable, blueprint
from plantstore.auth import Client, StaticTokens
from tests.support.sites import BEARER, ROSE, TOKEN, make_blueprint

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

# The operations of the embedded store, and a token that has no right to create.
OPERATIONS, READER = [*blueprint.OPERATIONS], "r3ader"
# The largest request body, in bytes.
MAX_BODY = 200
# The ids for which the store raises StoreUnavailable, and StoreMisconfigured.
UNAVAILABLE_ID, MISCONFIGURED_ID = 50301, 50303


class PartlyUnavailableStore(MemoryStore):
    """A store that raises StoreUnavailable or StoreMisconfigured for one id each."""

    def add(self, plant: Plant) -> None:
        if plant.id == UNAVAILABLE_ID:
            raise StoreUnavailable("the store is full")
        if plant.id == MISCONFIGURED_ID:
            raise StoreMisconfigured("the table has other columns")
        super().add(plant)


def garden(name: str = "garden") -> Blueprint:
    """Return the blueprint that every host site embeds."""
    return make_blueprint(
        store=PartlyUnavailableStore(),
        verify_token=StaticTokens({TOKEN: "token-1", READER: Client("reader", ["read"])}),
        max_body=MAX_BODY,
        name=name,
        operations=OPERATIONS,
    )


# A configuration of a host site.
Configure = Callable[[Flask], None]


class DecimalProvider(DefaultJSONProvider):
    """A JSON provider with decimal numbers, upper case keys, indentation and another MIME type."""

    mimetype = "application/vnd.api+json"

    def dumps(self, obj: Any, **kwargs: Any) -> str:
        return super().dumps({key.upper(): value for key, value in obj.items()}, indent=8)

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:
        return json.loads(s, parse_float=Decimal, parse_int=Decimal)


def json_provider(site: Flask) -> None:
    """Set a JSON provider that differs from the default in every respect."""
    site.json = DecimalProvider(site)
    site.config["JSONIFY_MIMETYPE"] = "text/json"
    site.config["JSON_SORT_KEYS"] = False


def settings(name: str, **values: Any) -> Configure:
    """Return a configuration that sets these values in the site's config."""

    def configure(site: Flask) -> None:
        site.config.update(values)

    configure.__name__ = name
    return configure


def error_handlers(site: Flask) -> None:
    """Handle every error, by class and by status."""

    def page(error: Exception) -> ResponseReturnValue:
        return "the site's own page", 299

    for kind in (Exception, HTTPException, 400, 401, 404, 405, 413, 429, 500, 503):
        site.register_error_handler(kind, page)


def catch_all_routes(site: Flask) -> None:
    """Match every path that no other route matches, with or without a slash."""
    site.url_map.strict_slashes = False
    site.add_url_rule("/<path:path>", "page", lambda path: "a page", methods=["GET", "POST"])
    site.add_url_rule("/<section>/<page>", "other", lambda section, page: "another page")


def hooks(site: Flask) -> None:
    """Read every request before and after, and every response."""

    @site.before_request
    def before() -> None:
        request.get_json(silent=True)
        _ = request.form, request.files

    @site.after_request
    def after(response: Any) -> Any:
        response.get_data()
        request.get_data()
        return response

    site.url_value_preprocessor(lambda endpoint, values: None)
    site.teardown_request(lambda error: None)


LIMITS = {"MAX_CONTENT_LENGTH": MAX_BODY, "MAX_FORM_MEMORY_SIZE": 10}
SERVER = {"SERVER_NAME": "nursery.example:8080", "APPLICATION_ROOT": "/nursery"}
TRAPS = {"TRAP_HTTP_EXCEPTIONS": True, "TRAP_BAD_REQUEST_ERRORS": True}
CONFIGURATIONS = [
    json_provider,
    settings("debug_mode", DEBUG=True),
    settings("testing_mode", TESTING=True),
    settings("trapped_exceptions", **TRAPS),
    settings("equal_body_limit", **LIMITS),
    error_handlers,
    settings("server_name", **SERVER, PREFERRED_URL_SCHEME="https"),
    catch_all_routes,
    hooks,
]


# The ways to register the blueprint in a host site.


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


def behind_a_proxy(site: Flask) -> "WSGIApplication":
    """Serve the site behind a proxy that sends the X-Forwarded headers."""
    site.register_blueprint(garden(), url_prefix="/garden")
    fixed = ProxyFix(site, x_for=1, x_proto=1, x_host=1, x_port=1, x_prefix=1)

    def proxied(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        values = {"FOR": "192.0.2.1", "PROTO": "https", "HOST": "nursery.example", "PREFIX": "/x"}
        forwarded = {f"HTTP_X_FORWARDED_{name}": value for name, value in values.items()}
        return fixed({**environ, **forwarded}, start)

    return proxied


REGISTRATIONS = [with_prefix, twice, nested, under_script_name, behind_a_proxy]


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
    50301: {**JSON, "json": {"id": UNAVAILABLE_ID, "name": "Nettle"}},
    50302: {**JSON, "json": {}, "environ_overrides": {"wsgi.multiprocess": True}},
    50303: {**JSON, "json": {"id": MISCONFIGURED_ID, "name": "Nettle"}},
}

# Requests that succeed after the others.
LATER = [{**PLANT, "method": method} for method in ("GET", "HEAD", "DELETE")]
LATER.insert(0, {**PLANT, "method": "PUT", "json": {"name": "Rosa"}})


class ClientView(NamedTuple):
    """The parts of a response that a client can see."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


def send(app: "WSGIApplication", request: dict[str, Any]) -> ClientView:
    """Send one request to an application."""
    response = WSGIClient(app).open(**request)
    # The id of a request is random.
    headers = [header for header in response.headers if header[0] != "X-Request-ID"]
    return ClientView(response.status, headers, response.data)


def send_all(app: "WSGIApplication") -> list[ClientView]:
    """Return the responses of an application to all REQUESTS, and to LATER."""
    return [send(app, request) for request in (*REQUESTS.values(), *LATER)]
