"""Metrics of the standalone service for Prometheus. They need prometheus-client."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import prometheus_client.values
from flask import Flask, Response, request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from ..auth import VerifyToken
from ..base_blueprint import OperationsBlueprint
from ..errors import ERRORS, Refused
from ..responses import OperationResponse
from ..stores.base import Plant, Store

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

#: The name under which this process shares its metrics. By default, it is the id of the process.
process_name: Callable[[], object] = os.getpid

# Its functions have no types.
values: Any = prometheus_client.values
_log = logging.getLogger("plantstore")
# The upper limits of the buckets of a duration, in seconds.
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
# The key in the WSGI environment of the time when a request began.
_BEGAN = "plantstore.began"
# The variable with the folder in which several processes share metrics.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """The metrics of a process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry: CollectorRegistry = CollectorRegistry()
        creates = Counter(
            "plantstore_creates",
            "Requests to create a plant, by outcome: created, or the number of the error.",
            ["outcome"],
            registry=self.registry,
        )
        # All are created now: their files must exist when a plant has been stored.
        self._creates = {outcome: creates.labels(outcome) for outcome in ["created", *ERRORS]}
        self._other_creates = creates.labels("other")
        self._create_seconds = Histogram(
            "plantstore_create_duration_seconds",
            "Seconds from the head of a request to create a plant until its response.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        store_seconds = Histogram(
            "plantstore_store_duration_seconds",
            "Seconds that the store has taken for an operation.",
            ["operation"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.add_seconds: Histogram = store_seconds.labels("add")
        self._in_progress = Gauge(
            "plantstore_requests_in_progress",
            "Requests that have no response yet.",
            multiprocess_mode="livesum",
            registry=self.registry,
        )

    def observe(self, app: Flask) -> None:
        """Observe the requests of an application that has no other hooks yet."""
        serve = app.wsgi_app

        # Hooks of Flask would take three times as long.
        def wsgi_app(
            environ: "WSGIEnvironment", start_response: "StartResponse"
        ) -> Iterable[bytes]:
            environ[_BEGAN] = time.perf_counter()
            self._in_progress.inc()
            try:
                return serve(environ, start_response)
            finally:
                self._in_progress.dec()

        app.wsgi_app = wsgi_app  # type: ignore[method-assign]

        # Flask calls it after the other functions, because it is the first.
        @app.after_request
        def observe(response: Response) -> Response:
            if request.endpoint == "plantstore.create_plant" and request.method == "POST":
                created = response.status_code == 200
                outcome = "created" if created else getattr(response, "number", "other")
                self._creates.get(outcome, self._other_creates).inc()
                self._create_seconds.observe(time.perf_counter() - request.environ[_BEGAN])
            return response

    def read(self) -> Response:
        """Return the response with the metrics of all processes of the service.

        :raises Refused: 50302 if several processes serve, and do not share their metrics.
        """
        is_shared = _FOLDER in os.environ
        if request.environ["wsgi.multiprocess"] and not is_shared:
            raise Refused(50302, f"Several processes run the service. Set {_FOLDER}.")
        metrics = generate_latest(_SharedMetrics() if is_shared else self.registry)
        return OperationResponse(metrics, content_type="text/plain; version=0.0.4; charset=utf-8")


@cache
def _shared_metrics() -> Metrics:
    values.ValueClass = values.MultiProcessValue(lambda: process_name())
    return Metrics()


def make_metrics() -> Metrics:
    """Return the metrics of an application. If they are shared, a process has only one object."""
    try:
        if _FOLDER in os.environ:
            return _shared_metrics()
    except OSError as error:  # Something has removed the folder.
        _log.error("The metrics of this process cannot be shared: %s", error.strerror)
        del os.environ[_FOLDER]
    # prometheus-client may have been imported when there was a folder.
    values.ValueClass = values.get_value_class()
    return Metrics()


class _SharedMetrics(Collector):
    """The metrics of all processes, without those of other packages."""

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        collector: Any = MultiProcessCollector(None)  # type: ignore[no-untyped-call]
        return [one for one in collector.collect() if one.name.startswith("plantstore_")]


class MeasuredStore(Store):
    """A store that measures how long the adds of another store take.

    :param store: the other store.
    :param seconds: where they are measured.
    """

    def __init__(self, store: Store, seconds: Histogram) -> None:
        self._store = store
        self._seconds = seconds

    @property
    def one_process(self) -> bool:  # type: ignore[override]
        """Whether only this process can access the plants."""
        return self._store.one_process

    def add(self, plant: Plant) -> None:
        """Store a new plant."""
        began = time.perf_counter()
        try:
            self._store.add(plant)
        finally:
            self._seconds.observe(time.perf_counter() - began)

    def get(self, id: int) -> Plant | None:
        """Return the plant with this id, or ``None`` if there is none."""
        return self._store.get(id)

    def remove(self, id: int) -> None:
        """Remove the plant with this id."""
        self._store.remove(id)

    def iterate(self, after: int | None = None) -> Iterator[Plant]:
        """Yield the plants in the order of their ids: all of them, or those after an id."""
        return self._store.iterate(after)

    def __len__(self) -> int:
        return len(self._store)

    def ping(self) -> None:
        """Check that the store can be used now."""
        self._store.ping()

    def close(self) -> None:
        """Close idle connections."""
        self._store.close()


def create_metrics_blueprint(metrics: Metrics, verify_token: VerifyToken) -> OperationsBlueprint:
    """Return a blueprint with ``GET /metrics``, which needs a token like every operation.

    :param metrics: the metrics.
    :param verify_token: returns the name of a token's client.
    """
    blueprint = OperationsBlueprint("plantstore_metrics", __name__, verify_token=verify_token)
    blueprint.get("/metrics")(metrics.read)
    blueprint.record(blueprint.add_other_methods)
    return blueprint
