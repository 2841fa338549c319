"""The environ of a request (PEP 3333), with the values that gunicorn gives it.

gunicorn makes all of it anew in each request. Most of it is the same in each one of a connection.
"""

import os
from io import TextIOBase
from typing import Any

from gunicorn import SERVER_SOFTWARE
from gunicorn.http.wsgi import FileWrapper, WSGIErrorsWrapper
from gunicorn.util import unquote_to_wsgi_str

from ._client import Client
from ._refusals import RefusedRequest

_OWN_KEYS = {"CONTENT-LENGTH": "CONTENT_LENGTH", "CONTENT-TYPE": "CONTENT_TYPE"}
# What the PROXY protocol says, with gunicorn's names of it.
_OF_A_PROXY = {
    "PROXY_PROTOCOL": "proxy_protocol",
    "REMOTE_ADDR": "client_addr",
    "REMOTE_PORT": "client_port",
    "PROXY_ADDR": "proxy_addr",
    "PROXY_PORT": "proxy_port",
}


class _Errors(TextIOBase):
    """The log of errors. Its files may be reopened at any time."""

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg

    def write(self, text: str) -> int:
        WSGIErrorsWrapper(self._cfg).write(text)
        return len(text)


def first_environ(cfg: Any, client: Client, *, may_wait: bool) -> dict[str, Any]:
    """Return what is the same in the environ of each request of a connection.

    :param cfg: the configuration of gunicorn.
    :param may_wait: whether several threads execute requests.
    """
    environ = {
        "wsgi.errors": _Errors(cfg),
        "wsgi.version": (1, 0),
        "wsgi.multithread": may_wait,
        "wsgi.multiprocess": cfg.workers > 1,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": FileWrapper,
        "wsgi.input_terminated": True,
        "SERVER_SOFTWARE": SERVER_SOFTWARE,
        "SCRIPT_NAME": os.environ.get("SCRIPT_NAME", ""),
    }
    if isinstance(client.server, tuple):
        environ["SERVER_NAME"], environ["SERVER_PORT"] = client.server[0], str(client.server[1])
    if isinstance(client.address, tuple):
        environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = client.address[0], str(client.address[1])
    else:  # A Unix socket. Its address is usually empty.
        environ["REMOTE_ADDR"] = _text(client.address)
    if client.proxied:
        for key, name in _OF_A_PROXY.items():
            environ[key] = str(client.proxied[name])
    return environ


def environ_of(client: Client) -> dict[str, Any]:
    """Return the environ of the request of a connection.

    :raises RefusedRequest: if its path does not begin with ``SCRIPT_NAME``.
    """
    request = client.request
    environ = client.environ.copy()
    environ["wsgi.input"] = client.body
    environ["wsgi.url_scheme"] = request.scheme
    environ["REQUEST_METHOD"] = request.method
    environ["QUERY_STRING"] = request.query
    environ["RAW_URI"] = request.uri
    environ["SERVER_PROTOCOL"] = f"HTTP/1.{request.version[1]}"
    for name, value in request.headers:
        key = _OWN_KEYS.get(name) or "HTTP_" + name.replace("-", "_")
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    # Only the proxies of gunicorn's forwarder_headers can send this header.
    prefix = environ["SCRIPT_NAME"] = client.fields.get("SCRIPT_NAME", environ["SCRIPT_NAME"])
    if not request.path.startswith(prefix):
        raise RefusedRequest(40401, "There is nothing at this path.")
    environ["PATH_INFO"] = unquote_to_wsgi_str(request.path[len(prefix) :])
    if "SERVER_NAME" not in environ:
        _set_server(environ, client.server)
    return environ


def _set_server(environ: dict[str, Any], path: str | bytes) -> None:
    """Set the name and the port of the service behind a Unix socket."""
    parts = environ["HTTP_HOST"].split(":") if environ.get("HTTP_HOST") else [_text(path), ""]
    default = "443" if environ["wsgi.url_scheme"] == "https" else "80"
    environ["SERVER_NAME"], environ["SERVER_PORT"] = parts[0], [*parts, default][1]


def _text(address: str | bytes) -> str:
    """Return the address of a Unix socket as a native string. One without a path is bytes."""
    return os.fsencode(address).decode("latin-1")
