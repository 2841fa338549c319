"""The document, tested by tools and by clients that know nothing else."""

import json
import re
import shlex
import shutil
import sys
from itertools import combinations
from pathlib import Path

import pytest

from plantstore.blueprint import OPERATIONS
from plantstore.openapi.document import make_document
from tests.support.fresh import run
from tests.support.serving import Gunicorn
from tests.support.sites import TOKEN

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
ALL = ",".join(OPERATIONS)


def test_document_is_valid() -> None:
    """openapi-spec-validator finds no error, whichever operations are enabled."""
    validator = pytest.importorskip("openapi_spec_validator")
    for count in range(1, len(OPERATIONS) + 1):
        for names in combinations(OPERATIONS, count):
            document = json.loads(json.dumps(make_document(names)))
            assert [*validator.OpenAPIV31SpecValidator(document).iter_errors()] == [], names


def test_patterns_of_other_languages() -> None:
    """Each pattern compiles in RE2, the syntax of Go, and finds U+0000."""
    re2 = pytest.importorskip("re2", reason="pip install -r tests/conformance/requirements.txt")
    patterns = set(re.findall('"pattern": ("[^,}]*")', json.dumps(make_document(OPERATIONS))))
    assert patterns
    for pattern in map(json.loads, patterns):
        compiled = re2.compile(pattern)
        assert compiled.fullmatch("früh\n")
        assert not compiled.fullmatch("a\0b")


@pytest.mark.parametrize(("operations", "examples"), [("create", 500), (ALL, 200)])
def test_service_conforms_to_its_document(operations: str, examples: int, tmp_path: Path) -> None:
    """500 requests, also in sequences, get the responses that the document describes."""
    pytest.importorskip("schemathesis", reason="pip install -r tests/conformance/requirements.txt")
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_OPERATIONS=operations) as service:
        url = f"http://127.0.0.1:{service.port}/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli"]
        command += ["--config-file", f"{HERE}/schemathesis.toml", "run", url, "--checks=all"]
        command += ["-H", f"Authorization: Bearer {TOKEN}", "-n", str(examples)]
        hooks = {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)}
        shown = run(shlex.join(command), tmp_path, **hooks)
    generated = re.search(r"(\d+) generated, (\d+) passed", shown)
    assert generated is not None, shown
    assert int(generated[1]) == int(generated[2]) >= 500
    # It infers more links than those of the document.
    links = re.search(r"API Links: +([1-9]\d*) covered / \1 selected / \1 total", shown)
    assert (links is not None) == (operations == ALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the document and the programs that use the clients."""
    shutil.copytree(HERE / "clients", tmp_path, dirs_exist_ok=True)
    (tmp_path / "document.json").write_text(json.dumps(make_document(OPERATIONS)))
    return tmp_path


def use(client: str, folder: Path) -> None:
    """Run a program that uses a client with a new service, which has all operations."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_OPERATIONS=ALL) as service:
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
