"""The recipes that fit the store to a site: its log, extensions, tenants, databases and tests."""

import os
import re
import shlex
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest

from plantstore import StoreUnavailable
from tests.support.fresh import copy_project, run
from tests.support.readme import recipe, run_recipes
from tests.support.serving import LIMIT, ROOT
from tests.support.sites import LILY, ROSE_PLANT


def test_minimum_versions() -> None:
    """The table of versions names those of setup.cfg."""
    text = (ROOT / "docs" / "embedding.md").read_text()
    table = dict(re.findall(r"^\| ([\w]+)[^|]* \| ([\d.]+) \|", text, re.MULTILINE))
    setup = RawConfigParser()
    setup.read(ROOT / "setup.cfg")
    options, extras = setup["options"], setup["options.extras_require"]
    required = " ".join([options["install_requires"], extras["sqlite"]])
    versions = dict(
        re.findall(r"(\w+)>=([\d.]+)", f"Python{options['python_requires']} {required}")
    )
    # Werkzeug comes with Flask, whose version 3.0.0 needs at least this one.
    assert {name.lower(): version for name, version in table.items()} == {
        **{name.lower(): version for name, version in versions.items()},
        "werkzeug": versions["flask"],
    }


def test_sqlite3_recipe(tmp_path: Path) -> None:
    """The store and a site with sqlite3 share a file, whose journal stays as the site made it.

    While the site has not committed a write, the store raises StoreUnavailable; then it adds.
    """
    app = f'app = Flask("shop", instance_path={str(tmp_path)!r})\n'
    names = run_recipes(app=app, store=recipe("sqlite3"))
    with names["app"].app_context(), names["store"] as store:
        db = names["get_db"]()
        db.execute("CREATE TABLE visit (path TEXT)")
        store.add(ROSE_PLANT)
        assert db.execute("SELECT * FROM plants").fetchall() == [tuple(ROSE_PLANT)]
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        db.execute("INSERT INTO visit VALUES ('/')")
        with pytest.raises(StoreUnavailable, match="open transaction|not responded in time"):
            store.add(LILY)
        db.commit()
        store.add(LILY)
        assert list(store) == [ROSE_PLANT, LILY]


EXEMPT = "    csrf.exempt(garden)\n"


@pytest.mark.parametrize(
    ("site", "tests", "result"),
    [
        (recipe("factory"), recipe("testing") + "\n\n" + recipe("testing-failure"), "2 passed"),
        (recipe("site"), recipe("site-test"), "1 passed"),
        (recipe("site").replace(EXEMPT, ""), recipe("site-test"), "assert 400 == 200"),
    ],
)
def test_recipes_for_tests(tmp_path: Path, site: str, tests: str, result: str) -> None:
    """The tests of the guide pass, with warnings as errors, and find a forgotten csrf.exempt."""
    (tmp_path / "shop.py").write_text(site)
    (tmp_path / "test_shop.py").write_text(tests)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert result in done.stdout, done.stdout


def test_whole_site_in_production(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole site keeps its plants in its database, and a migration can find their table."""
    names: dict[str, Any] = {"__name__": "shop"}
    exec(recipe("site"), names)
    names["create_app"]({"SECRET_KEY": "x", "SQLALCHEMY_DATABASE_URI": "sqlite://"})
    assert {*names["db"].metadata.tables} == {"user", "plants"}


@pytest.mark.install
def test_install_recipe_with_frozen_versions(tmp_path: Path) -> None:
    """The installation changes no version of a site, whose requirements may have extras."""
    project = copy_project(tmp_path)
    pinned = "'flask[async]==3.1.0' Werkzeug==3.1.0"
    install = recipe("install-frozen").strip().replace(" plantstore", f" -q {project}")
    said = run(
        f"{shlex.quote(sys.executable)} -m venv env && PATH=env/bin:$PATH"
        f" && pip install -q {pinned} && {install} && pip freeze",
        tmp_path,
    )
    for name in ("Flask==3.1.0", "Werkzeug==3.1.0", "plantstore @ "):
        assert name in said
