"""Commands as on a fresh machine: a copy of the project, and nothing of ours around it."""

import os
import shutil
import subprocess
from pathlib import Path

from .serving import ROOT

OURS = (
    "COVERAGE",
    "GUNICORN",
    "HYPOTHESIS",
    "PLANTSTORE",
    "PYTEST",
    "PYTHON",
    "TOX",
    "VIRTUAL_ENV",
)
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}


def copy_project(folder: Path) -> Path:
    """Return a copy of the project within a folder, without what was built or cached."""
    made = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    return Path(shutil.copytree(ROOT, folder / "plantstore", ignore=made))


def run(command: str, folder: Path) -> str:
    """Run a shell command in a folder; return what it wrote on standard output."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=ENVIRONMENT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
