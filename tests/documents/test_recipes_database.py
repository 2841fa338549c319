"""The recipes for site owners that need a database, and the tests of the guide."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from plantstore import StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.fresh import run
from tests.support.readme import (
    VERIFY_TOKEN_PASSED,
    create_rose,
    recipe,
    rows,
    run_recipes,
    site_code,
)
from tests.support.responses import check_error
from tests.support.serving import ROOT
from tests.support.sites import LILY, ROSE, ROSE_PLANT

RunSite = Callable[..., dict[str, Any]]
DATABASE = recipe("database")
USERS = recipe("users") + VERIFY_TOKEN_PASSED
# An application whose store does not wait for a locked file.
SHORT_TIMEOUT = """
app = Flask("shop")
app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {"connect_args": {"timeout": 0.1}}
"""
# A user of a site that has no tokens yet.
USER = """
class User(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    name = db.Column(db.String(80), unique=True, nullable=False)
"""
# The database recipe with a table of the site, whose name is that of the store's default table.
WITH_TABLE = f"""
{DATABASE.partition("with ")[0]}
class Plant(db.Model):
    __tablename__ = "plants"
    id = db.Column(db.Integer, primary_key=True)

{recipe("table")}
"""
# The listeners of SQLAlchemy's documentation by which a read begins a transaction, too.
BEGIN = """
from sqlalchemy import event
with app.app_context():
    no_level = lambda connection, _: setattr(connection, "isolation_level", None)
    event.listen(db.engine, "connect", no_level)
    event.listen(db.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
"""
# Executes commands of Flask, all of them in one process.
COMMANDS = """
import shlex, sys
from flask.cli import cli
for command in sys.argv[1:]:
    cli.main(shlex.split(command)[1:], standalone_mode=False)
"""


@pytest.fixture
def run_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunSite]:
    """Return run_recipes with the database recipe, in a new folder."""
    monkeypatch.chdir(tmp_path)
    sites = []

    def run_site(*recipes: str, tables: bool = True, **replaced: str) -> dict[str, Any]:
        names = run_recipes(*recipes, **{"store": DATABASE, **replaced})
        sites.append(names)
        if tables:
            with names["app"].app_context():
                names["db"].create_all()
        return names

    yield run_site
    for names in sites:
        names["store"].close()
        with names["app"].app_context():
            names["db"].engine.dispose()


def read(names: dict[str, Any], query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query of the site's own database."""
    with names["app"].app_context():
        return [tuple(row) for row in names["db"].session.execute(text(query))]


def test_migration_recipe(run_site: RunSite, caplog: pytest.LogCaptureFixture) -> None:
    """Until the migration has run, each create gets 50303, and the log says what to do."""
    names = run_site(tables=False)
    for number in (1, 2):
        check_error(create_rose(names["app"]), 50303)
        assert caplog.text.count("table plants: it does not exist") == number
        assert caplog.text.count("flask db upgrade") == number
    migrate = recipe("migration").strip()
    with_users = site_code(store=DATABASE, garden=USERS)
    for code, commands in (
        (site_code(store=DATABASE + USER), f"flask db init && {migrate}"),
        (with_users, migrate),
        (with_users, "flask db check"),
    ):
        Path("shop.py").write_text(code)
        execute = shlex.join([sys.executable, "-c", COMMANDS, *commands.split(" && ")])
        run(execute, Path(), PYTHONPATH=str(ROOT), FLASK_APP="shop")
    assert "info={'plantstore': True}" in run("cat migrations/versions/*.py", Path())
    assert create_rose(names["app"]).status_code == 200
    assert read(names, "SELECT id, name, tag FROM plants") == [tuple(ROSE_PLANT)]
    assert read(names, "SELECT token_digest FROM user") == []


def test_table_recipe(run_site: RunSite) -> None:
    """With a table name of its own, the store does not touch the site's table plants."""
    names = run_site(store=WITH_TABLE)
    assert create_rose(names["app"]).status_code == 200
    assert read(names, "SELECT id, name, tag FROM garden_plants") == [tuple(ROSE_PLANT)]
    assert read(names, "SELECT * FROM plants") == []


def test_locked_recipe(run_site: RunSite, caplog: pytest.LogCaptureFixture) -> None:
    """A hook that commits does not lock the store's SQLite file; else the log names the cause."""
    names = run_site(recipe("locked"), app=SHORT_TIMEOUT)
    assert create_rose(names["app"]).status_code == 200
    assert read(names, "SELECT path FROM visit") == [("/garden/plants",)]
    hook = recipe("locked").replace("session.commit()", "session.flush()")
    check_error(create_rose(run_site(hook, app=SHORT_TIMEOUT)["app"]), 50301)
    assert "database is locked" in caplog.text
    assert "commit" in caplog.text


@pytest.mark.parametrize(("code", "status"), [("", 503), (recipe("end-read"), 200)])
def test_read_that_locks_the_file(run_site: RunSite, code: str, status: int) -> None:
    """With the BEGIN recipe of SQLAlchemy, a read in verify_token must end before the add."""
    users = recipe("users") + code + VERIFY_TOKEN_PASSED
    names = run_site(app=SHORT_TIMEOUT, store=DATABASE + BEGIN, garden=users)
    assert create_as(names, new_user(names)) == status


def new_user(names: dict[str, Any]) -> str:
    """Create a user of the site, Flora, and another one; return a new token of Flora."""
    with names["app"].app_context():
        user = names["User"](name="Flora")
        names["db"].session.add_all([user, names["User"](name="no token")])
        token: str = names["new_token"](user)
    return token


def create_as(names: dict[str, Any], token: str) -> int:
    """Send a create request with a token; return the status of the response."""
    headers = {"Authorization": f"Bearer {token}"}
    client = names["app"].test_client()
    return int(client.post("/garden/plants", json=ROSE, headers=headers).status_code)


def test_users_recipe(run_site: RunSite) -> None:
    """The token of a user is accepted; others get 40102, or 50301 while no user can be read."""
    names = run_site(garden=USERS, tables=False)
    assert create_as(names, "s3cret") == 503
    with names["app"].app_context():
        names["db"].create_all()
    token = new_user(names)
    with names["app"].test_client() as client:
        client.post("/garden/plants", json=ROSE, headers={"Authorization": f"Bearer {token}"})
        assert names["plantstore_user"]().name == "Flora"
    assert [*names["store"]] == [ROSE_PLANT]
    ((digest,),) = read(names, "SELECT token_digest FROM user WHERE name = 'Flora'")
    for wrong in (digest, token[:-1], f"{token}x", "None", "s3cret"):
        assert create_as(names, wrong) == 401
    assert token not in str(read(names, "SELECT * FROM user"))


def test_sqlite3_recipe(tmp_path: Path) -> None:
    """A site with sqlite3 shares its file with the store, which waits for its commits."""
    app = f'app = Flask("shop", instance_path={str(tmp_path)!r})\n'
    names = run_recipes(app=app, store=recipe("sqlite3"))
    with names["app"].app_context(), names["store"] as store:
        db = names["get_db"]()
        db.execute("CREATE TABLE visit (path TEXT)")
        store.add(ROSE_PLANT)
        assert db.execute("SELECT * FROM plants").fetchall() == [tuple(ROSE_PLANT)]
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        db.execute("INSERT INTO visit VALUES ('/')")
        with deadline(1), pytest.raises(StoreUnavailable, match="open transaction|not responded"):
            store.add(LILY)
        db.commit()
        store.add_some([LILY])  # It may have been added after its deadline.
        assert list(store) == [ROSE_PLANT, LILY]


def run_tests(tests: Path, folder: Path) -> str:
    """Run the tests of a site, with warnings as errors, and without plug-ins; return the output."""
    options = "-q -W error -o addopts= -p no:cacheprovider --basetemp=temporary"
    command = f"'{sys.executable}' -m pytest {options} {tests} 2>&1"
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return run(f"{command} || true", folder, **environment)


@pytest.mark.parametrize(
    ("site", "tests", "result"),
    [
        (recipe("factory"), recipe("testing") + "\n\n" + recipe("testing-failure"), "2 passed"),
        (recipe("site"), recipe("site-test"), "1 passed"),
        (recipe("site").replace("csrf.exempt", "str"), recipe("site-test"), "assert 400 == 200"),
    ],
)
def test_recipes_for_tests(tmp_path: Path, site: str, tests: str, result: str) -> None:
    """The tests of the guide pass, with warnings as errors, and find a forgotten csrf.exempt."""
    (tmp_path / "shop.py").write_text(site)
    (tmp_path / "test_shop.py").write_text(tests)
    assert result in run_tests(tmp_path, tmp_path)


def test_nursery_has_the_recipes(tmp_path: Path) -> None:
    """The tests of the example pass, and it has each function that the guide names."""
    nursery = ROOT / "examples" / "nursery"
    assert "2 passed" in run_tests(nursery, tmp_path)
    for _, place in rows("recipe", "docs/whole-site.md"):
        *functions, file = re.findall(r"\b[a-z_.]+\b", place.replace("of", "").replace("and", ""))
        for function in functions:
            assert f"\ndef {function}(" in (nursery / file).read_text()


def test_whole_site_in_production() -> None:
    """The whole site keeps its plants in its database, and a migration can find their table."""
    names: dict[str, Any] = {"__name__": "shop"}
    exec(recipe("site"), names)
    names["create_app"]({"SECRET_KEY": "x", "SQLALCHEMY_DATABASE_URI": "sqlite://"})
    assert {*names["db"].metadata.tables} == {"user", "plants"}
