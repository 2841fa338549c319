"""The table of numbered errors, and the answer made from one."""

from marshmallow import ValidationError
from marshmallow.exceptions import SCHEMA

from .responses import JSONResponse
from .schemas import error_response

ALLOW = {"Allow": "OPTIONS, POST"}

#: By number, the status times 100 plus a counter: the message, and the headers beside it.
ERRORS: dict[int, tuple[str, dict[str, str]]] = {
    40001: ("Content-Type must be application/json; no Content-Encoding, no compression.", {}),
    40002: ("The body must be one JSON text in UTF-8, as long as was declared.", {}),
    40003: ("The body must be a NewPlant.", {}),
    40004: ("A plant with this id is already there.", {}),
    40101: (
        "Credentials are needed: Authorization: Bearer <ACCESS_TOKEN>.",
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
    50301: ("The store can't take the plant now; try again.", {"Retry-After": "5"}),
    50302: ("This store lives in one process, and several serve it; no plant was stored.", {}),
}


class Refused(Exception):
    """Raised with a number of :data:`ERRORS` to end the request with that answer."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


def answer(error: int, message: str | None = None) -> JSONResponse:
    """Make the answer with this number: an Error (interface section 7).

    ``message`` takes the place of the table's, for what can be said more exactly.
    """
    text, headers = ERRORS[error]
    body = error_response.dump({"error": error, "message": text if message is None else message})
    return JSONResponse(body, error // 100, headers.items())


def faults(error: ValidationError) -> str:
    """Say in one line which members are at fault, in the order of their names."""
    messages: dict[str, list[str]] = error.messages_dict
    return " ".join(
        f"{'body' if member == SCHEMA else member}: {' '.join(texts)}"
        for member, texts in sorted(messages.items())
    )
