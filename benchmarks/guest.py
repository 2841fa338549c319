"""Compares the response times of a site with and without an embedded plant store.

    python -m benchmarks.guest [ROUNDS]

In each round, each of the two sites handles one batch of requests. The figures are medians
over the rounds.
"""

import statistics
import sys
import time

from flask import Flask
from werkzeug.test import EnvironBuilder

from plantstore import MemoryStore, StaticTokens, create_blueprint

BATCH = 2000  # Requests per site and round.


def site(*, embeds: bool) -> Flask:
    """Return a site with thirty pages, with or without the embedded plant store."""
    site = Flask("site")
    for number in range(30):
        site.add_url_rule(f"/{number}/<text>", f"page{number}", lambda text: text)
    if embeds:
        garden = create_blueprint(store=MemoryStore(), verify_token=StaticTokens(["s3cret"]))
        site.register_blueprint(garden, url_prefix="/garden")
    return site


def cost(app: Flask, path: str) -> float:
    """Return how many microseconds the app takes per request of a path."""
    environ = EnvironBuilder(path).get_environ()
    start = time.perf_counter()
    for _ in range(BATCH):
        b"".join(app(environ.copy(), lambda *_: lambda _: None))
    return (time.perf_counter() - start) / BATCH * 1e6


def main() -> None:
    """Print the time of an existing and of a missing page, and the ratios."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    without, embedding = site(embeds=False), site(embeds=True)
    for what, path in [("a page", "/7/rose"), ("404", "/nothing")]:
        pairs = [(cost(without, path), cost(embedding, path)) for _ in range(rounds)]
        before = statistics.median(before for before, _ in pairs)
        ratio = statistics.median(after / before for before, after in pairs)
        print(f"{what:8} {before:6.1f} µs; with the plant store {ratio:.3f} times as long")


if __name__ == "__main__":
    main()
