"""The standalone service."""

import os
from collections.abc import Mapping
from typing import Any

from flask import Flask
from werkzeug.exceptions import BadRequest, NotFound

from .blueprint import create_blueprint
from .errors import answer
from .settings import Settings


def create_app(config: Mapping[str, Any] | None = None) -> Flask:
    """Return the plant store as an application of its own, ``POST /plants`` at its root.

    Settings come from the environment; ``config`` overrides them by the same names, and
    goes to ``app.config``. Raises :exc:`~plantstore.settings.SettingsError` when one is
    missing or bad.
    """
    settings = Settings.read({**os.environ, **(config or {})})
    app = Flask(__name__, static_folder=None)
    app.config.from_mapping(config)
    app.register_error_handler(NotFound, lambda error: answer(40401))
    app.register_error_handler(BadRequest, lambda error: answer(40005))  # Routing's own.
    app.register_blueprint(
        create_blueprint(
            store=settings.open_store(),
            verify_token=settings.verify_token,
            max_body=settings.max_body,
        )
    )
    return app
