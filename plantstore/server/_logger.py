"""The log of the service under gunicorn: one format for the lines of both."""

import logging
import os
from typing import Any

from gunicorn.glogging import Logger as GunicornLogger

from ..errors import ADDED
from ..observability.log_format import TextFormatter
from ..settings import Settings, SettingsError


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
        # A line for each new plant would take 30 % of the time of a create.
        ADDED.setLevel(logging.WARNING if self.loglevel > logging.DEBUG else logging.DEBUG)
        # For the warnings and errors of loggers that have no handler.
        logging.lastResort = logging.StreamHandler()
        logging.lastResort.setLevel(logging.WARNING)
        logging.lastResort.setFormatter(self._formatter())

    def _formatter(self) -> logging.Formatter:
        try:
            # gunicorn sets the variables of its option --env later.
            return Settings({**os.environ, **self.cfg.env}).log_formatter()
        except SettingsError:  # It is reported when the service starts.
            return TextFormatter()

    def _set_handler(self, log: Any, output: Any, fmt: Any, stream: Any = None) -> None:
        super()._set_handler(log, output, self._formatter(), stream)

    def _set_syslog_handler(self, log: Any, cfg: Any, fmt: Any, name: str) -> None:
        super()._set_syslog_handler(log, cfg, fmt, name)
        log.handlers[-1].setFormatter(self._formatter())
