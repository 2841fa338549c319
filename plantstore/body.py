"""Reads a request body completely or not at all."""

from io import BytesIO
from typing import IO, TYPE_CHECKING

from flask import Request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.wsgi import get_content_length

from .errors import Refused

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

#: The default maximum size of a request body, in bytes.
DEFAULT_MAX_BODY = 1048576


def read_body(request: Request, limit: int) -> bytes:
    """Return a complete request body of media type ``application/json``.

    :param request: the current request.
    :param limit: the largest body in bytes.
    :raises Refused: 40001 for another media type or an encoded body, 41301 for a body over
        the limit, 40002 for a body that was cut short.
    """
    environ = request.environ
    if not _is_plain_json(environ):
        raise Refused(40001)
    declared = get_content_length(environ)
    if declared is not None and declared > limit:
        raise Refused(41301)
    body = _read(request, environ, _size(environ, declared, limit))
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
    # One byte more than the limit, to detect a body that is too large. Nothing if the server does
    # not mark the end of the input, because reading could then block forever.
    return limit + 1 if environ.get("wsgi.input_terminated") else 0


def _read(request: Request, environ: "WSGIEnvironment", size: int) -> bytes:
    opened = "stream" in vars(request)  # werkzeug keeps it there once the site uses it.
    try:
        body = _read_stream(request.stream if opened else environ["wsgi.input"], size)
        if opened and not body:
            body = request.get_data()  # werkzeug has cached what the site has read.
    except RequestEntityTooLarge:
        raise Refused(41301) from None
    except Exception as error:  # Each server raises another one for a malformed chunk.
        raise Refused(40002) from error
    if not opened:
        environ["wsgi.input"] = BytesIO(body)  # The site may read it after the view.
    return body


def _read_stream(stream: IO[bytes], size: int) -> bytes:
    body = stream.read(size)
    while len(body) < size and (more := stream.read(size - len(body))):
        body += more
    return body
