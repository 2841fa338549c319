"""schemathesis: the service does what its document says, for valid and invalid requests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plantstore.blueprint import OPERATIONS
from tests.support.serving import LIMIT, ROOT, Gunicorn
from tests.support.sites import TOKEN

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
ALL = ",".join(OPERATIONS)


def schemathesis(
    folder: Path, operations: str, examples: int, *options: str, source: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run all checks of schemathesis against a service.

    :param folder: the folder of the files that schemathesis writes.
    :param operations: the operations that the service has.
    :param examples: the number of examples of each operation.
    :param source: the folder of the project.
    """
    pytest.importorskip("schemathesis", reason="pip install -r tests/conformance/requirements.txt")
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_OPERATIONS": operations}
    with Gunicorn(cwd=source, **settings) as service:
        url = f"http://127.0.0.1:{service.port}/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli"]
        command += ["--config-file", f"{HERE}/schemathesis.toml", "run", url, "--checks=all"]
        command += ["-H", f"Authorization: Bearer {TOKEN}", "-n", str(examples), *options]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE)}
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT * 10
        )


@pytest.mark.parametrize(("operations", "examples"), [("create", 2000), (ALL, 500)])
def test_service_conforms_to_its_document(operations: str, examples: int, tmp_path: Path) -> None:
    """At least 2,000 requests, valid and invalid, get the responses that the document describes.

    With all operations, they include sequences of requests: create, read and delete a plant.
    """
    run = schemathesis(tmp_path, operations, examples)
    assert run.returncode == 0, run.stdout
    generated = re.search(r"(\d+) generated, (\d+) passed", run.stdout)
    assert generated is not None, run.stdout
    assert int(generated[1]) == int(generated[2]) >= 2000
    # It infers more links than those of the document.
    links = re.search(r"API Links: +([1-9]\d*) covered / \1 selected / \1 total", run.stdout)
    assert (links is not None) == (operations == ALL)


# What schemathesis reports about a fault; its file, a line of it, and what replaces the line.
Fault = tuple[str, str, str, str]
FAULTS: list[Fault] = [
    (
        "Custom check failed: `plant_has_no_id`",
        *("views.py", "plant_schema.dump(new_plant))", "new_plant)"),
    ),
    (
        'null is not of type "string"',
        *(
            "views.py",
            "plant_schema.dump(plant._asdict())",
            '{"name": plant.name, "tag": plant.tag}',
        ),
    ),
    (
        "- `WWW-Authenticate`",
        *("errors.py", '{"WWW-Authenticate": \'Bearer realm="plantstore"\'},', "{},"),
    ),
    (
        "Wrong response to undeclared method",
        *("app.py", 'ErrorResponse(40501, message, [("Allow", allow)])', "ErrorResponse(40501)"),
    ),
    (
        "Deleted resource still available",
        *("views.py", "self._store.remove(id)", "self._store.ping()"),
    ),
    (
        "Invalid component: parameter `limit` in query",
        *("schemas.py", "number is None or number not in self._integers:", "number is None:"),
    ),
]
# These would hide some of the others.
MORE_FAULTS: list[Fault] = [
    (
        "API accepts requests without authentication",
        *("auth.py", "raise Refused(40101)", 'return "anyone"'),
    ),
    (
        "Undocumented Content-Type",
        *("responses.py", 'content_type="application/json"', 'content_type="text/json"'),
    ),
    (
        "Created resource not found",
        *("views.py", "self._store.add(plant)", "self._store.ping()"),
    ),
    (
        "Server error",
        *("views.py", "_load_page(request.args)", "_load_page(request.view_args)"),
    ),
]


@pytest.mark.parametrize("faults", [FAULTS, MORE_FAULTS])
def test_faults_are_detected(faults: list[Fault], tmp_path: Path) -> None:
    """Faults in single lines of the service are detected by schemathesis."""
    for name in ("plantstore", "wsgi.py", "gunicorn.conf.py"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    for _, name, line, faulty in faults:
        file = tmp_path / "plantstore" / name
        source = file.read_text()
        assert line in source
        file.write_text(source.replace(line, faulty, 1))
    options = ("--continue-on-failure", "--phases=coverage,stateful", "--no-shrink", "--seed=1")
    run = schemathesis(tmp_path, ALL, 20, *options, source=tmp_path)
    assert [report for report, *_ in faults if report not in run.stdout] == [], run.stdout
