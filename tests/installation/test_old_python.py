"""An installation with a Python that is too old."""

import re
import subprocess
import sys
from configparser import ConfigParser

from tests.support.serving import LIMIT, ROOT

# Asks setup.py for the name of the package, under the version of Python in the arguments.
SETUP = """
import runpy, setuptools, sys
sys.version_info = tuple(map(int, sys.argv.pop(1).split(".")))
sys.argv[1:] = ["--name"]
runpy.run_path("setup.py")
"""


def set_up(version: str) -> subprocess.CompletedProcess[str]:
    """Run setup.py under a version of Python."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SETUP, version],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_too_old_python_is_named_at_once() -> None:
    """With a Python that is too old, the installation ends with one line that says what is needed.

    pip shows it before it looks for any dependency.
    """
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    oldest = config["options"]["python_requires"].removeprefix(">=")
    before = re.sub(r"\d+$", lambda minor: str(int(minor[0]) - 1), oldest)
    refused = set_up(f"{before}.99")
    assert refused.returncode == 1
    assert refused.stderr == f"plantstore needs Python {oldest} or later.\n"
    accepted = set_up(f"{oldest}.0")
    assert (accepted.returncode, accepted.stdout) == (0, "plantstore\n"), accepted.stderr
