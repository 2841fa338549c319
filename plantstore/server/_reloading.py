"""A reload (SIGHUP) that is refused if a setting is wrong: otherwise it would end the service."""

from collections.abc import Callable
from functools import partial
from typing import Any

#: A function that raises RuntimeError if a setting of the service is wrong.
Check = Callable[[Any], None]


def guard_reloads(server: Any, check: Check, report: Callable[[Any], None]) -> None:
    """Let the main process of gunicorn refuse a reload with a wrong setting.

    :param server: the main process.
    :param check: the check of the settings.
    :param report: writes to the log what is served after a reload.
    """
    server.handle_hup = partial(_handle_hup, server, server.handle_hup, check, report)


def _handle_hup(
    server: Any, reload: Callable[[], None], check: Check, report: Callable[[Any], None]
) -> None:
    try:
        check(server)
    except RuntimeError as error:
        message = "%s. The service continues as before: correct this, then reload again."
        server.log.error(message, error)
        return
    reload()
    report(server)
