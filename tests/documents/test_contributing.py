"""CONTRIBUTING.md and continuous integration name the steps of tox; a release has one version."""

import re
import subprocess
from configparser import RawConfigParser
from datetime import date

import pytest

from plantstore import __version__
from tests.support.fresh import run
from tests.support.serving import LIMIT, ROOT


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


def run_steps(*steps: str) -> list[str]:
    """Run .ci/run with other steps, which must fail; return the lines of its output."""
    script = (ROOT / ".ci" / "run").read_text().partition("rm -rf .venv ")[0]
    command = ["bash", "-c", "\n".join([script, *steps]), ".ci/run"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("command", ["false", "echo 1 passed, 1 skipped"])
def test_failed_step_of_continuous_integration(command: str) -> None:
    """.ci/run ends at the first step that fails or skips a test, and says how to run it alone."""
    lines = run_steps("step one true", f"step two {command}", "step three true")
    assert lines[-1] == f"This step failed. To run it alone: {command}"
    assert [line for line in lines if line.startswith("== t")] == ["== two"]


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize("name", re.findall(r"`([\w./]+(?:\.\w+|/))`", CONTRIBUTING))
def test_files_of_contributors(name: str) -> None:
    """Each file and folder that CONTRIBUTING.md names exists; what a step makes is ignored."""
    is_made = name in {"dist/", "v0.1.0"}
    assert is_made or any((ROOT / folder / name).exists() for folder in ("", "plantstore"))


@pytest.mark.parametrize(
    ("name", "file"), re.findall(r"`(\w+)`\s+(?:of|in)\s+`(.*?)`", CONTRIBUTING)
)
def test_names_in_files_of_contributors(name: str, file: str) -> None:
    """Each name that CONTRIBUTING.md says to be in a file is there."""
    assert re.search(rf"\b{name}\b", (ROOT / "plantstore" / file).read_text())


def test_version_of_the_change_log() -> None:
    """The newest heading of CHANGELOG.md that has a date is the version of the package."""
    changes = (ROOT / "CHANGELOG.md").read_text()
    heading = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", changes, re.MULTILINE)
    assert heading is not None
    assert heading[1] == __version__
    assert date.fromisoformat(heading[2])


@pytest.mark.parametrize(
    ("tag", "published"),
    [(f"v{__version__}", True), (f"v{__version__}0", False), ("v9.0.0", False), ("v", False)],
)
def test_tag_of_a_release(tag: str, published: bool) -> None:
    """A tag publishes the package only if it is the version, and after all steps."""
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    check = re.search(r"run: (grep .*)$", workflow, re.MULTILINE)
    assert check is not None
    command = f"GITHUB_REF_NAME={tag}; {check[1]} && echo published || true"
    assert run(command, ROOT) == ("published\n" if published else "")
    assert re.findall(r"^  (\w+):\n    needs: (\w+)$", workflow, re.MULTILINE) == [
        ("steps", "version"),
        ("publish", "steps"),
    ]
