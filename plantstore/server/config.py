"""The configuration of gunicorn, for `plantstore serve` and for `gunicorn -c python:...`."""

import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from logging import LogRecord
from threading import Thread
from typing import Any

from gunicorn import sock

from .. import __version__
from ..log import SERVED
from ..observability import METRICS_FOLDER
from ..settings import Settings, SettingsError
from ..stores.base import Store
from ..text import one_line
from ..tokens.file import TokenFile
from ._logger import Logger
from .worker import missing

wsgi_app = "plantstore.wsgi:app"
_WORKER = "plantstore.server._service_worker.ServiceWorker"
# If something is missing that our worker needs, gunicorn's own worker class serves.
worker_class = "gthread" if missing else _WORKER
threads = 8
graceful_timeout = 30  # Seconds that requests have to finish after SIGTERM.
# gunicorn never kills a worker: the plants in its memory would be lost.
timeout = 0
# No header changes the prefix or the scheme of a URL.
forwarder_headers = ""
secure_scheme_headers: dict[str, str] = {}
# gunicorn uses this list only for these headers. With "*", it does not parse each address.
forwarded_allow_ips = "*"
logger_class: str = f"{Logger.__module__}.{Logger.__qualname__}"
# Without the query and the user name: a client may send its token in the wrong place.
access_log_format = (
    '%(h)s "%(m)s %(U)s %(H)s" %(s)s %(b)s %(L)s "%(a)s"'
    ' "%({plantstore.client}e)s" %({x-request-id}o)s'
)
control_socket_disable = True  # Nothing but the socket of the service is opened.


def on_starting(server: Any) -> None:
    """Refuse to start, in one line, if a setting is wrong or does not allow several workers.

    A reload (SIGHUP) is then refused in the same way: otherwise it would end the service.
    """
    _check(server)
    TokenFile.was_checked = True
    server.handle_hup = partial(_reload, server, server.handle_hup)


def _reload(server: Any, reload: Callable[[], None]) -> None:
    try:
        _check(server)
    except Exception as error:  # noqa: BLE001  # The store may be one of another package.
        message = "%s. The service continues as before: correct this, then reload again."
        fault = None if isinstance(error, RuntimeError) else error
        server.log.error(message, one_line(error), exc_info=fault)
        return
    reload()
    with suppress(SettingsError):  # A file has changed since the reload. The workers report it.
        _report(server)


def when_ready(server: Any) -> None:
    """Report how requests are served, and warn if a protection is missing."""
    _report(server)
    if not hasattr(server.worker_class, "note_queued"):
        reason = missing or f"its worker class is not {_WORKER}"
        server.log.warning("Slow clients can stop the service: %s", reason)


def _report(server: Any) -> None:
    """Report how requests are served, at the start and after a reload. create_app reports what."""
    server.log.info("plantstore %s", __version__)
    settings = _settings(server)
    if settings is not None:
        server.log.info("Tokens: %s", settings.describe_tokens())
    server.log.info("Workers: %d", server.num_workers)
    if not server.cfg.accesslog:
        server.log.info("Log: refused requests; --access-logfile - of gunicorn adds the others")


def post_fork(server: Any, worker: Any) -> None:
    """Let one of the workers that start together report what it serves, and test the store."""
    worker.is_first = worker.age == getattr(server, "first_age", 1)
    if not worker.is_first:
        SERVED.setLevel(logging.WARNING)


def post_worker_init(worker: Any) -> None:
    """Test the store in one of the workers that start together, while it serves."""
    store = getattr(worker.wsgi, "extensions", {}).get("plantstore")
    # An operator may have replaced post_fork.
    if getattr(worker, "is_first", False) and store is not None:
        Thread(target=_test_store, args=(worker, store), daemon=True).start()


def nworkers_changed(server: Any, new_value: int, old_value: int | None) -> None:
    """Add no worker after SIGTTIN if a setting, such as the store, allows only one."""
    # gunicorn logs its configuration before it calls any other hook.
    server.log.error_log.addFilter(_hide_environment)
    # A worker that is added later then sees that it is one of several.
    server.cfg.set("workers", new_value)
    if old_value is not None and new_value > old_value:
        try:
            _check_settings(server, new_value)
        except RuntimeError as error:
            server.log.error(error)
            server.num_workers = old_value


def child_exit(server: Any, worker: Any) -> None:
    """Tell prometheus-client that a worker has ended, as it asks. Its counts stay."""
    if METRICS_FOLDER in os.environ:
        with suppress(ImportError, OSError):
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def _hide_environment(record: LogRecord) -> bool:
    """Hide the variables of the option --env, such as tokens, at the level debug."""
    record.msg = re.sub(r"raw_env: .*", "raw_env: ...", str(record.msg))
    return True


def _test_store(worker: Any, store: Store) -> None:
    try:
        store.ping()
        worker.log.info("The store can be used.")
    except Exception as error:  # noqa: BLE001  # The store may be one of another package.
        message = "The store cannot be used now: %s. Until it can, requests are refused with 503."
        worker.log.error(message, one_line(error))


def _check(server: Any) -> None:
    """Raise RuntimeError if a setting or an option is wrong, or does not allow several workers."""
    if server.cfg.is_ssl:
        _check_certificate(server.cfg)
    server.first_age = server.worker_age + 1  # That of the first worker that starts after this.
    _check_settings(server, server.num_workers)


def _check_settings(server: Any, workers: int) -> None:
    settings = _settings(server)
    try:
        if settings is not None:
            settings.check(workers)
    except SettingsError as error:
        raise RuntimeError(f"plantstore: {error}") from None


def _check_certificate(cfg: Any) -> None:
    """Check the certificate: a worker that cannot read it ends the service."""
    try:
        sock.ssl_context(cfg)
    except OSError as error:  # Which file is missing, only some versions of Python say.
        fault = f"{error.strerror or error} ({cfg.certfile}, {cfg.keyfile})"
        raise RuntimeError(f"plantstore: no certificate can be read: {fault}") from None


def _settings(server: Any) -> Settings | None:
    """Return the settings, or ``None`` if another application is served, which may not use them.

    They are read anew: a reload may have changed the environment.
    """
    is_ours = str(server.app.app_uri).startswith("plantstore")
    return Settings(os.environ) if is_ours else None
