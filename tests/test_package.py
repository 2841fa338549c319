"""Installing and importing the package."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import plantstore

from .fresh import copy_project, run

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

# Packages that a site pinned in November 2024. All of them have wheels for every Python of CI.
PINS = (
    "blinker==1.7.0 click==8.1.7 Flask==3.0.3 Flask-SQLAlchemy==3.1.1 marshmallow==3.21.3"
    " orjson==3.10.11 SQLAlchemy==2.0.36 Werkzeug==3.0.6"
)

# A site that needs marshmallow 3, and adds a plant to the plant store that it embeds.
PINNED_SITE = """
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from marshmallow import Schema, fields
from plantstore import SQLStore, StaticTokens, create_blueprint

class Note(Schema):
    text = fields.String(missing="")

app = Flask(__name__)
app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite:///site.db"
db = SQLAlchemy(app)
with app.app_context():
    store = SQLStore(db.engine, db.metadata)
    db.create_all()
garden = create_blueprint(store=store, verify_token=StaticTokens(["s3cret"]))
app.register_blueprint(garden, url_prefix="/garden")
rose, headers = {"id": 1, "name": "Rose"}, {"Authorization": "Bearer s3cret"}
response = app.test_client().post("/garden/plants", json=rose, headers=headers)
print(response.json, *store)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of commands of a new environment after `pip install .`."""
    folder = copy_project(tmp_path_factory.mktemp("package"))
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    run("env/bin/pip install -q .", folder)
    return folder / "env" / "bin"


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the project, a wheel of it, and an environment with PINS."""
    folder = copy_project(tmp_path_factory.mktemp("pinned"))
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    run(f"env/bin/pip install -q {PINS}", folder)
    run("env/bin/pip wheel -q --no-deps -w dist .", folder)
    return folder


@pytest.mark.parametrize("package", [".", "$(ls dist/*.whl)"])
def test_installation_keeps_the_versions_of_a_site(
    pinned: Path, tmp_path: Path, package: str
) -> None:
    """In a site with older versions, installation adds one package, and the site works with it."""
    before = run("env/bin/pip freeze", pinned).splitlines()
    run(f"env/bin/pip install -q {package}[sqlite]", pinned)
    after = run("env/bin/pip freeze && env/bin/pip check", pinned).splitlines()
    assert [line for line in after if not line.startswith("plantstore ")] == [
        *before,
        "No broken requirements found.",
    ]
    assert len(after) == len(before) + 2
    (tmp_path / "pinned_site.py").write_text(PINNED_SITE)
    python = shlex.quote(f"{pinned}/env/bin/python")
    created, plant = run(f"{python} {tmp_path}/pinned_site.py", tmp_path).split(" Plant")
    assert (created, plant) == ("{'name': 'Rose'}", "(id=1, name='Rose', tag=None)\n")
    run("env/bin/pip uninstall -q -y plantstore", pinned)


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


def test_unknown_attribute_raises_attribute_error() -> None:
    """An unknown name of the package raises AttributeError."""
    with pytest.raises(AttributeError, match="weeds"):
        plantstore.weeds  # noqa: B018


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


def test_sql_store_with_a_missing_sqlalchemy(monkeypatch: pytest.MonkeyPatch) -> None:
    """If SQLAlchemy is missing, SQLStore is an ImportError that has the cause."""
    monkeypatch.delitem(sys.modules, "plantstore.stores.sql")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ImportError, match=r"pip install 'plantstore\[sqlite\]'") as caught:
        plantstore.SQLStore  # noqa: B018
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_sql_store_with_a_broken_sqlalchemy(monkeypatch: pytest.MonkeyPatch) -> None:
    """If SQLAlchemy is installed but lacks a module, the ImportError names that module."""
    monkeypatch.delitem(sys.modules, "plantstore.stores.sql")
    monkeypatch.setitem(sys.modules, "sqlalchemy.dialects", None)
    with pytest.raises(ImportError, match="sqlalchemy.dialects") as caught:
        plantstore.SQLStore  # noqa: B018
    assert "pip install" not in str(caught.value)


def test_every_public_name_exists() -> None:
    """Each name of __all__ can be imported."""
    names: dict[str, object] = {}
    exec("from plantstore import *", names)
    assert {*plantstore.__all__} <= {*names}
