"""The log: its loggers, the lines about requests, and the formats text and JSON."""

import logging
import time
from typing import Any

from flask import g, request

from .responses import request_id
from .text import printable

# The first use of app.logger would add a handler to the logger of a site: only errors go there.
#: The logger of refused requests.
REFUSED: logging.Logger = logging.getLogger("plantstore")
#: The logger of new plants.
ADDED: logging.Logger = logging.getLogger("plantstore.added")
#: The logger of changed plants.
CHANGED: logging.Logger = logging.getLogger("plantstore.changed")
#: The logger of removed plants.
REMOVED: logging.Logger = logging.getLogger("plantstore.removed")
#: The logger of what a service serves: its store, its operations, its page.
SERVED: logging.Logger = logging.getLogger("plantstore.served")


def log(
    logger: logging.Logger,
    level: int,
    message: str,
    *arguments: object,
    number: int | None = None,
    fault: BaseException | None = None,
) -> None:
    """Log a line about the current request, with its client, its address and its id.

    The request has an id afterwards, also if the level is not enabled.

    :param logger: the logger.
    :param level: a level of :mod:`logging`.
    :param message: the message, in which each ``%`` stands for an argument.
    :param number: the number of the error, if the request is refused. See :func:`log_line`.
    :param fault: the exception whose traceback follows.
    """
    id = request_id(request.environ)
    if logger.isEnabledFor(level):
        about = g.get("plantstore_client"), request.remote_addr, id
        log_line(logger, level, message, arguments, about, number=number, fault=fault)


def log_line(
    logger: logging.Logger,
    level: int,
    message: str,
    arguments: tuple[object, ...],
    about: tuple[str | None, str | None, str],
    *,
    number: int | None = None,
    fault: BaseException | None = None,
) -> None:
    """Log a line about any request, also one that has not reached the application.

    :param about: the client, the address and the id of the request.
    :param number: the number of the error. The line begins with it, also before its arguments are
        put in: whatever groups lines by their text groups them by this number.
    """
    fields = ("plantstore_client", "plantstore_address", "plantstore_request_id")
    extra: dict[str, object] = dict(zip(fields, about, strict=True))
    if number is not None:
        message, extra["plantstore_error"] = f"{number}: {message}", number
    text = f"{message} (client: %r, address: %r, request: %s)"
    logger.log(level, text, *arguments, *about, exc_info=fault, extra=extra)


class TextFormatter(logging.Formatter):
    """Formats a line with the time in UTC, the process, the level and the message.

    Further lines, such as those of a traceback, are indented, so that no text of a client looks
    like a line of the log.
    """

    converter: Any = time.gmtime  # The time is in UTC.

    def __init__(self) -> None:
        line = "[%(asctime)s] [%(process)d] [%(levelname)s] %(message)s"
        super().__init__(line, "%Y-%m-%d %H:%M:%S +0000")

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return "\n  ".join(map(printable, super().format(record).split("\n")))


def make_formatter(format: object) -> logging.Formatter:
    """Return the formatter of a format: ``text`` or ``json``.

    A line of JSON has at least the members ``time``, ``process``, ``level`` and ``message``.

    :raises ValueError: for another format, or if python-json-logger is not installed.
    """
    if format == "text":
        return TextFormatter()
    if format != "json":
        raise ValueError("must be text or json")
    try:
        from pythonjsonlogger.json import JsonFormatter
    except ModuleNotFoundError:
        raise ValueError(
            "python-json-logger is missing: pip install 'plantstore[gunicorn]'"
        ) from None
    return JsonFormatter(
        "%(process)d %(levelname)s %(message)s",
        rename_fields={
            "levelname": "level",
            "exc_info": "traceback",
            "plantstore_client": "client",
            "plantstore_address": "address",
            "plantstore_request_id": "request_id",
            "plantstore_error": "error",
        },
        timestamp="time",
    )
