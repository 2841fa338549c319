"""Checks of gunicorn's options. Without them, a wrong value would end a service at a reload."""

from typing import Any

from gunicorn.sock import ssl_context
from gunicorn.workers.gthread import ThreadWorker
from gunicorn.workers.sync import SyncWorker


def check_options(server: Any) -> None:
    """Check the worker class and the certificate.

    :param server: the main process of gunicorn.
    :raises RuntimeError: if one cannot be used.
    """
    _check_worker_class(server)
    if server.cfg.is_ssl:
        _check_certificate(server.cfg)


def _check_worker_class(server: Any) -> None:
    # With coroutines, a request that waits for the store would stop the whole worker.
    is_ours = hasattr(server.worker_class, "set_waited")
    if not is_ours and not issubclass(server.worker_class, SyncWorker | ThreadWorker):
        name = server.cfg.worker_class_str
        raise RuntimeError(f"plantstore: the worker class {name} has no threads: do not set it")


def _check_certificate(cfg: Any) -> None:
    try:
        ssl_context(cfg)  # A worker that fails to do this ends the service.
    except OSError as error:  # Which file is missing, only some versions of Python say.
        reason = error.strerror or error
        files = f"{cfg.certfile}, {cfg.keyfile}"
        raise RuntimeError(f"plantstore: no certificate can be read: {reason} ({files})") from None
