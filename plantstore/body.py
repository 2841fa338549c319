"""Reading the body of a request, whole or not at all."""

from io import BytesIO
from typing import IO, TYPE_CHECKING

from flask import Request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wsgi import get_content_length

from .errors import Refused

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


DEFAULT_MAX_BODY = 1048576


def read_body(request: Request, limit: int) -> bytes:
    """Return a request's body of plain ``application/json``, at most ``limit`` bytes.

    Raises :exc:`~plantstore.errors.Refused`: 40001 for another media type or a coding,
    41301 for a body over the limit, 40002 for one that was cut short.
    """
    environ = request.environ
    if not _is_plain_json(environ):
        raise Refused(40001)
    declared = get_content_length(environ)
    if declared is not None and declared > limit:
        raise Refused(41301)
    body = _read(request, _size(environ, declared, limit))
    if len(body) > limit:
        raise Refused(41301)
    if declared is not None and len(body) < declared:
        raise Refused(40002)
    return body


def _is_plain_json(environ: "WSGIEnvironment") -> bool:
    media_type = environ.get("CONTENT_TYPE", "").partition(";")[0].strip(" \t").lower()
    transfer_coding = environ.get("HTTP_TRANSFER_ENCODING", "chunked").lower()
    return (
        media_type == "application/json"
        and transfer_coding == "chunked"
        and not environ.get("HTTP_CONTENT_ENCODING")
    )


def _size(environ: "WSGIEnvironment", declared: int | None, limit: int) -> int:
    if declared is not None:
        return declared
    # One byte more than allowed tells a body that fits from one that was cut. Where the
    # server doesn't mark the end of the input, reading on could wait for ever.
    return limit + 1 if environ.get("wsgi.input_terminated") else 0


def _read(request: Request, size: int) -> bytes:
    opened = "stream" in vars(request)  # Kept there by werkzeug, once the site has asked for it.
    try:
        body = _read_stream(request.stream if opened else request.environ["wsgi.input"], size)
        if opened and not body:
            body = request.get_data()  # What the site has read and kept.
    except RequestEntityTooLarge:
        raise Refused(41301) from None
    except Exception as error:  # Each server has its own, for a bad chunk or a lost client.
        raise Refused(40002) from error
    if not opened:
        request.environ["wsgi.input"] = BytesIO(body)  # The site may want to read it after us.
    return body


def _read_stream(stream: IO[bytes], size: int) -> bytes:
    body = stream.read(size)
    while len(body) < size and (more := stream.read(size - len(body))):
        body += more
    return body
