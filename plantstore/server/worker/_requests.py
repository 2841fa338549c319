"""A request: gunicorn parses its head, and then the application is called."""

import re
from collections.abc import Callable
from datetime import datetime
from io import BytesIO
from typing import Any

from gunicorn.http.errors import NoMoreData
from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader

from ._client import Client, ClientGone
from ._environ import environ_of, first_environ
from ._framing import ChunkedBody, sized_body
from ._refusals import RefusedRequest
from ._response import Response

_VERSIONS = {(1, 0), (1, 1)}
# The parser of gunicorn copies a whole piece of a body for each of its chunks.
_PIECE = 16384
# An empty list is allowed (RFC 9110 section 10.1.1), but not by gunicorn.
_NO_EXPECTATION = re.compile(rb"\r\n(?i:expect):[ \t]*(?=\r\n[^ \t])")


class ResponseFailed(Exception):
    """The application has failed after a part of its response had been sent."""


def parse(cfg: Any, client: Client, size: int) -> Any:
    """Return the request of gunicorn whose head has arrived on a connection.

    :param cfg: the configuration of gunicorn.
    :param size: the size of the head in bytes.
    :raises Exception: if it is refused, by gunicorn or by this module.
    """
    client.requests += 1
    head = _NO_EXPECTATION.sub(b"", bytes(client.data[:size]))
    try:
        request = Request(cfg, IterUnreader([head]), client.address, client.requests)
    except (NoMoreData, ValueError):  # Some values fail only when Python converts them.
        raise RefusedRequest(40000, "The request is not valid HTTP.") from None
    if client.requests == 1 and (request.proxy_protocol_info or {}).get("client_addr"):
        client.proxied = request.proxy_protocol_info
    request.proxy_protocol_info = client.proxied
    client.fields = dict(request.headers)
    hosts = [name for name, _ in request.headers].count("HOST")
    if hosts > 1 or not hosts and request.version > (1, 0):  # RFC 9112 section 3.2.
        raise RefusedRequest(40000, "There must be one Host header.")
    if request.version not in _VERSIONS:  # gunicorn's parser in C does so, too.
        raise RefusedRequest(40000, "The version of HTTP must be 1.0 or 1.1.")
    if "CONNECTION" in client.fields and _asks_to_close(request):
        request.force_close()
    return request


def body_of(client: Client, start: int, limit: int) -> Callable[[bytearray], int | None]:
    """Return a function that finds the end of the body of a request, as :func:`sized_body` does.

    :param start: the position at which it begins.
    :param limit: its maximum size in bytes.
    """
    if "TRANSFER-ENCODING" in client.fields:
        return ChunkedBody(start, limit).end
    return sized_body(start, limit, int(client.fields.get("CONTENT-LENGTH", 0)))


def set_body(client: Client, body: bytes) -> None:
    """Let the application read the body of a request.

    :param body: what has arrived of it. If it is refused, more may follow.
    """
    if "TRANSFER-ENCODING" in client.fields:
        pieces = (body[start : start + _PIECE] for start in range(0, len(body), _PIECE))
        client.request.unreader.iter = pieces
        client.body = client.request.body
    else:
        client.body = BytesIO(body[: int(client.fields.get("CONTENT-LENGTH", 0))])


def expects_continue(client: Client) -> bool:
    """Return whether the client sends the body only after the status 100."""
    # gunicorn has refused every other value.
    return "EXPECT" in client.fields and client.request.version > (1, 0)


def respond(worker: Any, client: Client, *, is_last: bool) -> bool:
    """Let the application respond to the request of a connection.

    :param is_last: whether the connection is closed afterwards.
    :returns: whether it stays open.
    :raises ResponseFailed: if the application fails when a part of its response has been sent.
    :raises ClientGone: if the client does not read what the application produces.
    """
    request, began = client.request, datetime.now()
    environ: dict[str, Any] = {}
    response = Response(client, is_last=is_last)
    try:
        worker.cfg.pre_request(worker, request)
        client.environ = client.environ or first_environ(
            worker.cfg, client, may_wait=worker.may_wait
        )
        environ = environ_of(client)
        items = worker.wsgi(environ, response.start_response)
        try:
            for item in items:
                response.write(item)
            response.finish()
        finally:
            worker.log.access(response, request, environ, datetime.now() - began)
            if hasattr(items, "close"):
                items.close()
    except BaseException as error:
        if not response.headers_sent or isinstance(error, ClientGone):
            raise
        raise ResponseFailed from error
    finally:
        worker.cfg.post_request(worker, request, environ, response)
    return not response.closes


def _asks_to_close(request: Any) -> bool:
    options = ",".join(value for name, value in request.headers if name == "CONNECTION")
    return "close" in (option.strip(" \t") for option in options.lower().split(","))
