"""The responses to what is not valid HTTP."""

import ssl
from http import HTTPStatus

from gunicorn import util
from gunicorn.http import errors

# The Error for a fault of the service.
_FAILED = (50001, "The service failed. The reason is in its log.")
# The numbers and the messages of the Errors for the exceptions by which gunicorn refuses a request.
_REFUSALS: dict[type[Exception], tuple[int, str]] = {
    errors.ForbiddenProxyRequest: (40300, "The proxy is not allowed."),
    errors.LimitRequestLine: (41400, "The request line is too long."),
    errors.ExpectationFailed: (41700, "The Expect header must be 100-continue."),
    errors.LimitRequestHeaders: (43100, "The headers are too many or too large."),
    errors.UnsupportedTransferCoding: (50100, "The Transfer-Encoding must be chunked."),
    errors.ConfigurationProblem: _FAILED,
    errors.InvalidResponseHeader: _FAILED,
    errors.InvalidResponseHeaderName: _FAILED,
    errors.InvalidRequestLine: (40000, "The request line is invalid."),
    errors.InvalidRequestMethod: (40000, "The method is invalid."),
    errors.InvalidHTTPVersion: (40000, "The version of HTTP is invalid."),
    errors.InvalidHeader: (40000, "A header is invalid."),
    errors.InvalidHeaderName: (40000, "The name of a header is invalid."),
    errors.ObsoleteFolding: (40000, "A header must be on one line."),
    errors.ParseException: (40000, "The request is not valid HTTP."),
    ssl.SSLError: (40000, "The request is not valid TLS."),
    Exception: _FAILED,
}


def refusal(error: BaseException) -> tuple[int, str]:
    """Return the number and the message of the Error for an exception of gunicorn."""
    if isinstance(error, errors.InvalidHeader) and error.hdr == "HOST":
        return 40005, "There must be one Host header."
    return next(_REFUSALS[kind] for kind in _REFUSALS if isinstance(error, kind))


def response(status: int, body: bytes, headers: dict[str, str], *, with_body: bool) -> bytes:
    """Return the response to a request, after which the connection is closed.

    :param with_body: whether the body is sent, which it is not after a HEAD request.
    """
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Connection: close",
        f"Date: {util.http_date()}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    )
    return "\r\n".join([*head, "", ""]).encode() + (body if with_body else b"")
