"""The log of the service under gunicorn: one format for the lines of both."""

import logging
import os
from logging.handlers import SysLogHandler
from typing import Any

from gunicorn.glogging import Logger as GunicornLogger

from ..log import ADDED, TextFormatter, make_formatter
from ..settings import LOG, Settings, SettingsError
from ..text import printable

# The fields that each line about a request has, with their names in gunicorn.
_ABOUT = {
    "plantstore_client": "{plantstore.client}e",
    "plantstore_address": "h",
    "plantstore_request_id": "{x-request-id}o",
}


class Logger(GunicornLogger):
    """Writes the lines of gunicorn and of the service to the same place, in one format."""

    def setup(self, cfg: Any) -> None:
        """Apply the configuration of gunicorn, unless it configures all loggers itself."""
        super().setup(cfg)
        if cfg.logconfig or cfg.logconfig_dict or cfg.logconfig_json:
            return
        logging.captureWarnings(True)
        for name in ("plantstore", "py.warnings"):
            logger = logging.getLogger(name)
            logger.handlers = self.error_log.handlers
            logger.propagate = False
        logging.getLogger("plantstore").setLevel(self.loglevel)
        # A line for each new plant would be slow.
        ADDED.setLevel(logging.WARNING if self.loglevel > logging.DEBUG else logging.DEBUG)
        formatter = _formatter(cfg)
        handlers = [*self.error_log.handlers, *self.access_log.handlers]
        # The last one is for the warnings and errors of loggers that have no handler.
        for handler in filter(None, [*handlers, logging.lastResort]):
            handler.setFormatter(formatter)
        _set_prefix(cfg, self.error_log, "error")
        _set_prefix(cfg, self.access_log, "access")
        self.access_log.addFilter(_add_fields)

    def atoms(self, resp: Any, req: Any, environ: Any, request_time: Any) -> dict[str, Any]:
        """Return the fields of a request. The path has no line break, whatever a client sends."""
        atoms = super().atoms(resp, req, environ, request_time)
        return {**atoms, "U": printable(environ.get("PATH_INFO", ""))}


def _formatter(cfg: Any) -> logging.Formatter:
    try:
        # gunicorn sets the variables of its option --env later.
        return make_formatter(Settings({**os.environ, **cfg.env})[LOG])
    except SettingsError:  # It is reported when the service starts.
        return TextFormatter()


def _set_prefix(cfg: Any, logger: logging.Logger, name: str) -> None:
    """Let each line for syslog begin with gunicorn's prefix. gunicorn's formatter is not used."""
    prefix = cfg.syslog_prefix or cfg.proc_name.replace(":", ".")
    for handler in logger.handlers:
        if isinstance(handler, SysLogHandler):
            handler.ident = f"gunicorn.{prefix}.{name}: "


def _add_fields(record: logging.LogRecord) -> bool:
    """Add the fields of a request to its line, for the JSON lines."""
    atoms: Any = record.args
    record.method, record.path = atoms["m"], atoms["U"]
    record.status, record.seconds = int(atoms["s"] or 0), float(atoms["L"])
    for name, atom in _ABOUT.items():
        setattr(record, name, None if atoms[atom] == "-" else atoms[atom])
    return True
