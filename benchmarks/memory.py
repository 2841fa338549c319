"""Measures plants in memory, from a thousand to ten million: their size, and a create.

    python -m benchmarks.memory [PLANTS]

Each step has ten times as many plants as the previous one. At each step, 20,000 creates are
timed one by one, as whole requests inside the process. They are compared with the first
thousand creates in each of twenty new stores. The store is filled by adds; their mean time
includes the time in which the dict grows.
"""

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from flask import Flask

from benchmarks.create import BATCH, cost, requests
from plantstore import MemoryStore, Plant, StaticTokens, create_blueprint

TIMED = 10 * BATCH  # Creates per step.


class Cost(NamedTuple):
    """The time of a create, in microseconds."""

    median: float
    mean: float
    p99_9: float
    most: float


def service(store: MemoryStore) -> Flask:
    """Return an application that serves this store."""
    app = Flask("service")
    app.register_blueprint(create_blueprint(store=store, verify_token=StaticTokens(["s3cret"])))
    return app


def creates(app: Flask, ids: range) -> list[float]:
    """Create plants; return how many microseconds each create took."""
    return [cost(app, [environ]) for environ in requests(scattered(ids))]


def summary(costs: list[float]) -> Cost:
    """Return the median, the mean, the 99.9th percentile and the maximum."""
    costs = sorted(costs)
    late = costs[int(len(costs) * 0.999)]
    return Cost(statistics.median(costs), statistics.mean(costs), late, costs[-1])


def fill(store: MemoryStore, ids: range) -> float:
    """Add plants with names of twelve characters; return the microseconds per add."""
    start = time.perf_counter()
    for id in scattered(ids):
        store.add(Plant(id, f"plant{id % 10**7:07d}"))
    return (time.perf_counter() - start) / len(ids) * 1e6


def scattered(numbers: range) -> Iterator[int]:
    """Yield ids spread over int64, so that consecutive ids are far apart in memory."""
    return ((number * 0x9E3779B97F4A7C15) % 2**64 - 2**63 for number in numbers)


def sizes(most: int) -> Iterator[range]:
    """Yield the ids to add at each step: up to 1,000 plants, then ten times as many each time."""
    size, upto = 0, 1000
    while upto <= most:
        yield range(size, upto)
        size, upto = upto, upto * 10


def memory() -> int:
    """Return how many bytes of memory this process uses (Linux only)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    """Print one line per step, with the ratios to the first thousand creates."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    creates(service(MemoryStore()), range(1000))
    first = summary([c for _ in range(20) for c in creates(service(MemoryStore()), range(1000))])
    print("    plants  bytes/plant  add µs |  create µs:  median     mean    p99.9      max")
    print(f"{'first 1000':>44}", *(f"{part:8.1f}" for part in first))
    store, before = MemoryStore(), memory()
    for ids in sizes(most):
        added = fill(store, ids)
        size = (memory() - before) / ids.stop
        among = summary(creates(service(store), range(-TIMED, 0)))
        for id in scattered(range(-TIMED, 0)):
            store.remove(id)
        print(f"{ids.stop:>10,}  {size:>11.0f}  {added:6.3f} |", f"{'':11}", end=" ")
        print(*(f"{part:8.1f}" for part in among), end="  ")
        print(*(f"{part / base:5.2f}" for part, base in zip(among[:3], first, strict=False)))


if __name__ == "__main__":
    main()
