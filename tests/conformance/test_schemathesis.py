"""schemathesis: the service does what its document says, for valid and invalid requests."""

import re
import shutil
from pathlib import Path

import pytest

from tests.conformance.running import schemathesis
from tests.support.serving import ROOT

pytestmark = pytest.mark.conformance

ALL = "create,read,list,delete"


@pytest.mark.parametrize(("operations", "examples"), [("create", 1000), (ALL, 250)])
def test_service_conforms_to_its_document(operations: str, examples: int, tmp_path: Path) -> None:
    """At least 1,000 requests, valid and invalid, get the responses that the document describes.

    With all operations, they include sequences of requests: create, read and delete a plant.
    """
    run = schemathesis(tmp_path, operations, examples)
    assert run.returncode == 0, run.stdout
    generated = re.search(r"(\d+) generated, (\d+) passed", run.stdout)
    assert generated is not None, run.stdout
    assert int(generated[1]) == int(generated[2]) >= 1000
    links = "API Links:    2 covered / 2 selected / 2 total"
    assert (links in run.stdout) == (operations == ALL)


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
        assert source.count(line) == 1
        file.write_text(source.replace(line, faulty))
    options = ("--continue-on-failure", "--phases=coverage,stateful", "--no-shrink", "--seed=1")
    run = schemathesis(tmp_path, ALL, 20, *options, source=tmp_path)
    assert [report for report, *_ in faults if report not in run.stdout] == [], run.stdout
