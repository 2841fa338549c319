"""The page of the Python API."""

import re

import plantstore
import plantstore.testing
from tests.support.serving import ROOT

PAGE = (ROOT / "docs" / "api.md").read_text()


def test_api_has_every_public_name() -> None:
    """docs/api.md describes each public name of the package and of plantstore.testing."""
    names = re.findall(r"^\.\. auto\w+:: plantstore\.(\w+)$", PAGE, re.MULTILINE)
    assert sorted(names) == sorted([*plantstore.__all__, "testing"])
    (suites,) = re.findall(r"^\.\. automodule:: .*\n   :members: (.*)$", PAGE, re.MULTILINE)
    assert sorted(suites.split(", ")) == plantstore.testing.__all__
