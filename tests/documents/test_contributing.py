"""CONTRIBUTING.md and continuous integration name the steps of tox; a release has one version."""

import re
import subprocess
from configparser import RawConfigParser
from datetime import date

import pytest

from plantstore import __version__
from tests.support.fresh import run
from tests.support.serving import LIMIT, ROOT

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
SCRIPT = (ROOT / ".ci" / "run").read_text()
WORKFLOWS = ROOT / ".github" / "workflows"


def test_steps() -> None:
    """CONTRIBUTING.md, the workflow and .ci/run have every step; drills run at the end."""
    config = RawConfigParser()
    config.read(ROOT / "setup.cfg")
    steps = {*re.split(r",\s*", config["tox:tox"]["env_list"])}
    rows = re.findall(r"^\| (`.*?`) \|", CONTRIBUTING, re.MULTILINE)
    assert {*re.findall(r"`(\w+)`", " ".join(rows))} == steps
    (names,) = re.findall(r"^for name in (.*); do$", SCRIPT, re.MULTILINE)
    assert {*names.split(), "fast", "drills"} == steps
    assert "tox run -q -e drills" in SCRIPT
    workflow = (WORKFLOWS / "tests.yml").read_text()
    assert {*re.findall(r"^ {10}- (\w+)$", workflow, re.MULTILINE)} == steps


@pytest.mark.parametrize("command", ["false", "echo 1 passed, 1 skipped"])
def test_failed_step_of_continuous_integration(command: str) -> None:
    """.ci/run ends at the first step that fails or skips a test, and says how to run it alone."""
    steps = ["step one true", f"step two {command}", "step three true"]
    script = "\n".join([SCRIPT.partition("rm -rf .venv ")[0], *steps])
    done = subprocess.run(
        ["bash", "-c", script, ".ci/run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[-1] == f"This step failed. To run it alone: {command}"
    assert [line for line in lines if line.startswith("== t")] == ["== two"]


def test_files_of_contributors() -> None:
    """Each file that CONTRIBUTING.md names exists, and has the names that it says to be there."""
    for name in re.findall(r"`([\w./]+(?:\.\w+|/))`", CONTRIBUTING):
        is_made = name in {"dist/", "v0.1.0"}
        assert is_made or any((ROOT / folder / name).exists() for folder in ("", "plantstore"))
    for name, file in re.findall(r"`(\w+)`\s+(?:of|in)\s+`(.*?)`", CONTRIBUTING):
        assert re.search(rf"\b{name}\b", (ROOT / "plantstore" / file).read_text())


def test_version_of_the_change_log() -> None:
    """The newest heading of CHANGELOG.md that has a date is the version of the package."""
    changes = (ROOT / "CHANGELOG.md").read_text()
    heading = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", changes, re.MULTILINE)
    assert heading is not None
    assert heading[1] == __version__
    assert date.fromisoformat(heading[2])


@pytest.mark.parametrize("tag", [f"v{__version__}", f"v{__version__}0", "v9.0.0", "v"])
def test_tag_of_a_release(tag: str) -> None:
    """A tag publishes the package only if it is the version, and after all steps."""
    workflow = (WORKFLOWS / "release.yml").read_text()
    (check,) = re.findall(r"run: (grep .*)$", workflow, re.MULTILINE)
    command = f"GITHUB_REF_NAME={tag}; {check} && echo published || true"
    assert run(command, ROOT) == "published\n" * (tag == f"v{__version__}")
    needs = re.findall(r"^  (\w+):\n    needs: (\w+)$", workflow, re.MULTILINE)
    assert needs == [("steps", "version"), ("publish", "steps")]
