"""The step docs runs this file after it has built the site."""

from pathlib import Path

import pytest

from plantstore.blueprint import OPERATIONS
from plantstore.errors import ERRORS
from plantstore.stores.base import Plant

PAGE = Path(__file__).parents[1] / "build" / "docs" / "docs" / "http-reference.html"


@pytest.mark.skipif(not PAGE.exists(), reason="tox -e docs")
def test_reference_is_complete() -> None:
    """The reference has each operation, each field, and a link from each Error of an operation."""
    page = PAGE.read_text()
    for operation in OPERATIONS.values():
        assert f'>{operation.method}</span> <span class="pre">{operation.path}</span>' in page
    for field in Plant._fields:
        assert f">{field}</span>" in page
    for number in ERRORS.keys() - {40401}:
        assert f'href="errors.html#error-{number}"' in page
