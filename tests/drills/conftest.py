"""The table of the drills, which each run prints at its end."""

from typing import Any

import pytest

from plantstore import Plant
from tests.support.clients import Clients, Record

COLUMNS = (
    "drill",
    "requests",
    "acknowledged",
    "stored",
    "lost",
    "failed",
    "slowest",
    "without a 200",
)


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
        sent = set[Plant]().union(*(one.sent for one in clients))
        acknowledged = set[Plant]().union(*(one.acknowledged for one in clients))
        row = [
            request.node.name.removeprefix("test_"),
            len(sent),
            len(acknowledged),
            len(stored),
            len(acknowledged - stored),
            sum(one.refused + one.unanswered for one in clients),
            f"{max(one.slowest() for one in clients):.2f} s",
            f"{max(one.outage() for one in clients):.2f} s",
        ]
        request.node.user_properties.append(("drill", [str(cell) for cell in row]))
        assert acknowledged - stored == set()
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
        for row in [list(COLUMNS), ["---"] * len(COLUMNS), *rows]:
            terminalreporter.write_line(f"| {' | '.join(row)} |")
