"""The OpenAPI document and the documentation page over HTTP."""

from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, current_app, request

from ..blueprint import OPERATIONS, OperationsBlueprint
from ..errors import Refused
from ..responses import OperationResponse, dump_json
from .document import make_document

# The folder of the page, and the files that it loads: of this package, and of flask-swagger-ui.
_PAGE = Path(__file__).parent / "page"
_OWN_FILES = {"docs.js", "docs.css", "icon.svg"}
_LIBRARY_FILES = {"swagger-ui.css", "swagger-ui-bundle.js"}
_NO_PAGE = (
    "The page /docs is not installed: `pip install 'plantstore[docs]'`."
    " /openapi.json describes the operations."
)
# The page can load files only from the service, and send requests only to it.
_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self';"
        " style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


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
    blueprint = OperationsBlueprint(name, __name__)

    @blueprint.get("/openapi.json")
    def openapi(**_: Any) -> Response:
        """Return the OpenAPI document of the operations under this URL prefix."""
        served = _served()
        if not served:
            raise RuntimeError(f"{name}: register it with the same url_prefix as create_blueprint")
        return _respond(dump_json(make_document(served)), "application/json")

    blueprint.add_url_rule("/docs", view_func=_page)
    blueprint.add_url_rule("/docs/<plantstore_file>", view_func=_file)
    return blueprint


def has_page() -> bool:
    """Return whether ``/docs`` is a page: flask-swagger-ui is installed."""
    return find_spec("flask_swagger_ui") is not None


def _page(**_: Any) -> Response:
    """Return the page."""
    if not has_page():
        raise Refused(40401, _NO_PAGE)
    return _send(_PAGE, "index.html")


def _file(plantstore_file: str, **_: Any) -> Response:
    """Return a file that the page loads."""
    if plantstore_file in _OWN_FILES:
        return _send(_PAGE, plantstore_file)
    if plantstore_file in _LIBRARY_FILES and has_page():
        library: Any = find_spec("flask_swagger_ui")
        return _send(Path(library.origin).parent / "dist", plantstore_file)
    raise Refused(40401)


def _send(folder: Path, file: str) -> Response:
    content_type, _ = guess_type(file)
    response = _respond((folder / file).read_bytes(), f"{content_type}; charset=utf-8")
    response.headers.update(_PAGE_HEADERS)
    return response


def _respond(body: bytes, content_type: str) -> Response:
    """Return a response with an ETag, or without its body if the client has this one already.

    The body is one item, so no thread of the server waits for a client that reads it slowly. No
    other header has a meaning here: a date, a range or ``If-Match`` is ignored.
    """
    response = OperationResponse(body, content_type=content_type)
    response.headers["Cache-Control"] = "no-cache"
    response.add_etag()
    etag, _ = response.get_etag()
    if request.if_none_match.contains_weak(etag or ""):
        response.status_code, response.data = 304, b""
    return response


def _served() -> list[str]:
    """Return the names of the operations that have the URL prefix of the current request."""
    document: Any = request.url_rule
    prefix = document.rule.removesuffix("/openapi.json")
    same_host = (document.host, document.subdomain)
    rules = {
        (rule.rule, rule.endpoint.rpartition(".")[2])
        for rule in current_app.url_map.iter_rules()
        if (rule.host, rule.subdomain) == same_host
    }
    return [
        name for name, operation in OPERATIONS.items() if (prefix + operation.rule, name) in rules
    ]
