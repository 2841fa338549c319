"""What an accepted create costs inside the process, against a Flask view of one constant dict.

    python -m benchmarks.create [ROUNDS]

Both applications are called as a WSGI server would call them, in turn, a batch each a
round; the figures are the medians over the rounds. Only the ratio carries over to other
machines.
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

BATCH = 2000


def constant_app() -> Flask:
    """Return the least that Flask can do: no check, no body, no store."""
    app = Flask(__name__)
    app.post("/plants")(lambda: {"name": "Monstera", "tag": "indoor"})
    return app


def requests(ids: Iterator[int]) -> Iterator[dict[str, Any]]:
    """Yield WSGI environments, each of a create with an id of its own."""
    environ = EnvironBuilder(
        "/plants", method="POST", content_type="application/json"
    ).get_environ()
    environ["HTTP_AUTHORIZATION"] = "Bearer s3cret"
    for id in ids:
        body = b'{"id":%d,"name":"Monstera","tag":"indoor"}' % id
        yield environ | {"wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}


def cost(app: Callable[..., Any], environs: list[dict[str, Any]]) -> float:
    """Return the microseconds that the app takes for one of these requests."""
    statuses: list[str] = []

    def start_response(status: str, headers: list[tuple[str, str]]) -> None:
        statuses.append(status)

    start = time.perf_counter()
    for environ in environs:
        answer = app(environ, start_response)
        b"".join(answer)
        answer.close()
    spent = time.perf_counter() - start
    assert statuses == ["200 OK"] * len(environs), statuses[:3]
    return spent / len(environs) * 1e6


def main() -> None:
    """Measure, and print one line an application and their ratio."""
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
