"""The standalone service, for any WSGI server."""

import sys

from flask import Flask

from .app import create_app
from .settings import SettingsError


def _create() -> Flask:
    try:
        return create_app()
    except SettingsError as error:
        print(f"plantstore: {error}", file=sys.stderr)
        sys.exit(3)  # gunicorn then stops, instead of restarting the worker.


#: The WSGI application.
app: Flask = _create()
