"""Other people's sites: what they may be like, and how the store may be mounted in them.

Each has its store's only path at /garden/plants.
"""

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Flask, request
from flask.json.provider import DefaultJSONProvider
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from plantstore import MemoryStore, Plant, StoreUnavailable

from .sites import make_blueprint

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

MAX_BODY = 200
BROKEN = 503  # The id of a plant that the store can't take now.


class Shed(MemoryStore):
    """A store that can't take everything."""

    def add(self, plant: Plant) -> None:
        """Keep a plant, but for one."""
        if plant.id == BROKEN:
            raise StoreUnavailable("the shed is full")
        super().add(plant)


def garden(name: str = "garden") -> Blueprint:
    """Return the blueprint that all of them embed."""
    return make_blueprint(store=Shed(), max_body=MAX_BODY, name=name)


# How they are set up.


class DecimalProvider(DefaultJSONProvider):
    """JSON whose numbers are decimals, whose keys are shouted, and which is indented."""

    mimetype = "application/vnd.api+json"

    def dumps(self, obj: Any, **kwargs: Any) -> str:
        """Write."""
        return super().dumps({key.upper(): value for key, value in obj.items()}, indent=8)

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:
        """Read."""
        return json.loads(s, parse_float=Decimal, parse_int=Decimal)


def with_json_of_its_own(site: Flask) -> None:
    """Set up a JSON provider that changes all it can."""
    site.json = DecimalProvider(site)
    site.config["JSONIFY_MIMETYPE"] = "text/json"
    site.config["JSON_SORT_KEYS"] = False


def in_debug_mode(site: Flask) -> None:
    """Set up debug mode."""
    site.debug = True


def in_testing_mode(site: Flask) -> None:
    """Set up testing mode."""
    site.testing = True


def with_traps(site: Flask) -> None:
    """Trap what can be trapped."""
    site.config["TRAP_HTTP_EXCEPTIONS"] = True
    site.config["TRAP_BAD_REQUEST_ERRORS"] = True


def with_a_low_limit(site: Flask) -> None:
    """Limit bodies to less than ours."""
    site.config["MAX_CONTENT_LENGTH"] = 10
    site.config["MAX_FORM_MEMORY_SIZE"] = 10


def with_a_high_limit(site: Flask) -> None:
    """Limit bodies to more than ours."""
    site.config["MAX_CONTENT_LENGTH"] = 10**9


def with_error_pages(site: Flask) -> None:
    """Handle every error there is, by class and by status."""

    def page(error: Exception) -> ResponseReturnValue:
        return "the site's own page", 299

    for kind in (Exception, HTTPException, 400, 401, 404, 405, 413, 429, 500, 503):
        site.register_error_handler(kind, page)


def with_a_server_name(site: Flask) -> None:
    """Name a server that is not the one that is asked."""
    site.config["SERVER_NAME"] = "nursery.example:8080"
    site.config["APPLICATION_ROOT"] = "/nursery"
    site.config["PREFERRED_URL_SCHEME"] = "https"


def with_lenient_routes(site: Flask) -> None:
    """Match every path that nothing else matches, with or without a slash."""
    site.url_map.strict_slashes = False
    site.add_url_rule("/<path:path>", "page", lambda path: "a page", methods=["GET", "POST"])
    site.add_url_rule("/<section>/<page>", "other", lambda section, page: "another page")


def with_hooks(site: Flask) -> None:
    """Look at everything before and after."""

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


HABITS: list[Callable[[Flask], None]] = [
    with_json_of_its_own,
    in_debug_mode,
    in_testing_mode,
    with_traps,
    with_a_low_limit,
    with_a_high_limit,
    with_error_pages,
    with_a_server_name,
    with_lenient_routes,
    with_hooks,
]


# How the store is mounted in them.


def at_a_prefix(site: Flask) -> "WSGIApplication":
    """Mount it as the README has it."""
    site.register_blueprint(garden(), url_prefix="/garden")
    return site


def under_a_prefix_of_its_own(site: Flask) -> "WSGIApplication":
    """Mount it with the prefix and another name given at registration."""
    site.register_blueprint(garden("first"), url_prefix="/first")
    site.register_blueprint(garden("first"), url_prefix="/garden", name="second")
    return site


def nested(site: Flask) -> "WSGIApplication":
    """Mount it within a blueprint within a blueprint."""
    outer = Blueprint("outer", "outer", url_prefix="/garden")
    inner = Blueprint("inner", "inner")
    inner.register_blueprint(garden())
    outer.register_blueprint(inner)
    site.register_blueprint(outer)
    return site


def dispatched(site: Flask) -> "WSGIApplication":
    """Mount the whole site below SCRIPT_NAME."""
    site.register_blueprint(garden())
    return DispatcherMiddleware(Flask("front"), {"/garden": site})


def behind_a_proxy(site: Flask) -> "WSGIApplication":
    """Mount it behind a proxy that says by headers where the site is."""
    site.register_blueprint(garden(), url_prefix="/garden")
    fixed = ProxyFix(site, x_for=1, x_proto=1, x_host=1, x_port=1, x_prefix=1)

    def proxied(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        told = {"FOR": "192.0.2.1", "PROTO": "https", "HOST": "nursery.example", "PREFIX": "/x"}
        forwarded = {f"HTTP_X_FORWARDED_{name}": value for name, value in told.items()}
        return fixed({**environ, **forwarded}, start)

    return proxied


MOUNTS: list[Callable[[Flask], "WSGIApplication"]] = [
    at_a_prefix,
    under_a_prefix_of_its_own,
    nested,
    dispatched,
    behind_a_proxy,
]


def served() -> "WSGIApplication":
    """Return one with every habit that others can stand, for a real server."""
    site = Flask("site")
    for habit in set(HABITS) - {with_a_low_limit, in_debug_mode, in_testing_mode}:
        habit(site)
    return behind_a_proxy(site)
