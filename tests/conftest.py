"""Fixtures and helpers that the tests share."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner, Result
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, create_engine
from werkzeug.test import TestResponse

from plantstore import MemoryStore, create_app
from plantstore.cli import main
from plantstore.schemas import error_schema

from .databases import DATABASES, Place
from .serving import Gunicorn
from .sites import BEARER, TOKEN, make_site

# A failed comparison in the contract test suites then shows its values.
pytest.register_assert_rewrite("plantstore.testing")

Run = Callable[..., Result]
OpenPlace = Callable[[], AbstractContextManager[Place]]

# The environment of the test run must not change the settings of the services under test.
for variable in [*os.environ]:
    if variable.startswith(
        ("FLASK_", "GRANIAN_", "GUNICORN_", "PLANTSTORE_", "PORT", "PYTHON", "WEB_CONCURRENCY")
    ):
        del os.environ[variable]

# On a busy machine neither an example nor its generation has a time limit.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("plantstore", UNTIMED)
settings.register_profile("deep", UNTIMED, max_examples=3000)
settings.load_profile("plantstore")


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


def invoke(*arguments: str, **options: Any) -> Result:
    """Run the plantstore command, with standard output and standard error apart."""
    # Before click 8.2, they are apart only on request.
    apart: Any = {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
    return CliRunner(**apart).invoke(main, arguments, **options)


def create(client: FlaskClient, json: Any, **options: Any) -> TestResponse:
    """Send a create request with a token."""
    return client.post("/plants", json=json, headers=BEARER, **options)


def check_error(response: TestResponse, error: int) -> str:
    """Check that a response is the Error with this number; return its message."""
    assert response.status_code == error // 100
    assert response.headers.getlist("Content-Type") == ["application/json"]
    assert response.json is not None
    assert set(response.json) == {"error", "message"}
    assert error_schema.load(response.json)["error"] == error
    message: str = response.json["message"]
    assert 0 < len(message) <= 500
    return message
