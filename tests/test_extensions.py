"""The blueprint together with popular Flask extensions. Others are in test_recipes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from apiflask import APIFlask
from cachelib import FileSystemCache
from flask import Flask, session
from flask_session import Session
from flask_smorest import Api
from flask_smorest import Blueprint as SmorestBlueprint

from tests.support.host_sites import send_all, with_prefix
from tests.support.sites import BEARER, ROSE


def test_flask_session(site: Flask, tmp_path: Path) -> None:
    """A host site with server-side sessions stores no session for the store's clients."""
    site.config.from_mapping(
        SESSION_TYPE="cachelib", SESSION_CACHELIB=FileSystemCache(str(tmp_path))
    )
    Session(site)
    site.add_url_rule("/visit", "visit", lambda: str(session.setdefault("visits", 1)))
    before = {*tmp_path.iterdir()}
    response = site.test_client().post("/garden/plants", json=ROSE, headers=BEARER)
    assert (response.status_code, response.headers.get("Set-Cookie")) == (200, None)
    assert {*tmp_path.iterdir()} == before
    assert "session=" in site.test_client().get("/visit").headers["Set-Cookie"]
    assert {*tmp_path.iterdir()} > before


def smorest() -> Flask:
    """Return a site whose own API uses flask-smorest."""
    site = Flask("site")
    site.config.from_mapping(
        API_TITLE="Site", API_VERSION="v1", OPENAPI_VERSION="3.1.0", OPENAPI_URL_PREFIX="/"
    )
    pets = SmorestBlueprint("pets", "pets", url_prefix="/pets")
    pets.route("/")(pets.response(200)(lambda: []))
    Api(site).register_blueprint(pets)
    return site


def apiflask() -> Flask:
    """Return a site whose own API uses APIFlask."""
    site = APIFlask("site")
    site.get("/pets/")(lambda: [])
    return site


@pytest.mark.parametrize("framework", [smorest, apiflask])
def test_other_api_framework(framework: Callable[[], Flask]) -> None:
    """A host site's API framework and the embedded store do not change each other's responses."""
    without, embedding = framework(), framework()
    assert send_all(with_prefix(embedding)) == send_all(with_prefix(Flask("site")))
    for path in ("/openapi.json", "/pets/", "/nothing", "/garden/nothing"):
        after, before = (app.test_client().get(path) for app in (embedding, without))
        assert (after.status, after.data) == (before.status, before.data)
    assert b"/pets/" in without.test_client().get("/openapi.json").data
