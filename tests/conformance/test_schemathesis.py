"""schemathesis: the service does what its document says, for valid and invalid requests."""

import re
import shutil
from pathlib import Path

import pytest

from plantstore.blueprint import OPERATIONS
from tests.conformance.running import schemathesis
from tests.support.serving import ROOT

pytestmark = pytest.mark.conformance

ALL = ",".join(OPERATIONS)


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


# Faults: the file, a line of it, and what replaces the line.
FAULTS: dict[str, tuple[str, str, str]] = {
    "id in the Plant": (
        "views.py",
        "return JSONResponse(plant_schema.dump(new_plant))",
        "return JSONResponse(new_plant)",
    ),
    "null as the tag": (
        "views.py",
        "return JSONResponse(plant_schema.dump(plant._asdict()))",
        'return JSONResponse({"name": plant.name, "tag": plant.tag})',
    ),
    "401 without WWW-Authenticate": (
        "errors.py",
        '{"WWW-Authenticate": \'Bearer realm="plantstore"\'},',
        "{},",
    ),
    "405 without Allow": (
        "app.py",
        'return ErrorResponse(40501, message, [("Allow", allow)])',
        "return ErrorResponse(40501, message)",
    ),
    "wrong media type": (
        "responses.py",
        'super().__init__(self._body, status, headers, content_type="application/json")',
        'super().__init__(self._body, status, headers, content_type="text/json")',
    ),
    "number of an Error as text": (
        "errors.py",
        'data = {"error": number, "message": text if message is None else message}',
        'data = {"error": f"{number}", "message": text if message is None else message}',
    ),
    "another status": (
        "views.py",
        "return JSONResponse(plant_schema.dump(new_plant))",
        "return JSONResponse(plant_schema.dump(new_plant), 201)",
    ),
    "credentials are not checked": (
        "auth.py",
        "raise Refused(40101)",
        'return "anyone"',
    ),
    "name is not required": (
        "schemas.py",
        "name: Text = Text(required=True)",
        'name: Text = Text(load_default="")',
    ),
    "plant is not stored": (
        "views.py",
        "self._store.add(plant)",
        "self._store.ping()",
    ),
    "plant is not removed": (
        "views.py",
        "self._store.remove(id)",
        "self._store.ping()",
    ),
    "limit of a page is not checked": (
        "schemas.py",
        "if number is None or number not in self._integers:",
        "if number is None:",
    ),
    "exception": (
        "views.py",
        "page = _load_page(request.args)",
        "page = _load_page(request.view_args)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_detected(fault: str, tmp_path: Path) -> None:
    """A fault in a single line of the service is detected by schemathesis."""
    for name in ("plantstore", "wsgi.py", "gunicorn.conf.py"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    name, line, faulty = FAULTS[fault]
    file = tmp_path / "plantstore" / name
    source = file.read_text()
    assert line in source
    file.write_text(source.replace(line, faulty, 1))
    options = ("--max-failures=1", "--no-shrink", "--seed=1")
    run = schemathesis(tmp_path, ALL, 200, *options, source=tmp_path)
    assert run.returncode == 1, run.stdout
    assert re.search(r" found [0-9]+ unique failure", run.stdout), run.stdout
