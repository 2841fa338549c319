"""Commands as on a fresh machine: a copy of the project, without this environment's settings."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.serving import LIMIT, ROOT

# Environment variables of the test run that would change what the commands do.
OTHERS = re.compile("COVERAGE|GRANIAN|GUNICORN|HYPOTHESIS|PLANTSTORE|PYTEST|PYTHON|TOX|VIRTUAL_ENV")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not OTHERS.match(name)}


def copy_project(folder: Path) -> Path:
    """Return a copy of the project in this folder, without build results and caches."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    return Path(shutil.copytree(ROOT, folder / "plantstore", ignore=ignored))


def attempt(command: Sequence[Any], **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program, which may fail, for at most a minute; return its status and its output."""
    options = {"timeout": LIMIT, **options}
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def run(command: str, folder: Path, **environment: str) -> str:
    """Run a shell command in a folder, which must succeed; return its standard output."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode()
