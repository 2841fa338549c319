"""The id of a request, and the lines of the log about it."""

import logging
import re
import secrets
from typing import Any

from flask import Response, current_app, g, request

from .bearer import PREFIX
from .errors import ErrorResponse

#: The header with the id of a request.
HEADER = "X-Request-ID"

# The first use of app.logger would add a handler to the logger of a site: only errors go there.
#: The logger of refused requests.
REFUSED: logging.Logger = logging.getLogger("plantstore")
#: The logger of new plants.
ADDED: logging.Logger = logging.getLogger("plantstore.added")
#: The logger of removed plants.
REMOVED: logging.Logger = logging.getLogger("plantstore.removed")
# The ids that are accepted. They can be in a log and in a header as they are.
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~+/=:@-]{0,127}")


def request_id() -> str:
    """Return the id of the current request, which is also in ``g.plantstore_request_id``.

    It is that of the client if it has at most 128 characters, all of them ASCII letters, digits or
    ``._~+/=:@-``, and begins with a letter or digit. Otherwise it is random.
    """
    if "plantstore_request_id" not in g:
        given = request.headers.get(HEADER, "")
        g.plantstore_request_id = given if _is_accepted(given) else secrets.token_hex(16)
    id: str = g.plantstore_request_id
    return id


def _is_accepted(given: str) -> bool:
    if _REQUEST_ID.fullmatch(given) is None:
        return False
    # The log must not have a token that a client has sent in the wrong header.
    _, *credentials = request.headers.get("Authorization", "").split() or [""]
    return PREFIX not in given and not any(part in given for part in credentials)


def log(
    logger: logging.Logger,
    level: int,
    message: str,
    *arguments: object,
    error: BaseException | None = None,
) -> None:
    """Log a line about the current request, with its client, its address and its id.

    :param logger: the logger.
    :param level: a level of :mod:`logging`.
    :param message: the message, in which each ``%`` stands for an argument.
    :param error: the exception whose traceback follows.
    """
    if not logger.isEnabledFor(level):
        return
    about: dict[str, Any] = {
        "plantstore_client": g.get("plantstore_client"),
        "plantstore_address": request.remote_addr,
        "plantstore_request_id": request_id(),
    }
    text = f"{message} (client: %r, address: %r, request: %s)"
    logger.log(level, text, *arguments, *about.values(), exc_info=error, extra=about)


def finish(response: Response) -> Response:
    """Add the id of the request to its response, and log the response if it is an Error."""
    response.headers[HEADER] = request_id()
    if isinstance(response, ErrorResponse):
        number, fault = response.number, response.fault
        if fault is None:
            log(REFUSED, logging.INFO, "%d: %s", number, response.reason)
        else:
            log(current_app.logger, logging.ERROR, "%d: %s", number, response.reason, error=fault)
    return response
