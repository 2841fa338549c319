"""A request whose head has been parsed: its body, and the call of the application."""

from collections.abc import Callable
from datetime import datetime
from io import BytesIO
from typing import Any

from ._client import Client, ClientGone
from ._framing import ChunkedBody, sized_body
from ._heads import environ_of
from ._response import Response

# The parser of gunicorn copies a whole piece of a body for each of its chunks.
_PIECE = 16384


class ResponseFailed(Exception):
    """The application has failed after a part of its response had been sent."""


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
        environ = environ_of(worker, client)
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
