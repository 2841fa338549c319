"""The standalone service."""

import os
import re
import sys
from collections.abc import Mapping
from http import HTTPMethod
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import BadRequest, MethodNotAllowed, NotFound

from .arguments import type_error
from .auth import VerifyToken, check_verify_token
from .blueprint import check_store, create_blueprint
from .errors import error_response
from .methods import OperationsBlueprint
from .settings import Settings, SettingsError
from .stores import Store

# The value of a Host header (RFC 9110 section 7.2, RFC 3986 section 3.2.2). An http URL has a host
# that is not empty.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|([A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})+)(:[0-9]*)?")


def create_app(
    config: Mapping[str, Any] | None = None,
    *,
    store: Store | None = None,
    verify_token: VerifyToken | None = None,
) -> Flask:
    """Return the standalone service: a Flask application with ``POST /plants`` at its root.

    :param config: values for ``app.config``. They override the environment.
    :param store: the store that keeps the plants. By default the store of the settings.
    :param verify_token: a function that takes a bearer token and returns the name of its
        client, or ``None`` if the token is not accepted. By default the tokens of the settings.
    :returns: the Flask application.
    :raises SettingsError: if a setting is missing or wrong. A setting that an argument replaces
        is not read.
    :raises TypeError: if an argument has the wrong type.
    """
    if not isinstance(config, Mapping | None):
        raise type_error("config", "a mapping", config)
    # Checked first, because the error of a setting would hide a wrong argument.
    if store is not None:
        check_store(store)
    if verify_token is not None:
        check_verify_token(verify_token)
    try:
        return _make_app(config or {}, store, verify_token)
    except SettingsError as error:
        raise _for_server(error) from None


def _make_app(
    config: Mapping[str, Any], store: Store | None, verify_token: VerifyToken | None
) -> Flask:
    settings = Settings({**os.environ, **config})
    settings.check_names()
    verify_token = settings.verify_token if verify_token is None else verify_token
    max_body = settings.max_body
    store = settings.open_store() if store is None else store
    app = Flask(__name__, static_folder=None)
    app.config.from_mapping(config)
    blueprint = create_blueprint(store=store, verify_token=verify_token, max_body=max_body)
    app.register_blueprint(blueprint)
    app.extensions["plantstore"] = store
    app.before_request(_check_host)
    _handle_routing_errors(app, blueprint)
    return app


def _for_server(error: SettingsError) -> SettingsError:
    """Return the error as a type that gunicorn reports in one line, without a traceback."""
    gunicorn: Any = sys.modules.get("gunicorn.errors")
    if gunicorn is None:
        return error
    # With its option --preload, gunicorn reports only a RuntimeError in this way.
    kinds = (SettingsError, gunicorn.AppImportError, RuntimeError)
    kind: type[SettingsError] = type("SettingsError", kinds, {})
    return kind(*error.args)


def _check_host() -> Response | None:
    """Refuse a request without a valid Host header (RFC 9112 section 3.2)."""
    host = request.environ.get("HTTP_HOST")
    if host is None and request.environ["SERVER_PROTOCOL"] != "HTTP/1.1":
        return None  # HTTP/1.0 does not require it, and HTTP/2 has another field.
    return None if _HOST.fullmatch(host or "") else error_response(40005)


def _handle_routing_errors(app: Flask, blueprint: OperationsBlueprint) -> None:
    app.register_error_handler(BadRequest, lambda error: error_response(40005))
    app.register_error_handler(NotFound, lambda error: error_response(40401))

    @app.errorhandler(MethodNotAllowed)
    def method_not_allowed(error: MethodNotAllowed) -> Response:
        # The blueprint has a rule for each HTTP method, so this request is for a WebSocket.
        if request.method in HTTPMethod.__members__:
            return error_response(40005)
        return blueprint.refuse_method()
