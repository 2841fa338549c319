"""Metrics of the standalone service for Prometheus. They need prometheus-client."""

import logging
import os
import time
from collections.abc import Iterator
from functools import cache
from threading import Lock
from typing import Any

import prometheus_client.values
from flask import Flask, Response, request
from prometheus_client import Histogram, Metric, generate_latest
from prometheus_client.core import InfoMetricFamily
from prometheus_client.registry import Collector

from ..auth import VerifyToken
from ..blueprint import OPERATIONS, ServiceBlueprint
from ..errors import Refused
from ..responses import ServiceResponse
from ..text import one_line
from .shared_files import prepare_file, read_files

# Its functions have no types.
values: Any = prometheus_client.values
_log = logging.getLogger("plantstore")
# The upper limits of the buckets of a duration, in seconds.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
# The key in the WSGI environment of the time when a request began.
_BEGAN = "plantstore.began"
# The variable with the folder in which several processes share metrics.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# What a request is for, by its endpoint.
_NAMES = {f"plantstore.{name}": name for name in OPERATIONS}
_NAMES["plantstore_metrics.metrics"] = "metrics"


class Durations:
    """The durations of requests, by operation and outcome."""

    def __init__(self) -> None:
        self._histogram = Histogram(
            "plantstore_request_duration_seconds",
            "Seconds in which requests were executed, by operation and outcome.",
            ["operation", "outcome"],
            buckets=_BUCKETS,
            registry=None,
        )
        self._lock = Lock()
        self._prepared = 0  # The id of the process whose file is prepared.
        self._failed = 0  # The id of the process that has no metrics.

    def observe(self, operation: str, outcome: str, seconds: float) -> None:
        """Observe the duration of a request. If this fails, the process has no metrics."""
        if self._failed == os.getpid():
            return
        try:
            if self._prepared != os.getpid():
                self._prepare()
            self._histogram.labels(operation, outcome).observe(seconds)
        except Exception as error:  # noqa: BLE001  # A request must not fail because of metrics.
            self._failed = os.getpid()
            reason = getattr(error, "strerror", None) or one_line(error)
            _log.error("This process has no metrics: %s", reason)

    def _prepare(self) -> None:
        """Prepare the file of this process, once. A process that it forks has another one."""
        with self._lock:
            if self._prepared != os.getpid() and _FOLDER in os.environ:
                prepare_file(os.environ[_FOLDER])
            self._prepared = os.getpid()

    def collect(self) -> Iterator[Metric]:
        """Yield the durations of all processes of the service.

        :raises Refused: 50302 if several processes do not share them.
        """
        if _FOLDER not in os.environ:
            if request.environ["wsgi.multiprocess"]:
                raise Refused(50302, f"Several processes run the service. Set {_FOLDER}.")
            yield from self._histogram.collect()
            return
        try:
            metrics = read_files(os.environ[_FOLDER])
        except Exception as error:  # noqa: BLE001  # A damaged file causes one of any kind.
            reason = f"The metrics cannot be read: {one_line(error)}"
            message = f"The folder {_FOLDER} of the metrics cannot be read."
            raise Refused(50302, message, reason=reason) from None
        # Other packages may share metrics in the same folder.
        yield from (metric for metric in metrics if metric.name.startswith("plantstore_"))


@cache
def _shared_durations() -> Durations:
    """Return those of this process. Two objects would overwrite the values of each other."""
    if not values.ValueClass._multiprocess:  # noqa: SLF001
        # prometheus-client was imported when there was no folder.
        values.ValueClass = values.get_value_class()
    return Durations()


def _own_durations() -> Durations:
    values.ValueClass = values.get_value_class()  # There may have been a folder before.
    return Durations()


class Metrics(Collector):
    """The metrics of an application.

    :param version: the version of this package.
    :param store: the kind of the store, such as ``sqlite``.
    """

    def __init__(self, version: str, store: str) -> None:
        self._durations = _shared_durations() if _FOLDER in os.environ else _own_durations()
        self._info = InfoMetricFamily(
            "plantstore", "The service.", {"version": version, "store": store}
        )

    def observe(self, app: Flask) -> None:
        """Observe the requests of an application that has no other hooks yet."""
        durations = self._durations

        # Flask calls the first function of an application before the others, and afterwards last.
        @app.before_request
        def begin() -> None:
            request.environ[_BEGAN] = time.perf_counter()

        @app.after_request
        def observe(response: Response) -> Response:
            operation = _NAMES.get(request.endpoint or "", "")
            now = time.perf_counter()
            seconds = now - request.environ.get(_BEGAN, now)  # A signal of a site may have failed.
            durations.observe(operation, _outcome(response), seconds)
            return response

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield self._info
        yield from self._durations.collect()

    def read(self) -> Response:
        """Return the response with the metrics of all processes of the service."""
        content_type = "text/plain; version=0.0.4; charset=utf-8"
        return ServiceResponse(generate_latest(self), content_type=content_type)


def _outcome(response: Response) -> str:
    """Return ``ok``, or the number of an error."""
    status = response.status_code
    return "ok" if status < 400 else str(getattr(response, "number", None) or status * 100)


def create_metrics_blueprint(metrics: Metrics, verify_token: VerifyToken) -> ServiceBlueprint:
    """Return a blueprint with ``GET /metrics``, which needs a token like every operation.

    :param metrics: the metrics.
    :param verify_token: returns a token's client.
    """
    blueprint = ServiceBlueprint("plantstore_metrics", __name__, verify_token=verify_token)
    blueprint.add_url_rule("/metrics", "metrics", metrics.read)
    return blueprint
