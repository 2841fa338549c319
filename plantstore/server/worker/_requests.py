"""A request whose head has been parsed: its body, and the call of the application."""

from datetime import datetime
from http import HTTPStatus
from io import BytesIO
from time import time
from types import SimpleNamespace
from typing import Any, ClassVar

from gunicorn.http import wsgi

from ._client import CannotRespond, Client
from ._framing import ChunkedBody, EndlessBody
from ._heads import environ_of

# The parser of gunicorn copies a whole piece of a body for each of its chunks.
_PIECE = 16384


class Response(wsgi.Response):
    """gunicorn's response, but its first lines are made once a second: 5 % of a create less."""

    _last: ClassVar[tuple[Any, list[str]]] = None, []

    def process_headers(self, headers: Any) -> None:
        """Set the headers, and drop those of an earlier call, which gunicorn would send, too."""
        self.headers: list[tuple[str, str]] = []
        self.response_length = None
        super().process_headers(headers)

    def default_headers(self) -> list[str]:
        """Return the status line and gunicorn's own headers, among which is the date."""
        connection = self.should_close(), self.chunked, self.upgrade
        state = int(time()), self.status, self.req.version, connection
        last, lines = self._last
        if state != last:
            lines = super().default_headers()
            Response._last = state, lines
        return [*lines]


def body_end(client: Client, limit: int) -> int | None:
    """Return the position after the body of a request, or ``None`` if more must arrive.

    :param limit: the maximum size of its content in bytes.
    :raises EndlessBody: if it is larger, or malformed.
    """
    if "TRANSFER-ENCODING" in client.fields:
        client.chunks = client.chunks or ChunkedBody(client.head_size, limit)
        return client.chunks.end(client.data)
    size = int(client.fields.get("CONTENT-LENGTH", 0))
    if size > limit:
        raise EndlessBody
    end = client.head_size + size
    return end if len(client.data) >= end else None


def set_body(client: Client, body: bytes) -> None:
    """Let the application read the body of a request.

    :param body: what has arrived of it. If it is refused, more may follow.
    """
    if client.chunks is None:
        client.body = BytesIO(body[: int(client.fields.get("CONTENT-LENGTH", 0))])
    else:
        pieces = (body[start : start + _PIECE] for start in range(0, len(body), _PIECE))
        client.request.unreader.iter = pieces
        client.body = client.request.body


def respond(worker: Any, client: Client, *, is_last: bool) -> bool:
    """Let the application respond to a request, and return whether the connection stays open.

    :param is_last: whether the connection is closed afterwards.
    :raises CannotRespond: if the client does not read what the application produces, or if the
        application fails when a part of its response has been sent.
    """
    request, began = client.request, datetime.now()
    environ: dict[str, Any] = {}
    response = Response(request, client, worker.cfg)
    response.must_close = is_last
    try:
        worker.cfg.pre_request(worker, request)
        environ = environ_of(worker, client)
        items = worker.wsgi(environ, response.start_response)
        try:
            for item in items:
                client.limit_output()
                response.write(item)
                client.flush()
            response.close()
        finally:
            worker.log.access(response, request, environ, datetime.now() - began)
            if hasattr(items, "close"):
                items.close()
    except BaseException as error:
        if not response.headers_sent or isinstance(error, CannotRespond):
            raise
        worker.log.exception("The application has failed")
        raise CannotRespond from error
    finally:
        worker.cfg.post_request(worker, request, environ, response)
    has_body = request.method != "HEAD" and response.status_code != HTTPStatus.NOT_MODIFIED
    is_too_short = has_body and response.sent < (response.response_length or 0)
    return not (is_too_short or response.should_close())


def send(worker: Any, client: Client, status: int, headers: dict[str, str], body: bytes) -> None:
    """Send a response that the application has not made. It is the last one of the connection."""
    method = bytes(client.data[:4]).decode("latin-1")  # A head that is refused has no request.
    request = client.request or SimpleNamespace(method=method, version=(1, 1))
    response = Response(request, client, worker.cfg)
    response.must_close = client.is_last = True
    fields = [("Content-Length", str(len(body))), *headers.items()]
    response.start_response(f"{status} {HTTPStatus(status).phrase}", fields)
    response.write(b"" if request.method == "HEAD" else body)
