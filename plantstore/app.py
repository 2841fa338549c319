"""The standalone service."""

import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from flask import Flask, Request, Response, request
from werkzeug.exceptions import BadRequest, InternalServerError, MethodNotAllowed, NotFound
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.routing import Map, MapAdapter

from .auth import VerifyToken
from .blueprint import OPERATIONS, TWO_SLASHES, create_blueprint
from .errors import ERRORS, ERRORS_PAGE, error_response, service_failed
from .log import SERVED
from .observability.health import create_health_blueprint
from .openapi.blueprint import create_docs_blueprint, has_page
from .settings import (
    MAX_BODY,
    METRICS,
    PROXIES,
    SERVED_OPERATIONS,
    STORE,
    TOKENS_FILE,
    Setting,
    Settings,
)
from .stores.base import Store
from .stores.urls import DEFAULT_STORE, LOST


def create_app(
    config: Mapping[str, Any] | None = None,
    *,
    store: Store | None = None,
    verify_token: VerifyToken | None = None,
) -> Flask:
    """Return the standalone service: a Flask application with ``/plants`` at its root.

    Its ``config`` has the value of each setting that it uses, but no token, and the URL of the
    store without password and options. The logger ``plantstore.served`` says what is served, at
    level INFO, and at level WARNING that ``memory://`` keeps nothing.

    :param config: values for ``app.config``. They override the environment.
    :param store: the store that keeps the plants. By default the store of the settings.
    :param verify_token: a function that takes a bearer token and returns the name of its
        client, a :class:`Client` if the token has only some rights, or ``None`` if the token is not
        accepted. By default the tokens of the settings.
    :returns: the Flask application.
    :raises SettingsError: if a setting is missing or wrong. A setting that an argument replaces
        is not used.
    :raises TypeError: if ``verify_token`` cannot be called, or is a class or a coroutine function.
    """
    config = config or {}
    settings = Settings({**os.environ, **config})
    settings.check_names()
    replaced: list[Setting[Any]] = []  # The settings that an argument replaces.
    if verify_token is None:
        verify_token = settings.verify_token()
    else:
        replaced.append(TOKENS_FILE)
    if store is None:
        store = settings.open_store()
    else:
        replaced.append(STORE)
    others = {name: config[name] for name in config if not name.startswith("PLANTSTORE_")}
    return _make_app({**others, **settings.public(without=replaced)}, store, verify_token)


def _make_app(config: Mapping[str, Any], store: Store, verify_token: VerifyToken) -> Flask:
    app = _Service(__name__, static_folder=None)
    app.config.from_mapping(config)
    app.extensions["plantstore"] = store
    app.register_blueprint(create_health_blueprint(store=store))
    if config[METRICS.name]:
        _add_metrics(app, store, verify_token)
    app.register_blueprint(
        create_blueprint(
            store=store,
            verify_token=verify_token,
            max_body=config[MAX_BODY.name],
            operations=config[SERVED_OPERATIONS.name],
        )
    )
    app.register_blueprint(create_docs_blueprint())
    _report(app, store)
    _handle_routing_errors(app, config[SERVED_OPERATIONS.name])
    if proxies := config[PROXIES.name]:
        # Only the client's address is needed, for the log. The service makes no absolute URL.
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=proxies, x_proto=0, x_host=0)  # type: ignore[method-assign]
    return app


def _report(app: Flask, store: Store) -> None:
    """Log the store, the operations and the page, so that a wrong store is noticed at once."""
    url = app.config.get(STORE.name, type(store).__name__)
    if url == DEFAULT_STORE:
        SERVED.warning("Store: %s (%s)", url, LOST)
    else:
        SERVED.info("Store: %s", url)
    SERVED.info("Operations: %s", ", ".join(app.config[SERVED_OPERATIONS.name]))
    page = "/docs" if has_page() else "none; pip install 'plantstore[docs]' adds /docs"
    SERVED.info("Page to try requests: %s", page)


class _Service(Flask):
    # Otherwise werkzeug redirects from /docs//x to /docs/x. A redirect is not an Error.
    url_map_class: Any = staticmethod(partial(Map, merge_slashes=False))

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Return the URL adapter of a request. Its Host is examined only if the configuration asks.

        Flask would examine the host twice, and encode it by IDNA: 5 % of a served create.
        """
        uses_host = self.config.get("TRUSTED_HOSTS") or self.config["SERVER_NAME"]
        if request is None or uses_host or "HTTP_UPGRADE" in request.environ:
            return super().create_url_adapter(request)
        return MapAdapter(
            self.url_map,
            server_name=request.environ.get("HTTP_HOST", ""),
            script_name=request.root_path,
            subdomain="",
            url_scheme=request.scheme,
            path_info=request.path,
            default_method=request.method,
            query_args=request.environ.get("QUERY_STRING"),
        )

    def ensure_sync(self, func: Any) -> Any:
        """Return a function that Flask can call. The functions of this package are not async.

        Flask would examine each function in each call: up to 4 % of a served create.
        """
        is_own = (getattr(func, "__module__", None) or "").startswith("plantstore.")
        return func if is_own else super().ensure_sync(func)

    def log_exception(self, exc_info: Any) -> None:
        """Log nothing: the error handler logs the traceback, with the id of the request."""


def _add_metrics(app: Flask, store: Store, verify_token: VerifyToken) -> None:
    from . import __version__
    from .observability.metrics import Metrics, create_metrics_blueprint

    url = app.config.get(STORE.name, type(store).__name__)
    metrics = Metrics(__version__, re.split("[+:]", url)[0])
    metrics.observe(app)
    app.register_blueprint(create_metrics_blueprint(metrics, verify_token))


def _handle_routing_errors(app: Flask, served: Collection[str]) -> None:
    """Respond with an Error to each request that reaches no blueprint.

    :param served: the names of the operations that are served.
    """
    operations = [OPERATIONS[name] for name in served]
    requests = ", ".join(f"{operation.method} {operation.path}" for operation in operations)
    page = "the page /docs" if has_page() else "/openapi.json"
    see = f" See {ERRORS_PAGE}#error-40401" if ERRORS_PAGE else ""
    not_found = f"{ERRORS[40401][0]} The service has {requests}, and {page}.{see}"
    handle = app.register_error_handler
    handle(BadRequest, lambda error: error_response(40005))
    handle(NotFound, lambda error: error_response(40401, not_found))
    handle(InternalServerError, service_failed)
    handle(MethodNotAllowed, _method_not_allowed)


def _method_not_allowed(error: MethodNotAllowed) -> Response:
    connection, upgrade = (request.headers.get(name, "") for name in ("Connection", "Upgrade"))
    if "upgrade" in connection.lower() and upgrade.lower() == "websocket":
        return error_response(40005)
    if request.environ["PATH_INFO"].startswith("//"):
        return error_response(40401, TWO_SLASHES)
    allow = ", ".join(sorted(error.valid_methods or ()))
    message = f"{ERRORS[40501][0]} The path has only the methods {allow}."
    return error_response(40501, message, [("Allow", allow)])
