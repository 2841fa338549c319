"""The OpenAPI document and the documentation page over HTTP."""

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flask import Blueprint, Response, request, send_from_directory

from .document import make_document
from .errors import Refused
from .hosts import is_host
from .methods import OperationsBlueprint, operation_rules
from .operations import OPERATIONS
from .responses import JSONResponse

# The folder of the page, and the files that it loads: of this package, and of flask-swagger-ui.
_PAGE = Path(__file__).parent / "page"
_OWN_FILES = {"docs.js", "docs.css"}
_LIBRARY_FILES = {"swagger-ui.css", "swagger-ui-bundle.js"}
# A URL prefix that a proxy has removed: segments (RFC 3986 section 3.3) other than . and ..
_PREFIX = re.compile(r"(/(?!\.{1,2}(/|$))([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+)*/?")
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
    prefix. ``/docs`` is a page on which a person can read it and try the operations. It exists only
    if flask-swagger-ui is installed: ``pip install 'plantstore[docs]'``.

    :param name: the name of the blueprint, by default ``plantstore_docs``.
    :returns: the blueprint. Register it with the same URL prefix as :func:`create_blueprint`, with
        the same names and converters of parameters.
    :raises TypeError: if an argument has the wrong type.
    :raises ValueError: if ``name`` is empty or has a dot.
    """
    return make_docs_blueprint(name, _url)


def make_docs_blueprint(name: str, get_url: Callable[[], str]) -> Blueprint:
    """Return the blueprint of :func:`create_docs_blueprint`.

    :param get_url: returns the URL of the current request without its query.
    """
    blueprint = OperationsBlueprint(name, __name__)

    @blueprint.get("/openapi.json")
    def openapi(**_: Any) -> Response:
        """Return the OpenAPI document of the operations under this URL prefix."""
        served = _served()
        if not served:
            raise RuntimeError(f"{name}: register it with the same url_prefix as create_blueprint")
        document = make_document(served)
        document["servers"] = [{"url": get_url().removesuffix("/openapi.json")}]
        # A shared cache must not keep it: the URL depends on the client.
        response = JSONResponse(document, headers=[("Cache-Control", "private, no-cache")])
        response.add_etag()
        response.make_conditional(request)
        return response

    if find_spec("flask_swagger_ui") is not None:
        blueprint.add_url_rule("/docs", view_func=_page)
        blueprint.add_url_rule("/docs/<plantstore_file>", view_func=_file)
    blueprint.record(blueprint.add_other_methods)
    return blueprint


def forwarded_url() -> str:
    """Return the URL that the client has requested from a proxy in front of the service.

    A header X-Forwarded-Host, -Proto or -Prefix that is not valid has no effect. The headers need
    not be those of the proxy: this client is the only one that gets the URL.
    """
    scheme, host, prefix = map(_forwarded, ("Proto", "Host", "Prefix"))
    return _url(
        scheme if scheme in {"http", "https"} else "",
        host if is_host(host) else "",
        prefix.rstrip("/") if _PREFIX.fullmatch(prefix) else "",
    )


def _forwarded(name: str) -> str:
    """Return the first value of a header: that of the proxy which the client has reached."""
    values = request.headers.get(f"X-Forwarded-{name}", "")
    return values.partition(",")[0].strip()


def _url(scheme: str = "", host: str = "", prefix: str = "") -> str:
    # request.base_url would decode the host, which can fail. HTTP/1.0 does not require the header.
    host = host or request.headers.get("Host") or request.host
    path = quote(request.script_root + request.path, safe="/!$&'()*+,;=:@")
    return f"{scheme or request.scheme}://{host}{prefix}{path}"


def _page(**_: Any) -> Response:
    """Return the page."""
    return _send(_PAGE, "index.html")


def _file(plantstore_file: str, **_: Any) -> Response:
    """Return a file that the page loads."""
    if plantstore_file in _OWN_FILES:
        return _send(_PAGE, plantstore_file)
    if plantstore_file in _LIBRARY_FILES:
        library: Any = find_spec("flask_swagger_ui")
        return _send(Path(library.origin).parent / "dist", plantstore_file)
    raise Refused(40401)


def _send(folder: Path, file: str) -> Response:
    response = send_from_directory(folder, file)
    response.direct_passthrough = False  # A function of the site may read the response.
    response.headers.update(_PAGE_HEADERS)
    return response


def _served() -> list[str]:
    """Return the names of the operations that have the URL prefix of the current request."""
    document: Any = request.url_rule
    prefix = document.rule.removesuffix("/openapi.json")
    rules = {(rule.rule, rule.endpoint.rpartition(".")[2]) for rule in operation_rules(document)}
    return [name for name, one in OPERATIONS.items() if (prefix + one.rule, one.endpoint) in rules]
