"""The commands of docs/embedding.md that install the package into a site that pins its versions."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.support.fresh import copy_project, run
from tests.support.readme import recipe

pytestmark = pytest.mark.install

# Packages that a site pinned in December 2024. All of them have wheels for every Python of CI.
PINS = (
    "blinker==1.7.0 click==8.1.7 Flask==3.0.3 Flask-SQLAlchemy==3.1.1 marshmallow==3.21.3"
    " SQLAlchemy==2.0.36 Werkzeug==3.0.6"
)

# The first request to the site of the factory recipe, which needs marshmallow 3.
FIRST_REQUEST = """
from marshmallow import fields
from shop import create_app, db
fields.String(missing="")
app = create_app()
with app.app_context():
    db.create_all()
headers = {"Authorization": "Bearer s3cret"}
print(app.test_client().post("/garden/plants", json={"id": 1, "name": ""}, headers=headers).text)
"""


def test_install_recipe_with_pins(tmp_path: Path) -> None:
    """In a site with pins, pip keeps its versions, or refuses and names the one too old."""
    project = copy_project(tmp_path)
    (tmp_path / "shop.py").write_text(recipe("factory"))
    (tmp_path / "first_request.py").write_text(FIRST_REQUEST)
    install = recipe("install-pinned").strip().replace(" plantstore", f" -q {project}")
    assert str(project) in install
    install = f"PATH=env/bin:$PATH; {install}"
    run(f"{shlex.quote(sys.executable)} -m venv env && env/bin/pip install -q {PINS}", tmp_path)
    before = run("env/bin/pip freeze | tee requirements.txt", tmp_path).splitlines()
    said = run(f"echo Flask==2.3.3 > requirements.txt; {install} 2>&1 || true", tmp_path)
    assert "flask" in said.lower()
    assert "conflict" in said
    (tmp_path / "requirements.txt").write_text("\n".join(before))
    run(install, tmp_path)
    after = run("env/bin/pip freeze && env/bin/pip check", tmp_path).splitlines()
    assert [line for line in after if not line.startswith("plantstore ")] == [
        *before,
        "No broken requirements found.",
    ]
    assert len(after) == len(before) + 2
    assert run("env/bin/python first_request.py", tmp_path) == '{"name":""}\n'
