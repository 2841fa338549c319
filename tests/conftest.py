"""Fixtures and helpers that the tests share."""

import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import Result
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, create_engine

from plantstore import MemoryStore, create_app
from tests.support.commands import Run, invoke
from tests.support.databases import DATABASES, SERVERS, OpenPlace, Place
from tests.support.serving import Gunicorn, Server
from tests.support.sites import TOKEN, make_site

# A failed comparison in the contract test suites then shows its values.
pytest.register_assert_rewrite("plantstore.testing")

# The environment of the test run must not change the settings of the services under test.
for variable in [*os.environ]:
    if variable.startswith(
        ("FLASK_", "GRANIAN_", "GUNICORN_", "PLANTSTORE_", "PORT", "PYTHON", "WEB_CONCURRENCY")
    ):
        del os.environ[variable]

# A shell ignores SIGINT in processes in the background: the tests and their commands inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine neither an example nor its generation has a time limit. With CI=true, Hypothesis
# would try the same examples in each run.
UNTIMED = settings(deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("plantstore", UNTIMED, max_examples=50)
settings.register_profile("deep", UNTIMED, max_examples=1000)
settings.load_profile("plantstore")


def pytest_configure(config: pytest.Config) -> None:
    """Let a skip be a failure in continuous integration."""
    config.pluginmanager.import_plugin("tests.skips")


def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes run the tests: more than cores, because tests often wait."""
    return (os.cpu_count() or 1) + 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run on a database server, also by its name."""
    for item in items:
        parameters: Any = getattr(item, "callspec", None)
        for server in SERVERS if parameters else ():
            if any(server is value for value in parameters.params.values()):
                item.add_marker(pytest.mark.database)
                item.add_marker(server.__name__)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the log of the server in the report of a test that fails."""
    report = yield
    if report.failed:
        server = getattr(item, "funcargs", {}).get("server")
        if isinstance(server, Server) and report.when != "teardown":  # Its log is then deleted.
            report.sections.append(("log of the server", server.log))
    return report


@pytest.fixture
def app() -> Flask:
    """Return the standalone service with default settings."""
    return create_app({"PLANTSTORE_TOKENS": TOKEN})


@pytest.fixture
def client(app: Flask) -> FlaskClient:
    """Return a client of the standalone service."""
    return app.test_client()


@pytest.fixture
def store() -> MemoryStore:
    """Return an empty store."""
    return MemoryStore()


@pytest.fixture
def site(store: MemoryStore) -> Flask:
    """Return a host site that has a page and embeds the store at /garden."""
    site = make_site(store=store, url_prefix="/garden")
    site.add_url_rule("/", "home", lambda: "home")
    return site


@pytest.fixture(scope="session")
def server() -> Iterator[Gunicorn]:
    """Run the standalone service under gunicorn."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server:
        yield server
        assert "Traceback" not in server.log


@pytest.fixture(scope="session")
def open_once() -> Iterator[Callable[[OpenPlace], Place]]:
    """Return a function that opens a place for plants once, and keeps it open until the end."""
    with ExitStack() as places:
        yield cache(lambda open_place: places.enter_context(open_place()))


@pytest.fixture(params=DATABASES, ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest, open_once: Callable[[OpenPlace], Place]) -> Place:
    """Return an empty database of each engine in turn."""
    place = open_once(request.param)
    place.clear()
    return place


@pytest.fixture
def engine(place: Place) -> Iterator[Engine]:
    """Return a host site's engine for the database of ``place``."""
    engine = create_engine(place.site_url)
    yield engine
    engine.dispose()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Return a new folder whose path every user may use, unlike that of ``tmp_path``."""
    with TemporaryDirectory(prefix="plantstore-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)
        Path(folder).chmod(0o777)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a new SQLite store."""
    return f"sqlite:///{tmp_path}/plants.db"


@pytest.fixture
def run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the plantstore command on that store, in a new folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, input: bytes | None = None) -> Result:
        return invoke(*arguments, input=input, env={"PLANTSTORE_STORE": url})

    return run
