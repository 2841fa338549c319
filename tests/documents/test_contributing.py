"""CONTRIBUTING.md and continuous integration name the steps of tox."""

import re
from configparser import RawConfigParser

from tests.support.serving import ROOT


def steps() -> set[str]:
    """Return the names of the steps of tox."""
    config = RawConfigParser()
    config.read(ROOT / "setup.cfg")
    return set(re.split(r",\s*", config["tox:tox"]["env_list"]))


def test_steps_of_contributors() -> None:
    """CONTRIBUTING.md has a table of all steps."""
    rows = re.findall(r"^\| (`.*?`) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == steps()


def test_steps_of_continuous_integration() -> None:
    """.ci/run and the workflow run every step; .ci/run has the README's command as ``fast``."""
    script = (ROOT / ".ci" / "run").read_text()
    (names,) = re.findall(r"^for name in (.*); do$", script, re.MULTILINE)
    assert {*names.split(), "fast", "drills"} == steps()
    assert "tox run -q -e drills" in script
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert set(re.findall(r"^ {10}- (\w+)$", workflow, re.MULTILINE)) == steps()
