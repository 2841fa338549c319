"""The numbered errors: their messages, exception, response and handlers.

docs/errors.md explains each of them.
"""

import logging
from collections.abc import Iterable

from flask import Blueprint, current_app
from werkzeug.exceptions import (
    ClientDisconnected,
    HTTPException,
    InternalServerError,
    RequestEntityTooLarge,
    default_exceptions,
)

from .log import REFUSED, log
from .responses import ServiceResponse, json_response
from .stores.base import PlantExists, StoreMisconfigured, StoreUnavailable
from .text import one_line

#: The URL of the published page docs/errors.md. It is empty until the documents are published.
ERRORS_PAGE = ""
#: The message and the headers of each error. Its number is the HTTP status times 100, plus a
#: counter. The errors of requests that the server refuses are in ``server/worker/_refusals.py``.
ERRORS: dict[int, tuple[str, dict[str, str]]] = {
    40001: (
        "Send Content-Type: application/json, no Content-Encoding,"
        " and no Transfer-Encoding but chunked.",
        {},
    ),
    # If the body is complete but is not JSON, json_text.describe_json_error makes the message.
    40002: (
        "The body could not be read completely: it was cut short, took too long to arrive,"
        " had malformed or too many small chunks, or was already read by the site.",
        {},
    ),
    40003: ("The body must be a NewPlant, or in an update a Plant.", {}),
    40004: ("A plant with this id already exists.", {}),
    40005: (
        "The Host header is missing, repeated or not allowed, or the request is for a WebSocket.",
        {},
    ),
    40006: ("A query parameter is unknown or invalid.", {}),
    40101: (
        "Send Authorization: Bearer <ACCESS_TOKEN>.",
        {"WWW-Authenticate": 'Bearer realm="plantstore"'},
    ),
    40102: (
        "The bearer token is malformed or not accepted.",
        {"WWW-Authenticate": 'Bearer realm="plantstore", error="invalid_token"'},
    ),
    40301: ("This token does not have the right to this operation.", {}),
    40401: ("There is nothing at this path.", {}),
    40402: ("There is no plant with this id.", {}),
    40501: ("There is no such operation on this path.", {}),
    41301: ("The body is larger than the limit of this service.", {}),
    50001: ("The service failed. The reason is in its log.", {}),
    50301: ("The store is unavailable now. Try again later.", {"Retry-After": "5"}),
    50302: (
        "The plants are in the memory of one process, but the server says that several processes"
        " run the service. The request was not executed.",
        {},
    ),
    50303: ("The store is not set up for plants; the log says what is wrong.", {}),
    50304: ("The tokens cannot be read now. Try again later.", {"Retry-After": "5"}),
}

# The exceptions of werkzeug for a body that it cannot read, and the number of the same error.
_UNREADABLE: dict[type[HTTPException], int] = {
    RequestEntityTooLarge: 41301,
    ClientDisconnected: 40002,
}


class Refused(Exception):
    """An exception that ends the current request with an error of :data:`ERRORS`.

    :param number: the number of the error.
    :param message: replaces the message of the table. By default, that message is sent.
    :param reason: the reason in the log. By default, it is the message of the table.
    """

    def __init__(self, number: int, message: str | None = None, *, reason: str = "") -> None:
        super().__init__(number, message)
        self.number = number
        self.message = message
        self.reason = reason


def error_response(
    number: int,
    message: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
    *,
    reason: str = "",
    fault: BaseException | None = None,
) -> ServiceResponse:
    """Log an Error, a 5xx at level ERROR, another one at INFO, and return its response.

    :param number: its number. Its headers are those of :data:`ERRORS`.
    :param message: its message. By default, it is that of :data:`ERRORS`.
    :param headers: more headers, as pairs of name and value.
    :param reason: the reason in the log. It must not contain a part of the request. By default, it
        is the message of :data:`ERRORS`.
    :param fault: the unexpected exception whose traceback is in the log.
    """
    text, own_headers = ERRORS.get(number, ("", {}))
    data = {"error": number, "message": text if message is None else message}
    response = json_response(data, number // 100, [*own_headers.items(), *headers])
    response.number = number
    is_fault = number >= 50000
    logger, level = (current_app.logger, logging.ERROR) if is_fault else (REFUSED, logging.INFO)
    log(logger, level, "%s", reason or text, number=number, fault=fault)
    return response


def site_error_response(refusal: HTTPException) -> ServiceResponse | HTTPException:
    """Return the Error for a request that a hook or an extension of the site refuses.

    Its number is the HTTP status times 100. If the site has tried to read a body that is too large
    or cut short, it is 41301 or 40002.

    :param refusal: the exception that the hook or the extension has raised.
    :returns: the Error; or the exception itself if it has a response of its own, or if its
        status is not that of an error.
    """
    for exception, number in _UNREADABLE.items():
        # If the site raises the exception by abort, it has another description.
        if isinstance(refusal, exception) and refusal.description == exception.description:
            return error_response(number)
    status = refusal.code or 0
    if refusal.response is not None or not 400 <= status < 600:
        return refusal
    message = ": ".join(str(part) for part in (refusal.name, refusal.description) if part)
    headers = [header for header in refusal.get_headers() if header[0].lower() != "content-type"]
    reason = f"The site refuses the request: {refusal.name}."
    fault = refusal if status >= 500 else None
    return error_response(status * 100, message, headers, reason=reason, fault=fault)


def handle_errors(blueprint: Blueprint) -> None:
    """Respond with an Error to each exception in a view or a hook of a blueprint.

    The other pages of a site are not affected.
    """
    handle = blueprint.register_error_handler
    handle(Refused, lambda it: error_response(it.number, it.message, reason=it.reason))
    handle(PlantExists, lambda error: error_response(40004))
    handle(StoreUnavailable, _store_unavailable)
    handle(HTTPException, site_error_response)
    # Flask prefers the site's handler for a status to the blueprint's handler for HTTPException.
    for status in default_exceptions:
        handle(status, site_error_response)
    # A handler for Exception would hide the traceback from a developer in debug mode.
    handle(InternalServerError, service_failed)


def service_failed(error: InternalServerError) -> ServiceResponse:
    """Return the Error for an exception that nothing else handles."""
    fault = error.original_exception or error
    return error_response(50001, reason="The service failed.", fault=fault)


def _store_unavailable(error: StoreUnavailable) -> ServiceResponse:
    # An outage causes many of these lines, so they have no traceback.
    number, state = 50301, "unavailable"
    if isinstance(error, StoreMisconfigured):
        number, state = 50303, "not set up for plants"
    return error_response(number, reason=f"The store is {state}: {one_line(error)}")
