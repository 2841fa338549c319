"""The recipes that fit the store to a site: its log, extensions, tenants, databases and tests."""

import os
import re
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
from flask_login import LoginManager
from flask_smorest import Api

from plantstore import StoreUnavailable
from tests.support.readme import create_rose, recipe, run_recipes, site_code
from tests.support.responses import check_error
from tests.support.serving import LIMIT, ROOT
from tests.support.sites import LILY, ROSE, ROSE_PLANT


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


TWO_REQUESTS = """
client = app.test_client()
client.post("/garden/plants")
client.post(
    "/garden/plants", json={"id": 1, "name": "Rose"}, headers={"Authorization": "Bearer s3cret"}
)
"""
LOGGERS = '        "loggers": {"plantstore": {"level": "INFO"}},\n'
KEEP = '        "disable_existing_loggers": False,\n'
ROOT_LEVEL = '"root": {"handlers": ["stderr"], "level": "INFO"}'


@pytest.mark.parametrize(
    ("omitted", "shown"),
    [([], True), ([LOGGERS], True), ([KEEP], True), ([KEEP, LOGGERS], False)],
)
def test_log_config_recipe(omitted: list[str], shown: bool) -> None:
    """A dictConfig that neither names the logger nor keeps all loggers hides the lines."""
    config = recipe("log-config")
    for line in omitted:
        config = config.replace(line, "")
    config = config.replace('"root": {"handlers": ["stderr"]}', ROOT_LEVEL)
    done = subprocess.run(
        [sys.executable, "-c", site_code(config, TWO_REQUESTS)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    for text in ("40101: Send ", "Plant 1 was added ("):
        assert (text in done.stderr) == shown


def test_talisman_recipe() -> None:
    """Talisman redirects clients to HTTPS, but not the probes of a load balancer."""
    site = run_recipes(recipe("talisman"))["app"]
    client = site.test_client()
    assert create_rose(site).location == "https://localhost/garden/plants"
    assert create_rose(site, base_url="https://localhost").status_code == 200
    for path in ("/healthz", "/readyz"):
        assert client.get(path).status_code == 200


def test_login_recipe_with_health() -> None:
    """A login hook that exempts both blueprints lets the probes pass."""
    health = "from plantstore import create_health_blueprint\n" + (
        "health = create_health_blueprint(store=store)\napp.register_blueprint(health)\n"
    )
    hook = recipe("login")
    for code, status in ((hook, 302), (hook.replace("is garden", "in (garden, health)"), 200)):
        site = run_recipes(health, code)["app"]
        LoginManager(site).user_loader(lambda id: None)
        site.add_url_rule("/login", "login", lambda: "Log in.")
        assert site.test_client().get("/healthz").status_code == status


def test_tenants_recipe() -> None:
    """Each tenant has plants and tokens of its own; an unknown one gets 40400."""
    names = run_recipes(registration=recipe("tenants"), garden="")
    client, tenants = names["app"].test_client(), names["tenants"]
    north, south = ({"Authorization": f"Bearer {token}"} for token in ("n0rth", "s0uth"))
    url = "/gardens/{}/plants"
    assert client.post(url.format("north"), json=ROSE, headers=north).status_code == 200
    check_error(client.post(url.format("south"), json=ROSE, headers=north), 40102)
    assert client.post(url.format("south"), json=ROSE, headers=south).status_code == 200
    check_error(client.post(url.format("west"), json=ROSE, headers=north), 40400)
    check_error(client.post(url.format("west"), json=ROSE), 40101)
    assert [list(store) for store, _ in tenants.values()] == [[ROSE_PLANT], [ROSE_PLANT]]


def test_smorest_recipe() -> None:
    """The application registers the blueprint; the Api of flask-smorest refuses it."""
    site = run_recipes(registration=recipe("smorest"))["app"]
    assert create_rose(site).status_code == 200
    names = run_recipes(registration="")
    names["app"].config.update(API_TITLE="Shop", API_VERSION="1", OPENAPI_VERSION="3.1.0")
    with pytest.raises(AttributeError, match="register_views_in_doc"):
        Api(names["app"]).register_blueprint(names["garden"])


@pytest.fixture
def sqlite3_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the site of the sqlite3 recipe, with a page that writes and then calls the store."""
    monkeypatch.chdir(tmp_path)
    app = f'app = Flask("shop", instance_path={str(tmp_path)!r})\n'
    names = run_recipes(app=app, store=recipe("sqlite3"))
    with names["app"].app_context():
        names["get_db"]().execute("CREATE TABLE visit (path TEXT)")
    return names


def test_sqlite3_recipe(sqlite3_site: dict[str, Any]) -> None:
    """The store and a site with sqlite3 share a file, whose journal stays as the site made it."""
    assert create_rose(sqlite3_site["app"]).status_code == 200
    with sqlite3_site["app"].app_context():
        db = sqlite3_site["get_db"]()
        assert db.execute("SELECT * FROM plants").fetchall() == [tuple(ROSE_PLANT)]
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    sqlite3_site["store"].close()


def test_sqlite3_write_without_a_commit(sqlite3_site: dict[str, Any]) -> None:
    """While the site has not committed a write, the store raises StoreUnavailable; then it adds."""
    store = sqlite3_site["store"]
    with sqlite3_site["app"].app_context():
        db = sqlite3_site["get_db"]()
        db.execute("INSERT INTO visit VALUES ('/')")
        with pytest.raises(StoreUnavailable, match="open transaction|not responded in time"):
            store.add(LILY)
        db.commit()
        store.add(LILY)
    assert list(store) == [LILY]
    store.close()


def test_alchemical_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plants are in the database of a site with Alchemical, in a table that it creates."""
    monkeypatch.chdir(tmp_path)
    names = run_recipes(store=recipe("alchemical"))
    with names["app"].app_context():
        names["db"].create_all()
    assert create_rose(names["app"]).status_code == 200
    assert list(names["store"]) == [ROSE_PLANT]
    names["store"].close()
    names["db"].get_engine().dispose()


def test_testing_recipe(tmp_path: Path) -> None:
    """The tests of the page pass on the site of the factory recipe, with warnings as errors."""
    (tmp_path / "shop.py").write_text(recipe("factory"))
    tests = recipe("testing") + "\n\n" + recipe("testing-failure")
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
    assert "3 passed" in done.stdout, done.stdout
