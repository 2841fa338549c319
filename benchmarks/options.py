"""The CPU time of a create with the log and with the metrics of the service.

    python -m benchmarks.options [--rounds N]

gunicorn serves with each of OPTIONS at the same time, on one core, with plants in memory. Bursts of
one second alternate between them. The figures are medians over the rounds: CPU microseconds per
request, and their ratio to those of the first line, which has neither.
"""

import argparse
import os
from contextlib import ExitStack

from tests.support.databases import Place

from .__main__ import ENTRIES, TOKEN, served
from .revisions import burst, cell

OPTIONS = {
    "neither": "",
    "log": " --log-level info",
    "log of new plants": " --log-level debug",
    "metrics": " --env PLANTSTORE_METRICS=1",
}


def main() -> None:
    """Measure the options and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    os.sched_setaffinity(0, {1})
    costs: dict[str, list[float]] = {name: [] for name in OPTIONS}
    with ExitStack() as running:
        servers = {
            name: running.enter_context(
                served(
                    ENTRIES[0]._replace(command=ENTRIES[0].command + options), Place("memory://")
                )
            )
            for name, options in OPTIONS.items()
        }
        for number in range(1, rounds + 1):
            for name, (processes, port) in servers.items():
                costs[name].append(burst(processes, port, TOKEN, f"{number}000000"))
    print("| | CPU µs of a create (ratio) |")
    print("|---|---|")
    for name, cost in costs.items():
        print(f"| {name} | {cell(cost, costs['neither'])} |")


if __name__ == "__main__":
    main()
