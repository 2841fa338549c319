"""Clients that are generated from the document."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from plantstore.blueprint import OPERATIONS
from plantstore.openapi.document import make_document
from tests.support.fresh import run
from tests.support.serving import Gunicorn
from tests.support.sites import TOKEN

pytestmark = pytest.mark.conformance

CLIENTS = Path(__file__).parent / "clients"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the document and the programs that use the clients."""
    shutil.copytree(CLIENTS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "document.json").write_text(json.dumps(make_document(OPERATIONS)))
    return tmp_path


def use(client: str, folder: Path) -> None:
    """Run a program that uses a client with a new service, which has all operations."""
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": ",".join(OPERATIONS)}
    with Gunicorn(**settings) as service:
        run(f"{client} http://127.0.0.1:{service.port}", folder)


def test_python_client(folder: Path) -> None:
    """A strictly typed client of openapi-python-client adds plants, and pages through 250."""
    (folder / "config.yml").write_text("post_hooks: []")
    generate = "openapi_python_client generate --path document.json --meta none --fail-on-warning"
    output = "--output-path plant_store_client --config config.yml"
    python = sys.executable
    run(f"{python} -m {generate} {output}", folder)
    run(f"{python} -m mypy --strict --follow-imports silent use_client.py", folder)
    use(f"{python} use_client.py", folder)


def test_typescript_client(folder: Path) -> None:
    """A strictly typed client of openapi-fetch adds plants, and pages through 250."""
    run("npm install --silent --no-audit --no-fund", folder)
    run("npx openapi-typescript document.json --output schema.ts", folder)
    run("npx tsc --strict --module nodenext --target es2022 use_client.ts", folder)
    use("node use_client.js", folder)
