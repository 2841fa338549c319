"""Installation into a site that pins older versions of its packages."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fresh import copy_project, run

pytestmark = pytest.mark.install

# Packages that a site pinned in December 2024. All of them have wheels for every Python of CI.
PINS = (
    "blinker==1.7.0 click==8.1.7 Flask==3.0.3 Flask-SQLAlchemy==3.1.1 marshmallow==3.21.3"
    " SQLAlchemy==2.0.36 Werkzeug==3.0.6"
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
