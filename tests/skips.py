"""Make each skip a failure where the environment has ``CI=true``: there, nothing may be missing."""

import os
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Fail a test or a file that is skipped, with the reason."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"In continuous integration no test may be skipped: {report.longreprtext}"
    return report


pytest_make_collect_report = pytest_runtest_makereport
