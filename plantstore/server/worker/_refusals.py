"""The Errors for what is not valid HTTP."""

from typing import Any

#: The Error for a fault of the service.
FAILED = (50001, "The service failed. The reason is in its log.")
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
}


class RefusedRequest(Exception):
    """A request that the worker refuses. ``args`` has the number and the message of its Error."""


def refusal(error: Any) -> tuple[int, str]:
    """Return the number and the message of the Error for an exception of gunicorn or the worker."""
    if isinstance(error, RefusedRequest):
        number, message = error.args
        return number, message
    names = (kind.__name__ for kind in type(error).__mro__)
    return next((_REFUSALS[name] for name in names if name in _REFUSALS), FAILED)
