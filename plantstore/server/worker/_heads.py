"""The head of a request. gunicorn parses it, and makes the environ (PEP 3333) from it.

Most clients send the same head with each request of a connection, except for the digits of its
Content-Length. The worker keeps the parsed request and the environ of a head that has come twice.
Without this, a served create would take 15 % longer.
"""

import re
from copy import copy
from dataclasses import dataclass, field
from io import TextIOBase
from typing import Any

from gunicorn.http.errors import NoMoreData
from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader
from gunicorn.http.wsgi import WSGIErrorsWrapper, create

from ._client import Client
from ._refusals import RefusedRequest

_VERSIONS = {(1, 0), (1, 1)}
# The digits of a Content-Length.
_LENGTH = re.compile(rb"\r\n(?i:content-length):[ \t]*([0-9]{1,18})(?=\r\n[^ \t])")
# An empty list is allowed (RFC 9110 section 10.1.1), but not by gunicorn.
_NO_EXPECTATION = re.compile(rb"\r\n(?i:expect):[ \t]*(?=\r\n[^ \t])")
# The maximum size in bytes of a head that is kept, because an open connection then uses memory.
_MAX_KEPT = 4096
# The keys of the environ by which an application could use the socket without the worker.
_OF_THE_SOCKET = ("gunicorn.socket", "wsgi.early_hints")


@dataclass
class KeptHead:
    """What is kept of a head that has come twice.

    :param parsed: the request that gunicorn has parsed from it. It never changes.
    """

    parsed: Any
    #: The request from which gunicorn has made an environ last, and this environ.
    described: Any = None
    environ: dict[str, Any] = field(default_factory=dict)


def parse(cfg: Any, client: Client, size: int) -> Any:
    """Return gunicorn's request object for the head that has arrived on a connection.

    :param cfg: the configuration of gunicorn.
    :param size: the size of the head in bytes.
    :raises Exception: if it is refused, by gunicorn or by this module.
    """
    client.requests += 1
    head = bytes(client.data[:size])
    digits = _LENGTH.search(head)
    start, end = digits.span(1) if digits else (size, size)
    parts = head[:start], head[end:]
    if parts != client.parts:
        client.kept, request = None, _parse(cfg, client, head)
        # gunicorn reads a body in chunks through the request object, which therefore changes.
        is_chunked = any(name == "TRANSFER-ENCODING" for name, _ in request.headers)
        client.parts = None if is_chunked or size > _MAX_KEPT else parts
        return request
    if client.kept is None:
        client.kept = KeptHead(_parse(cfg, client, head))
    return _repeat(client.kept.parsed, head[start:end].decode())


def environ_of(worker: Any, client: Client) -> dict[str, Any]:
    """Return the environ of the request of a connection."""
    kept, request = client.kept, client.request
    if kept is None:
        kept = KeptHead(request)
    # Each request has an object of its own, which a hook of the operator may have changed.
    if kept.described is None or vars(request) != vars(kept.described):
        kept.described, kept.environ = request, _make_environ(worker, client)
    return kept.environ | {"wsgi.input": client.body}


def _make_environ(worker: Any, client: Client) -> dict[str, Any]:
    environ: dict[str, Any]
    _, environ = create(client.request, _NoSocket, client.address, client.server, worker.cfg)
    for key in _OF_THE_SOCKET:
        environ.pop(key, None)
    environ["wsgi.errors"] = _Errors(worker.cfg)
    environ["wsgi.multithread"] = worker.may_wait
    return environ


def _parse(cfg: Any, client: Client, head: bytes) -> Any:
    unreader = IterUnreader([_NO_EXPECTATION.sub(b"", head)])
    try:
        request = Request(cfg, unreader, client.address, client.requests)
    except (NoMoreData, ValueError):  # Python does not convert some values, such as 5,000 digits.
        raise RefusedRequest(40000, "The request is not valid HTTP.") from None
    if client.requests == 1 and (request.proxy_protocol_info or {}).get("client_addr"):
        client.proxied = request.proxy_protocol_info
    request.proxy_protocol_info = client.proxied
    names = [name for name, _ in request.headers]
    hosts = names.count("HOST")
    if hosts > 1 or not hosts and request.version > (1, 0):  # RFC 9112 section 3.2.
        raise RefusedRequest(40000, "There must be one Host header.")
    if request.version not in _VERSIONS:  # gunicorn's parser in C does so, too.
        raise RefusedRequest(40000, "The version of HTTP must be 1.0 or 1.1.")
    if "CONNECTION" in names and _asks_to_close(request):
        request.force_close()
    return request


def _repeat(request: Any, length: str) -> Any:
    """Return a copy of a request. The hooks of an operator may change the copy.

    :param length: the Content-Length of the copy, or an empty text for that of the request.
    """
    repeated = copy(request)
    new = {"CONTENT-LENGTH": length} if length else {}
    repeated.headers = [(name, new.get(name, value)) for name, value in request.headers]
    return repeated


def _asks_to_close(request: Any) -> bool:
    options = ",".join(value for name, value in request.headers if name == "CONNECTION")
    return "close" in (option.strip(" \t") for option in options.lower().split(","))


class _NoSocket:
    """Takes the status 100 from gunicorn, because the worker has already sent it."""

    @staticmethod
    def send(data: bytes) -> None:
        """Do nothing."""


class _Errors(TextIOBase):
    """Writes to the log of errors, whose files may be reopened at any time."""

    def __init__(self, cfg: Any) -> None:
        self._cfg = cfg

    def write(self, text: str) -> int:
        WSGIErrorsWrapper(self._cfg).write(text)
        return len(text)
