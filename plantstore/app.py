"""The standalone service."""

import os
import sys
from collections.abc import Collection, Mapping
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import BadRequest, InternalServerError, MethodNotAllowed, NotFound
from werkzeug.routing import Map, MapAdapter

from .auth import VerifyToken, check_verify_token
from .base_blueprint import check_store, refuse_method
from .blueprint import OPERATIONS, create_blueprint
from .errors import ERRORS, ErrorResponse, service_failed
from .observability.health import create_health_blueprint
from .openapi.blueprint import make_docs_blueprint
from .request_url import HOST, forwarded_url
from .settings import MAX_BODY, METRICS, SERVED_OPERATIONS, Settings, SettingsError
from .stores.base import Store
from .text import type_error


def create_app(
    config: Mapping[str, Any] | None = None,
    *,
    store: Store | None = None,
    verify_token: VerifyToken | None = None,
) -> Flask:
    """Return the standalone service: a Flask application with ``/plants`` at its root.

    :param config: values for ``app.config``. They override the environment.
    :param store: the store that keeps the plants. By default the store of the settings.
    :param verify_token: a function that takes a bearer token and returns the name of its
        client, a :class:`Client` if the token has only some rights, or ``None`` if the token is not
        accepted. By default the tokens of the settings.
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
    settings.log_formatter()  # It is only checked here. The server configures the log.
    verify_token = settings.verify_token if verify_token is None else verify_token
    max_body, operations = settings[MAX_BODY], settings[SERVED_OPERATIONS]
    kind = settings.store_kind if store is None else type(store).__name__
    store = settings.open_store() if store is None else store
    app = _Service(__name__, static_folder=None)
    app.config.from_mapping(config)
    app.extensions["plantstore"] = store
    app.register_blueprint(create_health_blueprint(store=store))
    if settings[METRICS]:
        _add_metrics(app, kind, verify_token)
    app.register_blueprint(
        create_blueprint(
            store=store, verify_token=verify_token, max_body=max_body, operations=operations
        )
    )
    app.register_blueprint(make_docs_blueprint("plantstore_docs", forwarded_url))
    _handle_routing_errors(app, operations)
    return app


class _Map(Map):
    def __init__(self, **options: Any) -> None:
        # Otherwise werkzeug redirects from /docs//x to /docs/x. A redirect is not an Error, and its
        # URL would lack the prefix that a proxy removes.
        super().__init__(merge_slashes=False, **options)

    def bind_to_environ(
        self, environ: Any, server_name: str | None = None, subdomain: str | None = None
    ) -> MapAdapter:
        """Refuse a request without a valid Host header (RFC 9112 section 3.2)."""
        host = environ.get("HTTP_HOST")
        # HTTP/1.0 does not require the header, and HTTP/2 has another field.
        is_missing = host is None and environ["SERVER_PROTOCOL"] == "HTTP/1.1"
        if is_missing or (host is not None and HOST.fullmatch(host) is None):
            raise BadRequest
        return super().bind_to_environ(environ, server_name, subdomain)


class _Service(Flask):
    url_map_class: type[Map] = _Map

    def log_exception(self, exc_info: Any) -> None:
        """Log nothing: the error handler logs the traceback, with the id of the request."""


def _add_metrics(app: Flask, store: str, verify_token: VerifyToken) -> None:
    from . import __version__
    from .observability.metrics import Metrics, create_metrics_blueprint

    metrics = Metrics(__version__, store)
    metrics.observe(app)
    app.register_blueprint(create_metrics_blueprint(metrics, verify_token))


def _for_server(error: SettingsError) -> SettingsError:
    """Return the error as a type that gunicorn reports in one line, without a traceback."""
    gunicorn: Any = sys.modules.get("gunicorn.errors")
    if gunicorn is None:
        return error
    # With its option --preload, gunicorn reports only a RuntimeError in this way.
    kinds = (SettingsError, gunicorn.AppImportError, RuntimeError)
    kind: type[SettingsError] = type("SettingsError", kinds, {})
    return kind(*error.args)


def _handle_routing_errors(app: Flask, operations: Collection[str]) -> None:
    """Respond with an Error where no blueprint does."""
    served = [OPERATIONS[name] for name in operations]
    requests = ", ".join(f"{operation.method} {operation.path}" for operation in served)
    not_found = f"{ERRORS[40401][0]} The service has {requests}."
    handle = app.register_error_handler
    handle(BadRequest, lambda error: ErrorResponse(40005))
    handle(NotFound, lambda error: ErrorResponse(40401, not_found))
    handle(InternalServerError, service_failed)
    handle(MethodNotAllowed, lambda error: _method_not_allowed(app))


def _method_not_allowed(app: Flask) -> Response:
    """Refuse a WebSocket, or a method that HTTP does not define."""
    adapter: Any = app.create_url_adapter(request)
    return ErrorResponse(40005) if adapter.websocket else refuse_method()
