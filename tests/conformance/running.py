"""A run of schemathesis against the running service."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.serving import LIMIT, ROOT, Gunicorn
from tests.support.sites import TOKEN

HERE = Path(__file__).parent
#: Why a test is skipped.
REQUIREMENTS = "pip install -r tests/conformance/requirements.txt"
CONFIGURATION = HERE / "schemathesis.toml"


def schemathesis(
    folder: Path, operations: str, examples: int, *options: str, source: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run all checks of schemathesis against a service.

    :param folder: the folder of the files that schemathesis writes.
    :param operations: the operations that the service has.
    :param examples: the number of examples of each operation.
    :param source: the folder of the project.
    """
    pytest.importorskip("schemathesis", reason=REQUIREMENTS)
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": operations}
    with Gunicorn(cwd=source, **settings) as service:
        url = f"http://127.0.0.1:{service.port}/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIGURATION)]
        command += ["run", url, "-H", f"Authorization: Bearer {TOKEN}", "--checks", "all"]
        command += ["-n", str(examples), *options]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)}
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT * 10
        )
