"""The table of the drills, which each run prints at its end."""

from typing import Any

import pytest

from plantstore import Plant
from tests.support.clients import Clients, Record, acknowledged

COLUMNS = ["drill", "requests", "acknowledged", "stored", "lost", "twice"]
COLUMNS += ["failed", "slowest", "without a 200"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the long form."""
    parser.addoption("--long", action="store_true", help="repeat each fault more often")


@pytest.fixture
def long(request: pytest.FixtureRequest) -> bool:
    """Return whether this is the long form of the drills."""
    return bool(request.config.getoption("--long", default=False))


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Return a function that compares what is stored with what clients know, for the table."""

    def record(stored: set[Plant], *clients: Clients) -> None:
        sent = set[Plant]().union(*(client.sent for client in clients))
        known = acknowledged(clients)
        failed = sum(client.refused + client.unanswered for client in clients)
        twice = sum(len(client.acknowledged) for client in clients) - len(known)
        counts = [len(sent), len(known), len(stored), len(known - stored), twice, failed]
        slowest = max(client.slowest() for client in clients)
        outage = max(client.outage() for client in clients)
        name = request.node.name.removeprefix("test_")
        cells = [name, *map(str, counts), f"{slowest:.2f} s", f"{outage:.2f} s"]
        request.node.user_properties.append(("drill", cells))
        assert (known - stored, twice) == (set(), 0)
        assert stored - sent == set()

    return record


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table, in the form of a document."""
    reports = [
        report
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, [])
        if report.when == "call"
    ]
    rows = [row for report in reports for name, row in report.user_properties if name == "drill"]
    if rows:
        terminalreporter.write_sep("=", "drills")
        for row in [COLUMNS, ["---"] * len(COLUMNS), *rows]:
            terminalreporter.write_line(f"| {' | '.join(row)} |")
