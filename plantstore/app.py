"""The standalone service."""

import os
from collections.abc import Mapping
from typing import Any

from flask import Flask
from werkzeug.exceptions import BadRequest, MethodNotAllowed, NotFound

from .arguments import type_error
from .auth import VerifyToken
from .blueprint import create_blueprint
from .errors import error_response
from .methods import allow_header
from .settings import Settings
from .stores import Store


def create_app(
    config: Mapping[str, Any] | None = None,
    *,
    store: Store | None = None,
    verify_token: VerifyToken | None = None,
) -> Flask:
    """Return the standalone service: a Flask application with ``POST /plants`` at its root.

    :param config: values for ``app.config``. They override the environment.
    :param store: keeps the plants. By default the store of the settings.
    :param verify_token: a function that takes a bearer token and returns the name of its
        client, or ``None`` if the token is not accepted. By default the tokens of the settings.
    :raises SettingsError: if a setting is missing or wrong. A setting that an argument replaces
        is not read.
    :raises TypeError: if an argument has the wrong type.
    """
    if not isinstance(config, Mapping | None):
        raise type_error("config", "a mapping", config)
    settings = Settings({**os.environ, **(config or {})})
    app = Flask(__name__, static_folder=None)
    app.config.from_mapping(config)
    app.register_blueprint(
        create_blueprint(
            verify_token=settings.verify_token if verify_token is None else verify_token,
            max_body=settings.max_body,
            store=settings.open_store() if store is None else store,
        )
    )
    _handle_routing_errors(app)
    return app


def _handle_routing_errors(app: Flask) -> None:
    app.register_error_handler(BadRequest, lambda error: error_response(40005))
    app.register_error_handler(NotFound, lambda error: error_response(40401))
    # Only for a method that HTTP does not define: the blueprint has a rule for each other method.
    app.register_error_handler(
        MethodNotAllowed, lambda error: error_response(40501, headers=[allow_header()])
    )
