"""The commands of docs/embedding.md that install the package into a site."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.support.fresh import copy_project, run
from tests.support.readme import recipe

pytestmark = pytest.mark.install

# The first request to the site of the factory recipe.
FIRST_REQUEST = """
from shop import create_app, db
app = create_app()
with app.app_context():
    db.create_all()
headers = {"Authorization": "Bearer s3cret"}
print(app.test_client().post("/garden/plants", json={"id": 1, "name": ""}, headers=headers).text)
"""


def test_install_recipe(tmp_path: Path) -> None:
    """In a site with Flask-SQLAlchemy, plantstore without an extra can use the site's database."""
    project = copy_project(tmp_path)
    (tmp_path / "shop.py").write_text(recipe("factory"))
    (tmp_path / "first_request.py").write_text(FIRST_REQUEST)
    install = recipe("install").replace("pip install plantstore", f"pip install -q {project}")
    assert str(project) in install
    run(
        f"{shlex.quote(sys.executable)} -m venv env && env/bin/pip install -q Flask-SQLAlchemy",
        tmp_path,
    )
    run(f"PATH=env/bin:$PATH; {install}", tmp_path)
    assert run("env/bin/python first_request.py", tmp_path) == '{"name":""}\n'


@pytest.mark.parametrize(("flask", "installed"), [("3.0.3", True), ("2.3.3", False)])
def test_install_recipe_with_pins(tmp_path: Path, flask: str, installed: bool) -> None:
    """With the pins of a site, pip keeps its versions, or refuses and names the one too old."""
    project = copy_project(tmp_path)
    (tmp_path / "requirements.txt").write_text(f"Flask=={flask}\nWerkzeug=={flask}\n")
    install = recipe("install-pinned").strip().replace(" plantstore", f" -q {project}")
    assert str(project) in install
    run(f"{shlex.quote(sys.executable)} -m venv env", tmp_path)
    said = run(f"PATH=env/bin:$PATH; {install} 2>&1 || true; pip freeze", tmp_path)
    assert (f"Flask=={flask}" in said) == installed
    assert ("flask" in said.lower() and "conflict" in said) != installed
