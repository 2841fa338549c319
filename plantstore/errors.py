"""The table of numbered errors, and the answer made from one."""

from functools import lru_cache
from typing import Any

from marshmallow import ValidationError
from marshmallow.exceptions import SCHEMA
from werkzeug.exceptions import HTTPException

from .responses import JSONResponse
from .schemas import error_schema

ALLOW = {"Allow": "OPTIONS, POST"}

#: By number, the status times 100 plus a counter: the message, and the headers beside it.
ERRORS: dict[int, tuple[str, dict[str, str]]] = {
    40001: (
        "Send Content-Type: application/json, no Content-Encoding,"
        " and no Transfer-Encoding but chunked.",
        {},
    ),
    40002: ("The body must be one whole JSON text in UTF-8, not nested too deeply.", {}),
    40003: ("The body must be a NewPlant.", {}),
    40004: ("A plant with this id is already there.", {}),
    40005: ("The host, or the protocol asked for, is not served here.", {}),
    40101: (
        "Send Authorization: Bearer <ACCESS_TOKEN>.",
        {"WWW-Authenticate": 'Bearer realm="plantstore"'},
    ),
    40102: (
        "The bearer token is malformed or not accepted.",
        {"WWW-Authenticate": 'Bearer realm="plantstore", error="invalid_token"'},
    ),
    40401: ("There is nothing at this path.", {}),
    40501: ("There is no such operation on this path.", ALLOW),
    41301: ("The body is larger than this service takes.", {}),
    50001: ("The service failed; its log says more.", {}),
    50301: ("The store can't be used now, try again later.", {"Retry-After": "5"}),
    50302: (
        "The plants are in one process's memory, but several processes serve them:"
        " nothing was stored.",
        {},
    ),
}


class Refused(Exception):
    """Raised with a number of :data:`ERRORS`, to end the request with that answer.

    ``message`` replaces the table's, where more can be said.
    """

    def __init__(self, number: int, message: str | None = None) -> None:
        super().__init__(number, message)
        self.number = number
        self.message = message


def answer(number: int, message: str | None = None) -> JSONResponse:
    """Return the answer with this number, an Error (interface section 7).

    ``message`` replaces the table's, where more can be said.
    """
    text, headers = ERRORS[number]
    error = _dump_ours(number, text if message is None else message)
    return JSONResponse(error, number // 100, headers.items())


def answer_for_site(refusal: HTTPException) -> JSONResponse | HTTPException:
    """Return, as an Error, what the site around us refuses: its hooks, its extensions.

    The number is its status times 100. A refusal that brings a response of its own, or is
    none by its status, is left alone.
    """
    status = refusal.code or 0
    if refusal.response is not None or not 400 <= status < 600:
        return refusal
    message = ": ".join(str(part) for part in (refusal.name, refusal.description) if part)
    headers = [header for header in refusal.get_headers() if header[0].lower() != "content-type"]
    return JSONResponse(_dump(status * 100, message), status, headers)


def _dump(number: int, message: str) -> dict[str, Any]:
    error: dict[str, Any] = error_schema.dump({"error": number, "message": message})
    return error


# Our own messages are few, and none has anything in it of what was sent.
_dump_ours = lru_cache(_dump)


def describe_faults(error: ValidationError) -> str:
    """Say in one line which members are at fault, in the order of their names."""
    messages: dict[str, list[str]] = error.messages_dict
    return " ".join(
        f"{'body' if member == SCHEMA else member}: {' '.join(texts)}"
        for member, texts in sorted(messages.items())
    )
