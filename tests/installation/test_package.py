"""Installing and importing the package."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fresh import copy_project, run

pytestmark = pytest.mark.install

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


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of commands of a new environment after `pip install .`."""
    folder = copy_project(tmp_path_factory.mktemp("package"))
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    run("env/bin/pip install -q .", folder)
    return folder / "env" / "bin"


def test_import_opens_no_file_or_socket(installed: Path, tmp_path: Path) -> None:
    """Importing the installed package opens nothing except modules."""
    script = tmp_path / "watched_import.py"
    script.write_text(WATCHED_IMPORT)
    assert run(shlex.join([f"{installed}/python", str(script)]), tmp_path) == ""


def test_plantstore_command_is_installed(installed: Path, tmp_path: Path) -> None:
    """Installation provides the plantstore command, which makes a token without configuration."""
    assert len(run(shlex.join([f"{installed}/plantstore", "token"]), tmp_path).splitlines()) == 2


def test_dependencies_include_no_server_and_no_engine(installed: Path, tmp_path: Path) -> None:
    """Installation brings neither a web server nor a database engine."""
    packages = run(shlex.join([f"{installed}/pip", "list", "--format=freeze"]), tmp_path).lower()
    assert "flask==" in packages
    assert "gunicorn" not in packages
    assert "sqlalchemy" not in packages


def test_py_typed_is_installed(installed: Path, tmp_path: Path) -> None:
    """The installed package contains py.typed (PEP 561)."""
    script = "import plantstore; print(plantstore.__path__[0])"
    where = run(shlex.join([f"{installed}/python", "-c", script]), tmp_path)
    assert (Path(where.strip()) / "py.typed").exists()


def test_sql_store_without_sqlalchemy(installed: Path, tmp_path: Path) -> None:
    """Without SQLAlchemy, SQLStore says which extra to install; import * imports the others."""
    command = "from plantstore import *; MemoryStore; from plantstore import SQLStore"
    error = run(f"'{installed}/python' -c '{command}' 2>&1 || true", tmp_path)
    assert error.endswith(
        "ImportError: SQLStore needs SQLAlchemy: pip install 'plantstore[sqlite]'\n"
    )
