"""The package in an environment that has nothing else, or another package, or an old Python."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.fresh import attempt, copy_project, run
from tests.support.readme import block, recipe
from tests.support.serving import ROOT

WATCHED_IMPORT = """
import sys

def audit(event, arguments):
    if event.split(".")[0] in {"socket", "sqlite3", "subprocess"}:
        print(event, *arguments)
    if event == "open" and not str(arguments[0]).endswith((".py", ".pyc", ".so")):
        print(event, *arguments)

sys.addaudithook(audit)
import plantstore
"""

PAGES = """
from plantstore import create_app
client = create_app({"PLANTSTORE_TOKENS": "s3cret"}).test_client()
for path in ("/openapi.json", "/docs", "/docs/docs.css", "/docs/swagger-ui.css"):
    print(client.get(path).status_code)
"""


@pytest.mark.install
def test_package_without_extras(tmp_path: Path) -> None:
    """Without extras, the package works; what needs an extra is absent, or says which one."""
    project = copy_project(tmp_path)
    run(f"{shlex.quote(sys.executable)} -m venv env", tmp_path)
    install = recipe("install").replace("pip install plantstore", f"pip install -q {project}")
    run(f"PATH=env/bin:$PATH; {install}", tmp_path)
    for name, code in (("watched.py", WATCHED_IMPORT), ("pages.py", PAGES)):
        (tmp_path / name).write_text(code)
    assert run("env/bin/python watched.py", tmp_path) == ""
    packages = run("env/bin/pip list --format=freeze", tmp_path).lower()
    assert "flask==" in packages
    assert not re.search("gunicorn|sqlalchemy", packages)
    code = "from plantstore import *; MemoryStore; from plantstore import SQLStore"
    said = run(f"env/bin/python -c '{code}' 2>&1 || true", tmp_path)
    assert said.endswith("SQLStore needs SQLAlchemy: pip install 'plantstore[sqlite]'\n")
    checked = run("PLANTSTORE_TOKENS=s3cret env/bin/plantstore check", tmp_path)
    assert "\nok     Store: memory:// can be used (" in checked
    assert run("env/bin/python -m plantstore token", tmp_path).startswith("sha256:")
    assert run("env/bin/plantstore openapi", tmp_path).startswith('{\n  "openapi": "3.1.0",\n')
    assert run("env/bin/python pages.py", tmp_path).split() == ["200"] + ["404"] * 3
    run(f"env/bin/pip install -q '{project}[docs]'", tmp_path)
    assert run("env/bin/python pages.py", tmp_path).split() == ["200"] * 4


# Asks setup.py for the name of the package, under the version of Python in the arguments.
SETUP = """
import runpy, setuptools, sys
sys.version_info = tuple(map(int, sys.argv.pop(1).split(".")))
sys.argv[1:] = ["--name"]
runpy.run_path("setup.py")
"""


def test_too_old_python_is_named_at_once() -> None:
    """With a Python that is too old, the installation ends with one line that says so."""
    said = "plantstore needs Python 3.11 or later.\n"
    for version, result in (("3.10.99", (1, "", said)), ("3.11.0", (0, "plantstore\n", ""))):
        done = attempt([sys.executable, "-W", "ignore", "-c", SETUP, version], cwd=ROOT)
        assert (done.returncode, done.stdout, done.stderr) == result


@pytest.mark.install
def test_store_of_the_docs_in_a_package_of_its_own(tmp_path: Path) -> None:
    """The store of docs/stores.md passes the shipped suite, and works by URL when installed."""
    copy_project(tmp_path)
    package = tmp_path / "plantstore-folder"
    package.mkdir()
    for file, name in (
        ("plantstore_folder.py", "folder-store"),
        ("pyproject.toml", "folder-pyproject"),
        ("test_plantstore_folder.py", "folder-tests"),
    ):
        (package / file).write_text(block(name, "docs/stores.md"))
    tests = run(block("folder-install", "docs/stores.md"), package)
    assert re.search(r"=+ \d{2} passed in .* =+\n$", tests)
    plant = '{"id":1,"name":"Monstera","tag":"indoor"}\n'
    used = run(block("folder-use", "docs/stores.md"), package)
    assert used == f"1 added, 0 already there, 0 different\n{plant}"
