"""The format of the log of the standalone service."""

import logging
import time
from collections.abc import Callable

from ..text import printable


class TextFormatter(logging.Formatter):
    """Formats a line with the time in UTC, the process, the level and the message.

    Further lines, such as those of a traceback, are indented, so that no text of a client looks
    like a line of the log.
    """

    def __init__(self) -> None:
        line = "[%(asctime)s] [%(process)d] [%(levelname)s] %(message)s"
        super().__init__(line)

    def formatTime(  # noqa: N802
        self, record: logging.LogRecord, datefmt: str | None = None
    ) -> str:
        """Return the time of a record in UTC."""
        return time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime(record.created))

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return "\n  ".join(map(printable, super().format(record).split("\n")))


def json_formatter() -> logging.Formatter:
    """Return the formatter of JSON lines.

    Each line has at least the members ``time``, ``process``, ``level`` and ``message``.

    :raises ModuleNotFoundError: if python-json-logger is not installed.
    """
    from pythonjsonlogger.json import JsonFormatter

    return JsonFormatter(
        "%(process)d %(levelname)s %(message)s",
        rename_fields={
            "levelname": "level",
            "exc_info": "traceback",
            "plantstore_client": "client",
            "plantstore_address": "address",
            "plantstore_request_id": "request_id",
        },
        timestamp="time",
    )


#: The formatters by the values of ``PLANTSTORE_LOG``.
FORMATTERS: dict[str, Callable[[], logging.Formatter]] = {
    "text": TextFormatter,
    "json": json_formatter,
}
