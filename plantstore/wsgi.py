"""The standalone service, for any WSGI server."""

import logging
import os
import sys

from flask import Flask

from .app import create_app
from .log import ADDED, make_formatter
from .settings import LOG, Settings, SettingsError


def _create() -> Flask:
    try:
        _log_to_standard_error()
        return create_app()
    except SettingsError as error:
        print(f"plantstore: {error}", file=sys.stderr)
        sys.exit(3)  # gunicorn then stops, instead of restarting the worker.


def _log_to_standard_error() -> None:
    """Write the log to standard error, unless the server has configured the logger."""
    logger = logging.getLogger("plantstore")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(make_formatter(Settings(os.environ)[LOG]))
        logger.addHandler(handler)
        logger.propagate = False  # A server may add a handler for all loggers, as Waitress does.
        logger.setLevel(logging.INFO)
        ADDED.setLevel(logging.WARNING)  # One line for each new plant would be slow.


#: The WSGI application.
app: Flask = _create()
