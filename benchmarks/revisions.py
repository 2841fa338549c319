"""The CPU time of a request in several revisions of the project.

    python -m benchmarks.revisions REVISION REVISION ... [--rounds N]

gunicorn serves all revisions at the same time, on one core, with plants in memory. Bursts of one
second alternate between them, because the speed of a machine changes from minute to minute. The
figures are medians over the rounds: CPU microseconds per request, and their ratio to those of the
first revision.
"""

import argparse
import os
import statistics
import subprocess
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from tests.support.databases import Place

from .__main__ import ENTRIES, TOKEN, cpu, load, served

# The token of each kind of request, and its first id in a round, without the number of the round.
KINDS = {"create": (TOKEN, "000000"), "401": ("wrong", "000000"), "400": (TOKEN, "null")}


def check_out(revision: str, folder: Path) -> Path:
    """Return a new folder with the files of a revision."""
    target = folder / revision
    target.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", revision], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", target], input=archive.stdout, check=True)
    return target


def burst(processes: list[psutil.Process], port: int, token: str, id: str) -> float:
    """Send requests for one second; return the CPU microseconds per request."""
    before = cpu(processes)
    counted = load(port, 1, token, id)
    refused = token != TOKEN or id == "null"
    assert counted["refused"] == (counted["answers"] if refused else 0), counted
    return (cpu(processes) - before) / counted["answers"] * 1e6


def main() -> None:
    """Measure the revisions and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revisions", nargs="+", metavar="REVISION")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    os.sched_setaffinity(0, {1})
    costs: dict[tuple[str, str], list[float]] = {}
    with TemporaryDirectory() as folder, ExitStack() as running:
        servers = {}
        for revision in options.revisions:
            entry = served(ENTRIES[0], Place("memory://"), check_out(revision, Path(folder)))
            servers[revision] = running.enter_context(entry)
        for number in range(1, options.rounds + 1):
            for kind, (token, id) in KINDS.items():
                for revision, (processes, port) in servers.items():
                    first = id if id == "null" else f"{number}{id}"
                    cost = burst(processes, port, token, first)
                    costs.setdefault((revision, kind), []).append(cost)
    print("| | " + " | ".join(KINDS) + " |")
    print("|---" * (len(KINDS) + 1) + "|")
    for revision in options.revisions:
        cells = [cell(costs[revision, kind], costs[options.revisions[0], kind]) for kind in KINDS]
        print(f"| {revision} | " + " | ".join(cells) + " |")


def cell(cost: list[float], first: list[float]) -> str:
    """Return the median cost, and the median of its ratios to the costs of the first revision."""
    ratio = statistics.median(a / b for a, b in zip(cost, first, strict=True))
    return f"{statistics.median(cost):.0f} ({ratio:.3f})"


if __name__ == "__main__":
    main()
