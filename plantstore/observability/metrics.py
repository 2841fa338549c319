"""Metrics of the standalone service for Prometheus. They need prometheus-client.

Several processes share them by files in a folder, as prometheus-client documents.
"""

import logging
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from flask import Flask, Response, request
from prometheus_client import Histogram, Metric, generate_latest
from prometheus_client.core import InfoMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from ..auth import VerifyToken
from ..blueprint import OPERATIONS, ServiceBlueprint
from ..errors import Refused
from ..responses import ServiceResponse
from ..text import one_line
from . import METRICS_FOLDER

_log = logging.getLogger("plantstore")
# The size in bytes of a file: enough for every operation with every outcome.
_SIZE = 1 << 19
# The upper limits of the buckets of a duration, in seconds.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
# The key in the WSGI environment of the time when a request began.
_BEGAN = "plantstore.began"
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
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
        self._has_failed = False

    def observe(self, operation: str, outcome: str, seconds: float) -> None:
        """Observe the duration of a request. If this fails, the process has no metrics."""
        with self._lock:
            try:
                if not self._has_failed:
                    self._prepare()
                    self._histogram.labels(operation, outcome).observe(seconds)
            except Exception as error:  # noqa: BLE001  # A request must not fail because of metrics.
                self._has_failed = True
                reason = getattr(error, "strerror", None) or one_line(error)
                _log.error("This process has no metrics: %s", reason)

    def _prepare(self) -> None:
        """Give the file of this process its full size, before prometheus-client uses it as memory.

        Otherwise a disk that is full later would end the process.
        """
        process = os.getpid()
        if METRICS_FOLDER in os.environ and self._prepared != process:
            file = Path(os.environ[METRICS_FOLDER], f"histogram_{process}.db")
            if not file.exists():
                new = file.with_suffix(".new")  # Other processes cannot read an empty file.
                new.write_bytes(bytes(_SIZE))
                new.replace(file)
            self._prepared = process

    def collect(self) -> list[Metric]:
        """Return the durations of all processes of the service.

        :raises Refused: 50302 if several processes do not share them, or a file is damaged.
        """
        if METRICS_FOLDER not in os.environ and not request.environ["wsgi.multiprocess"]:
            return [*self._histogram.collect()]
        try:
            shared: Any = MultiProcessCollector(None)  # type: ignore[no-untyped-call]
            # Other packages may share metrics in the same folder.
            return [it for it in shared.collect() if it.name.startswith("plantstore_")]
        except Exception as error:  # noqa: BLE001  # A damaged file causes one of any kind.
            reason = f"The metrics cannot be read: {one_line(error)}"
            message = f"The processes of the service do not share metrics by {METRICS_FOLDER}."
            raise Refused(50302, message, reason=reason) from None


# Two objects would overwrite the values of each other in the file of their process.
_shared_durations = cache(Durations)


class Metrics(Collector):
    """The metrics of an application.

    :param version: the version of this package.
    :param store: the kind of the store, such as ``sqlite``.
    """

    def __init__(self, version: str, store: str) -> None:
        self._durations = _shared_durations() if METRICS_FOLDER in os.environ else Durations()
        self._about = {"version": version, "store": store}

    def observe(self, app: Flask) -> None:
        """Observe the requests of an application that has no other hooks yet."""

        # Flask calls the first function of an application before the others, and afterwards last.
        @app.before_request
        def begin() -> None:
            request.environ[_BEGAN] = time.perf_counter()

        @app.after_request
        def observe(response: Response) -> Response:
            now, status = time.perf_counter(), response.status_code
            seconds = now - request.environ.get(_BEGAN, now)  # A signal of a site may have failed.
            number = getattr(response, "number", None) or status * 100  # That of the Error.
            outcome = "ok" if status < 400 else str(number)
            self._durations.observe(_NAMES.get(request.endpoint or "", ""), outcome, seconds)
            return response

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all processes of the service."""
        yield InfoMetricFamily("plantstore", "The service.", self._about)
        yield from self._durations.collect()


def create_metrics_blueprint(metrics: Metrics, verify_token: VerifyToken) -> ServiceBlueprint:
    """Return a blueprint with ``GET /metrics``, which needs a token like every operation."""
    blueprint = ServiceBlueprint("plantstore_metrics", verify_token=verify_token)

    @blueprint.get("/metrics", endpoint="metrics")
    def read() -> Response:
        return ServiceResponse(generate_latest(metrics), content_type=_CONTENT_TYPE)

    return blueprint
