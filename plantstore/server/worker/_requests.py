"""A request: gunicorn parses its head, and then the application is called."""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from gunicorn.http.errors import NoMoreData
from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader
from gunicorn.http.wsgi import create

from ._connection import ClientGone, Connection
from ._framing import ChunkedBody, sized_body
from ._refusals import RefusedRequest

# The bytes that may wait for a client while the application produces more.
_MAX_OUTPUT = 1 << 20
_VERSIONS = {(1, 0), (1, 1)}
# The parser of gunicorn copies a whole piece of a body for each of its chunks.
_PIECE = 16384
# An empty list is allowed (RFC 9110 section 10.1.1), but not by gunicorn.
_NO_EXPECTATION = re.compile(rb"\r\n(?i:expect):[ \t]*(?=\r\n[^ \t])")


class ResponseFailed(Exception):
    """The application has failed after a part of its response had been sent."""


def parse(cfg: Any, conn: Connection, size: int) -> Any:
    """Return the request of gunicorn whose head has arrived on a connection.

    :param cfg: the configuration of gunicorn.
    :param size: the size of the head in bytes.
    :raises Exception: if it is refused, by gunicorn or by this module.
    """
    conn.requests += 1
    head = _NO_EXPECTATION.sub(b"", bytes(conn.data[:size]))
    try:
        request = Request(cfg, IterUnreader([head]), conn.client, conn.requests)
    except (NoMoreData, ValueError):  # Some values fail only when Python converts them.
        raise RefusedRequest(40000, "The request is not valid HTTP.") from None
    if conn.requests == 1 and (request.proxy_protocol_info or {}).get("client_addr"):
        conn.proxied = request.proxy_protocol_info
    request.proxy_protocol_info = conn.proxied
    names = [name for name, _ in request.headers]
    hosts = names.count("HOST")
    if hosts > 1 or not hosts and request.version > (1, 0):  # RFC 9112 section 3.2.
        raise RefusedRequest(40000, "There must be one Host header.")
    if request.version not in _VERSIONS:  # gunicorn's parser in C does so, too.
        raise RefusedRequest(40000, "The version of HTTP must be 1.0 or 1.1.")
    if "CONNECTION" in names and _asks_to_close(request):
        request.force_close()
    return request


def body_of(request: Any, start: int, limit: int) -> Callable[[bytearray], int | None]:
    """Return a function that finds the end of the body of a request, as :func:`sized_body` does.

    :param start: the position at which it begins.
    :param limit: its maximum size in bytes.
    """
    fields = dict(request.headers)
    if "TRANSFER-ENCODING" in fields:
        return ChunkedBody(start, limit).end
    return sized_body(start, limit, int(fields.get("CONTENT-LENGTH", 0)))


def add_body(request: Any, body: bytes) -> None:
    """Let the application read the body of a request."""
    pieces = (body[start : start + _PIECE] for start in range(0, len(body), _PIECE))
    request.unreader.iter = pieces


def expects_continue(request: Any) -> bool:
    """Return whether the client sends the body only after the status 100."""
    # gunicorn has refused every other value.
    return request.version > (1, 0) and "EXPECT" in dict(request.headers)


def respond(worker: Any, conn: Connection, *, is_last: bool) -> bool:
    """Let the application respond to the request of a connection.

    :param is_last: whether the connection is closed afterwards.
    :returns: whether it stays open.
    :raises ResponseFailed: if the application fails when a part of its response has been sent.
    :raises ClientGone: if the client does not read what the application produces.
    """
    request, began = conn.request, datetime.now()
    environ: dict[str, Any] = {}
    response: Any = None
    try:
        worker.cfg.pre_request(worker, request)
        response, environ = create(request, conn, conn.client, conn.server, worker.cfg)
        environ["wsgi.multithread"] = worker.may_wait
        if is_last:
            response.force_close()
        items = worker.wsgi(environ, response.start_response)
        try:
            _write(response, items, conn)
        finally:
            worker.log.access(response, request, environ, datetime.now() - began)
            if hasattr(items, "close"):
                items.close()
    except Exception as error:
        if response is None or not response.headers_sent or isinstance(error, ClientGone):
            raise
        raise ResponseFailed from error
    finally:
        worker.cfg.post_request(worker, request, environ, response)
    return not response.should_close()


def _write(response: Any, items: Iterable[bytes], conn: Connection) -> None:
    for item in items:
        if response.headers_sent:  # A single item, however large, waits without a thread.
            conn.wait_for_output(_MAX_OUTPUT)
        response.write(item)
        conn.flush()
    response.close()


def _asks_to_close(request: Any) -> bool:
    options = ",".join(value for name, value in request.headers if name == "CONNECTION")
    return "close" in (option.strip(" \t") for option in options.lower().split(","))
