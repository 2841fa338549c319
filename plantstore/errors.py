"""The numbered errors, and the response of each (interface section 7)."""

from collections.abc import Iterable
from json import JSONDecodeError
from typing import Any

from marshmallow import ValidationError
from marshmallow.exceptions import SCHEMA
from werkzeug.exceptions import ClientDisconnected, HTTPException, RequestEntityTooLarge

from .responses import JSONResponse

#: The message and the headers of each error. Its number is the HTTP status times 100, plus a
#: counter.
ERRORS: dict[int, tuple[str, dict[str, str]]] = {
    40001: (
        "Send Content-Type: application/json, no Content-Encoding,"
        " and no Transfer-Encoding but chunked.",
        {},
    ),
    # A complete body that is not JSON has another message: describe_json_error.
    40002: (
        "The body could not be read completely: it was cut short, took longer than ten seconds to"
        " arrive, had malformed or too many small chunks, or was already read by the site.",
        {},
    ),
    40003: ("The body must be a NewPlant.", {}),
    40004: ("A plant with this id already exists.", {}),
    40005: (
        "The Host header is missing, invalid or not allowed, or the request is for a WebSocket.",
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
    40401: ("There is nothing at this path. Plants are created with POST /plants.", {}),
    40402: ("There is no plant with this id.", {}),
    40501: ("There is no such operation on this path.", {}),
    41301: ("The body is larger than the limit of this service.", {}),
    50001: ("The service failed. The reason is in its log.", {}),
    50301: ("The store is unavailable now. Try again later.", {"Retry-After": "5"}),
    50302: (
        "The plants are in the memory of one process, but several processes run the service."
        " The request was not executed.",
        {},
    ),
    50303: ("The store is not set up for plants; the log says what is wrong.", {}),
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
        super().__init__(f"{number}: {message or ERRORS[number][0]}")
        self.number = number
        self.message = message
        self.reason = reason


class ErrorResponse(JSONResponse):
    """The response of an Error, with what the log says about it.

    :param number: the number of the error.
    :param message: its message.
    :param headers: its headers, as pairs of name and value.
    :param reason: the reason in the log. It must not contain a part of the request.
    :param fault: the exception whose traceback is in the log, or ``None``.
    """

    def __init__(
        self,
        number: int,
        message: str,
        headers: Iterable[tuple[str, str]],
        reason: str,
        fault: BaseException | None,
    ) -> None:
        super().__init__({"error": number, "message": message}, number // 100, headers)
        self.number = number
        self.reason = reason
        self.fault = fault


def error_response(
    number: int,
    message: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
    *,
    reason: str = "",
    fault: BaseException | None = None,
) -> ErrorResponse:
    """Return the response of an error.

    :param number: a key of :data:`ERRORS`.
    :param message: replaces the message of the table. By default, that message is sent.
    :param headers: headers in addition to those of the table, as pairs of name and value.
    :param reason: the reason in the log. By default, it is the message of the table.
    :param fault: the exception whose traceback is in the log. By default, there is none.
    """
    text, own_headers = ERRORS[number]
    all_headers = [*own_headers.items(), *headers]
    sent = text if message is None else message
    return ErrorResponse(number, sent, all_headers, reason or text, fault)


def site_error_response(refusal: HTTPException) -> JSONResponse | HTTPException:
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
    return ErrorResponse(status * 100, message, headers, reason, fault)


def describe_faults(error: ValidationError) -> str:
    """Return what is wrong with each invalid field, in alphabetical order.

    It is one line of at most 500 characters.
    """
    return _one_line(_describe("", {**error.messages_dict}))


def describe_json_error(error: JSONDecodeError) -> str:
    """Return what is wrong with a text that cannot be read as JSON, and where if that is known.

    It is one line of at most 500 characters, with at most 20 characters of the text.
    """
    if not error.doc or error.doc.isspace():
        return "The body is empty. Send a JSON object."
    text = f"The body cannot be read as JSON: {error.msg}"
    if error.pos < 0:
        return _one_line(f"{text}.")
    place = f"at line {error.lineno}, column {error.colno}"
    found = error.doc[error.pos : error.pos + 20]
    return _one_line(f"{text}, {place}: {found}" if found else f"{text}, {place}.")


def _one_line(text: str) -> str:
    """Return the start of a text, with characters that are not printable as escapes."""
    start = text[:500]
    if not start.isprintable():
        start = "".join(one if one.isprintable() else repr(one)[1:-1] for one in start)
    return start if len(start) <= 500 and len(text) <= 500 else f"{start[:499]}…"


def _describe(field: str, messages: Any) -> str:
    if isinstance(messages, dict):
        prefix = f"{field}." if field else ""
        named = {f"{prefix}{'body' if key == SCHEMA else key}": messages[key] for key in messages}
        return " ".join(_describe(name, named[name]) for name in sorted(named))
    texts = [messages] if isinstance(messages, str) else messages
    return f"{field}: {' '.join(map(str, texts))}"
