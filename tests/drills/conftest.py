"""The table of the drills, which each run prints at its end."""

from typing import Any

import pytest

from plantstore import Plant
from tests.support.clients import Clients, Record, Row

COLUMNS = [
    "drill",
    "requests",
    "acknowledged",
    "stored",
    "lost",
    "failed",
    "slowest",
    "without a 200",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the long form."""
    parser.addoption("--long", action="store_true", help="repeat each fault more often")


@pytest.fixture
def long(request: pytest.FixtureRequest) -> bool:
    """Return whether this is the long form of the drills."""
    return bool(request.config.getoption("--long", default=False))


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Row:
    """Return a function that adds a row to the table. Its arguments are the cells of COLUMNS."""

    def row(*counts: int, slowest: float | None = None, outage: float | None = None) -> None:
        name = request.node.name.removeprefix("test_")
        seconds = ["" if time is None else f"{time:.2f} s" for time in (slowest, outage)]
        cells = [name, *map(str, counts), *seconds]
        request.node.user_properties.append(("drill", cells))

    return row


@pytest.fixture
def record(row: Row) -> Record:
    """Return a function that compares what is stored with what clients know, for the table."""

    def record(stored: set[Plant], *clients: Clients) -> None:
        sent = set[Plant]().union(*(client.sent for client in clients))
        acknowledged = set[Plant]().union(*(client.acknowledged for client in clients))
        lost = acknowledged - stored
        row(
            len(sent),
            len(acknowledged),
            len(stored),
            len(lost),
            sum(client.refused + client.unanswered for client in clients),
            slowest=max(client.slowest() for client in clients),
            outage=max(client.outage() for client in clients),
        )
        assert lost == set()
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
