"""The OpenAPI document and the documentation page over HTTP."""

from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from flask import Blueprint, current_app, request
from werkzeug.routing import Map

from ..blueprint import OPERATIONS, ServiceBlueprint
from ..errors import Refused
from ..responses import ServiceResponse, dump_json
from .document import make_document

# The folder of the page, and the files that it loads: of this package, and of flask-swagger-ui.
_PAGE = Path(__file__).parent / "page"
_OWN_FILES = ("docs.js", "docs.css", "icon.svg")
_LIBRARY_FILES = ("swagger-ui.css", "swagger-ui-bundle.js")
_NO_PAGE = (
    "The page /docs is not installed: `pip install 'plantstore[docs]'`."
    " /openapi.json describes the operations."
)
# The page can load files only from the service, and send requests only to it.
_PAGE_HEADERS = [
    (
        "Content-Security-Policy",
        "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self';"
        " style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
]


def create_docs_blueprint(*, name: str = "plantstore_docs") -> Blueprint:
    """Return a blueprint with ``GET /openapi.json`` and ``GET /docs``, which need no token.

    ``/openapi.json`` is the OpenAPI document of the operations that the site has under the same URL
    prefix. ``/docs`` is a page on which a person can read it and try the operations. Without
    flask-swagger-ui, it is an Error that says what to install: ``pip install 'plantstore[docs]'``.

    :param name: the name of the blueprint, by default ``plantstore_docs``.
    :returns: the blueprint. Register it with the same URL prefix as :func:`create_blueprint`, with
        the same names and converters of parameters.
    :raises ValueError: if ``name`` is empty or has a dot.
    """
    blueprint, files = ServiceBlueprint(name), _find_files()

    @cache
    def document(routes: Map, prefix: str, host: str | None, subdomain: str | None) -> _Content:
        served = _served(routes, prefix, (host, subdomain))
        if not served:
            raise RuntimeError(f"{name}: register it with the same url_prefix as create_blueprint")
        return _Content(dump_json(make_document(served)), "application/json")

    @blueprint.get("/openapi.json")
    def openapi(**_: Any) -> ServiceResponse:
        rule: Any = request.url_rule
        prefix = rule.rule.removesuffix("/openapi.json")
        return document(current_app.url_map, prefix, rule.host, rule.subdomain).respond()

    @blueprint.get("/docs")
    def page(**_: Any) -> ServiceResponse:
        if not files:
            raise Refused(40401, _NO_PAGE)
        return _read(_PAGE / "index.html").respond()

    @blueprint.get("/docs/<plantstore_file>")
    def file(plantstore_file: str, **_: Any) -> ServiceResponse:
        if plantstore_file not in files:
            raise Refused(40401)
        return _read(files[plantstore_file]).respond()

    return blueprint


def has_page() -> bool:
    """Return whether ``/docs`` is a page: flask-swagger-ui is installed."""
    return find_spec("flask_swagger_ui") is not None


def _find_files() -> dict[str, Path]:
    """Return the files that the page loads, or none without flask-swagger-ui."""
    library: Any = find_spec("flask_swagger_ui")
    if library is None:
        return {}
    folders = {_PAGE: _OWN_FILES, Path(library.origin).parent / "dist": _LIBRARY_FILES}
    return {name: folder / name for folder, names in folders.items() for name in names}


class _Content:
    """What is sent to each client. To read and to hash it in each request would take long.

    The body is one item, so no thread of the server waits for a client that reads it slowly.
    """

    def __init__(self, body: bytes, content_type: str, *headers: tuple[str, str]) -> None:
        self._body, self._type, self._etag = body, content_type, sha256(body).hexdigest()
        self._headers = [("Cache-Control", "no-cache"), ("ETag", f'"{self._etag}"'), *headers]

    def respond(self) -> ServiceResponse:
        """Return a response with an ETag, or without its body if the client has this one already.

        No other header has a meaning here: a date, a range or ``If-Match`` is ignored.
        """
        if request.if_none_match.contains_weak(self._etag):
            return ServiceResponse(b"", 304, self._headers)
        return ServiceResponse(self._body, 200, self._headers, self._type)


@cache
def _read(file: Path) -> _Content:
    content_type, _ = guess_type(file.name)
    return _Content(file.read_bytes(), f"{content_type}; charset=utf-8", *_PAGE_HEADERS)


def _served(routes: Map, prefix: str, place: tuple[str | None, str | None]) -> list[str]:
    """Return the names of the operations that have a URL prefix, at a host and a subdomain."""
    rules = {
        (rule.rule, rule.endpoint.rpartition(".")[2])
        for rule in routes.iter_rules()
        if (rule.host, rule.subdomain) == place
    }
    return [name for name, it in OPERATIONS.items() if (prefix + it.rule, name) in rules]
