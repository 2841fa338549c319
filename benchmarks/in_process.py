"""Compares a create inside the process with a Flask view that returns constant bytes.

    python -m benchmarks.in_process

It needs no server and takes less than ten seconds. Both applications are called as a WSGI server
calls them. In each round, each application handles one batch of requests. The ratio is that of
their processor times: the median over the rounds, the lowest and the highest one. A create passes a
module if it calls a function of that module.
"""

import gc
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from types import FrameType
from typing import Any

from flask import Flask, Response, request

from plantstore import create_app

from .create import cost, requests

BATCH = 1500  # Requests per application and round.
ROUNDS = 20


def constant_app() -> Flask:
    """Return a Flask application that reads the body: no token check, no store."""
    app = Flask(__name__)

    @app.post("/plants")
    def create_plant() -> Response:
        request.get_data()
        return Response(b'{"name":"Monstera","tag":"indoor"}', content_type="application/json")

    return app


def batch(ids: Iterator[int], size: int) -> list[dict[str, Any]]:
    """Return WSGI environments of creates. The server marks the end of a body, as gunicorn does."""
    return [environ | {"wsgi.input_terminated": True} for environ in islice(requests(ids), size)]


def processor_time(app: Flask, ids: Iterator[int]) -> float:
    """Return the microseconds of processor time that the app takes per request."""
    environs = batch(ids, BATCH)
    gc.collect()  # Otherwise the garbage of one application is collected in the time of the other.
    return cost(app, environs, time.process_time)


def modules(plants: Flask, ids: Iterator[int]) -> set[str]:
    """Return the names of the modules of plantstore that a create passes."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.add(frame.f_globals.get("__name__", ""))

    environs = batch(ids, 1)
    sys.setprofile(note)
    try:
        cost(plants, environs)
    finally:
        sys.setprofile(None)
    return {name for name in called if name.startswith("plantstore.")}


def main() -> None:
    """Print the ratio, and the number of modules."""
    plants = create_app({"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": "memory://"})
    constant, ids = constant_app(), count()
    for app in (plants, constant):
        processor_time(app, ids)  # The first requests are slower.
    ratios = [processor_time(plants, ids) / processor_time(constant, ids) for _ in range(ROUNDS)]
    print(
        f"A create takes {statistics.median(ratios):.2f} times a view with constant bytes "
        f"(rounds: {min(ratios):.2f} to {max(ratios):.2f})."
    )
    print(f"It passes {len(modules(plants, ids))} modules of plantstore.")


if __name__ == "__main__":
    main()
