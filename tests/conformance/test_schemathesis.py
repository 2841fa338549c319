"""schemathesis: the service does what its document says, for valid and invalid requests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from plantstore.blueprint import OPERATIONS
from tests.support.serving import LIMIT, Gunicorn
from tests.support.sites import TOKEN

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
ALL = ",".join(OPERATIONS)


@pytest.mark.parametrize(("operations", "examples"), [("create", 500), (ALL, 200)])
def test_service_conforms_to_its_document(operations: str, examples: int, tmp_path: Path) -> None:
    """500 requests, also in sequences, get the responses that the document describes."""
    pytest.importorskip("schemathesis", reason="pip install -r tests/conformance/requirements.txt")
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_OPERATIONS=operations) as service:
        url = f"http://127.0.0.1:{service.port}/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli"]
        command += ["--config-file", f"{HERE}/schemathesis.toml", "run", url, "--checks=all"]
        command += ["-H", f"Authorization: Bearer {TOKEN}", "-n", str(examples)]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)}
        run = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT * 10,
        )
    assert run.returncode == 0, run.stdout
    generated = re.search(r"(\d+) generated, (\d+) passed", run.stdout)
    assert generated is not None, run.stdout
    assert int(generated[1]) == int(generated[2]) >= 500
    # It infers more links than those of the document.
    links = re.search(r"API Links: +([1-9]\d*) covered / \1 selected / \1 total", run.stdout)
    assert (links is not None) == (operations == ALL)
