"""Reads a request body completely or not at all."""

from io import BytesIO
from typing import Any

from flask import Request, request
from werkzeug.wsgi import get_content_length

from .errors import ERRORS, Refused

#: The default maximum size of a request body, in bytes.
DEFAULT_MAX_BODY = 65536

_proxy: Any = request


def read_body(limit: int) -> bytes:
    """Return the complete body of the current request, of media type ``application/json``.

    The functions of a site that run after the view can read the body again, as they would without
    it. If this function raises 40002 or 41301, they read an empty body.

    :param limit: the largest body in bytes. If the site's limit is lower, it applies instead.
    :raises Refused: 40001 for another media type or an encoded body, 41301 for a body over
        the limit, 40002 for a body that was cut short.
    """
    # Each access through the proxy would take time.
    current: Request = _proxy._get_current_object()  # noqa: SLF001
    environ = current.environ
    if not _is_plain_json(environ):
        raise Refused(40001)
    site_limit = current.max_content_length
    if site_limit is not None:
        limit = min(limit, int(site_limit))
    body = b""
    try:
        body = _read(current, get_content_length(environ), limit)
    finally:
        # The input has been read. If it is too large, Flask would raise 413 when the site reads it.
        current.stream = environ["wsgi.input"] = BytesIO(body)
    return body


def _is_plain_json(environ: dict[str, Any]) -> bool:
    media_type = environ.get("CONTENT_TYPE", "").partition(";")[0].strip(" \t").lower()
    transfer_coding = environ.get("HTTP_TRANSFER_ENCODING", "chunked").lower()
    return (
        media_type == "application/json"
        and transfer_coding == "chunked"
        and not environ.get("HTTP_CONTENT_ENCODING")
    )


def _read(request: Request, declared: int | None, limit: int) -> bytes:
    if declared is not None and declared > limit:
        raise _too_large(limit)
    try:
        body = _read_to_limit(request, declared, limit)
    except Exception as error:  # Each server raises another one for a malformed chunk.
        raise Refused(40002) from error
    if len(body) > limit:
        raise _too_large(limit)
    if declared is not None and len(body) < declared:
        raise Refused(40002)
    return body


def _too_large(limit: int) -> Refused:
    return Refused(41301, f"{ERRORS[41301][0]} Send at most {limit} bytes.")


def _read_to_limit(request: Request, declared: int | None, limit: int) -> bytes:
    """Return the body. If it is too large, return a part that is longer than the limit."""
    environ = request.environ
    is_open = "stream" in vars(request)  # werkzeug keeps it there once the site uses it.
    # Reading beyond the end of the body could block forever, unless the server marks the end.
    if not environ.get("wsgi.input_terminated") and (is_open or not declared):
        return request.get_data() if declared else b""
    pieces, size = bytearray(), limit + 1 if declared is None else declared
    while len(pieces) < size and (more := environ["wsgi.input"].read(size - len(pieces))):
        pieces += more  # A bytearray grows in place: thousands of small pieces stay cheap.
    if is_open:
        request.stream = BytesIO()  # get_data then returns only what it has cached for the site.
        return request.get_data(cache=False) + pieces
    return bytes(pieces)
