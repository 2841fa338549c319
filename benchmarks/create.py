"""Compares a create inside the process with a Flask view that returns a constant dict.

    python -m benchmarks.create [ROUNDS]

Both applications are called as a WSGI server calls them. In each round, each application
handles one batch of requests. The figures are medians over the rounds. Only the ratio is
comparable between machines.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import count, islice
from typing import Any

from flask import Flask
from werkzeug.test import EnvironBuilder

from plantstore import create_app

BATCH = 2000  # Requests per application and round.


def constant_app() -> Flask:
    """Return a minimal Flask application: no token check, no request body, no store."""
    app = Flask(__name__)
    app.post("/plants")(lambda: {"name": "Monstera", "tag": "indoor"})
    return app


def requests(ids: Iterator[int]) -> Iterator[dict[str, Any]]:
    """Yield one WSGI environment per id: a create of a plant with this id."""
    environ = EnvironBuilder(
        "/plants", method="POST", content_type="application/json"
    ).get_environ()
    environ["HTTP_AUTHORIZATION"] = "Bearer s3cret"
    for id in ids:
        body = b'{"id":%d,"name":"Monstera","tag":"indoor"}' % id
        yield environ | {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}


def cost(
    app: Callable[..., Any],
    environs: list[dict[str, Any]],
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return how many microseconds of a clock the app takes per request."""
    statuses: list[str] = []

    def start_response(status: str, headers: list[tuple[str, str]]) -> None:
        statuses.append(status)

    start = clock()
    for environ in environs:
        answer = app(environ, start_response)
        b"".join(answer)
        answer.close()
    spent = clock() - start
    assert statuses == ["200 OK"] * len(environs), statuses[:3]
    return spent / len(environs) * 1e6


def main() -> None:
    """Print the time per request of both applications, and the ratio."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    plants, constant = create_app({"PLANTSTORE_TOKENS": "s3cret"}), constant_app()
    ids, pairs = count(), []
    for _ in range(rounds):
        ours, theirs = (list(islice(requests(ids), BATCH)) for _ in range(2))
        pairs.append((cost(plants, ours), cost(constant, theirs)))
    print(f"plantstore create {statistics.median(ours for ours, _ in pairs):7.1f} µs")
    print(f"constant view     {statistics.median(theirs for _, theirs in pairs):7.1f} µs")
    print(f"ratio             {statistics.median(ours / theirs for ours, theirs in pairs):7.2f}")


if __name__ == "__main__":
    main()
