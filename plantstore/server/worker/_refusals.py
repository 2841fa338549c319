"""The responses to what is not valid HTTP."""

from http import HTTPStatus
from typing import Any

from gunicorn.util import http_date

# The Error for a fault of the service.
_FAILED = (50001, "The service failed. The reason is in its log.")
# The numbers and the messages of the Errors for the exceptions by which gunicorn refuses a request.
_REFUSALS: dict[str, tuple[int, str]] = {
    "ForbiddenProxyRequest": (40300, "The proxy is not allowed."),
    "LimitRequestLine": (41400, "The request line is too long."),
    "ExpectationFailed": (41700, "The Expect header must be 100-continue."),
    "LimitRequestHeaders": (43100, "The headers are too many or too large."),
    "InvalidRequestLine": (40000, "The request line is invalid."),
    "InvalidRequestMethod": (40000, "The method is invalid."),
    "InvalidHTTPVersion": (40000, "The version of HTTP is invalid."),
    "InvalidHeader": (40000, "A header is invalid."),
    "InvalidHeaderName": (40000, "The name of a header is invalid."),
    "UnsupportedTransferCoding": (40000, "The Transfer-Encoding must be chunked."),
    "ObsoleteFolding": (40000, "A header must be on one line."),
    "ParseException": (40000, "The request is not valid HTTP."),
    # The path does not begin with the value of the variable SCRIPT_NAME.
    "ConfigurationProblem": (40401, "There is nothing at this path."),
    "BaseException": _FAILED,
}


class RefusedRequest(Exception):
    """A request that the worker refuses: the number and the message of its Error."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(number, message)
        self.number = number
        self.message = message


class InvalidTLS(RefusedRequest):
    """The client has not sent valid TLS, so it can get no response.

    :param reason: OpenSSL's name of the reason, such as ``NO_SHARED_CIPHER``.
    """

    def __init__(self, reason: str) -> None:
        text = reason.lower().replace("_", " ")
        super().__init__(40000, f"The request is not valid TLS: {text}.")


def refusal(error: Any) -> tuple[int, str]:
    """Return the number and the message of the Error for an exception of gunicorn or the worker."""
    if isinstance(error, RefusedRequest):
        return error.number, error.message
    names = (kind.__name__ for kind in type(error).__mro__)
    return next(_REFUSALS[name] for name in names if name in _REFUSALS)


def response(status: int, body: bytes, headers: dict[str, str], *, with_body: bool) -> bytes:
    """Return the response to a request, after which the connection is closed.

    :param with_body: whether the body is sent, which it is not after a HEAD request.
    """
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Connection: close",
        f"Date: {http_date()}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    )
    return "\r\n".join([*head, "", ""]).encode() + (body if with_body else b"")
