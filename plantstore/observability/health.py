"""The health of the service, for load balancers, containers and monitoring."""

from concurrent.futures import Future
from contextvars import copy_context
from threading import Lock, Thread
from typing import Any

from flask import Blueprint, request

from ..blueprint import ServiceBlueprint
from ..errors import Refused
from ..responses import ServiceResponse, json_response
from ..stores.base import Store, StoreMisconfigured, StoreUnavailable
from ..stores.deadline import PING, deadline, note_queued, remaining


def create_health_blueprint(*, store: Store, name: str = "plantstore_health") -> Blueprint:
    """Return a blueprint with ``GET /healthz`` and ``GET /readyz``, which need no token.

    ``/healthz`` responds with 200 if the process does. ``/readyz`` responds with 200 if the store
    can be used within two seconds, and with 503 otherwise. The response has no detail of the store.

    :param store: the store that keeps the plants.
    :param name: the name of the blueprint, by default ``plantstore_health``.
    :returns: the blueprint, for :meth:`flask.Flask.register_blueprint`.
    :raises ValueError: if ``name`` is empty or has a dot.
    """
    blueprint = ServiceBlueprint(name)
    ping = _Ping(store)

    # A prefix of a site may have parameters.
    @blueprint.get("/healthz")
    def healthz(**_: Any) -> ServiceResponse:
        return _ok()

    @blueprint.get("/readyz")
    def readyz(**_: Any) -> ServiceResponse:
        if store.one_process and request.environ["wsgi.multiprocess"]:
            raise Refused(50302)
        ping()
        return _ok()

    return blueprint


def _ok() -> ServiceResponse:
    return json_response({"status": "ok"}, headers=[("Cache-Control", "no-store")])


class _Ping:
    """Pings a store. While a ping is in progress, other callers get the result of the last one.

    So the clients of a store that hangs occupy at most one thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._running: Future[None] | None = None
        self._error: StoreUnavailable | None = None
        self._is_known = False  # Whether a ping has had a result.

    def __call__(self) -> None:
        """Return if the store can be used.

        :raises StoreUnavailable: if it cannot, or does not respond within two seconds.
        """
        with self._lock:
            is_free = self._running is None or self._running.done()
            if is_free:
                self._running = self._start()
            running: Any = self._running
        if is_free or not self._is_known:
            self._error, self._is_known = _error_of(running), True
        error = self._error
        if error is not None:
            raise type(error)(*error.args)  # Each thread needs an exception of its own.

    def _start(self) -> Future[None]:
        """Ping the store in a new thread, which does not delay the end of the process.

        The thread has the context variables of this one. A store of a site may need them.
        """
        future: Future[None] = Future()
        run = copy_context().run
        try:
            Thread(target=run, args=(self._ping, future), daemon=True).start()
        except RuntimeError as error:
            raise StoreUnavailable(f"cannot start a thread: {error}") from error
        return future

    def _ping(self, future: Future[None]) -> None:
        note_queued(0.0)
        try:
            with deadline(PING):
                future.set_result(self._store.ping())
        except BaseException as error:  # noqa: BLE001  # The caller gets it.
            future.set_exception(error)


def _error_of(ping: Future[None]) -> StoreUnavailable | None:
    try:
        error = ping.exception(remaining(PING))
    except TimeoutError:
        return StoreUnavailable("it has not responded within two seconds")
    if isinstance(error, StoreUnavailable):
        kind = StoreMisconfigured if isinstance(error, StoreMisconfigured) else StoreUnavailable
        return kind(str(error))
    # The text of another exception may have a password.
    return StoreUnavailable(f"ping raised {type(error).__name__}") if error else None
