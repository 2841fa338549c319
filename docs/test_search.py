"""The step docs runs this file after it has built the site."""

import json
import re
from pathlib import Path

import pytest

from plantstore.errors import ERRORS

INDEX = Path(__file__).parents[1] / "build" / "docs" / "searchindex.js"


@pytest.mark.skipif(not INDEX.exists(), reason="tox -e docs")
def test_search_finds_the_errors() -> None:
    """The search finds the heading of each error by its number. Sphinx ignores other numbers."""
    (text,) = re.findall(r"^Search\.setIndex\((.*)\)", INDEX.read_text())
    index = json.loads(text)
    for number in map(str, ERRORS):
        found = {(index["docnames"][page], id) for page, id, _ in index["indexentries"][number]}
        assert ("docs/errors", f"error-{number}") in found
