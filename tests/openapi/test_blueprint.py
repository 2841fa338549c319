"""The documentation page: its files and headers. test_browser.py uses it."""

import re

import pytest
from flask import Flask

from plantstore import create_app
from tests.support.responses import check_error
from tests.support.sites import BEARER, TOKEN, documented_site

FILES = ["docs.css", "docs.js", "swagger-ui.css", "swagger-ui-bundle.js"]


@pytest.mark.parametrize("path", ["/docs", *(f"/docs/{file}" for file in FILES)])
def test_page_has_a_strict_content_security_policy(app: Flask, path: str) -> None:
    """The page and its files need no token; the browser loads nothing from another server."""
    with app.test_client().get(path) as response:
        assert (response.status_code, len(response.data) > 0) == (200, True)
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert len(response.headers.getlist("X-Request-ID")) == 1
    tag = {"If-None-Match": response.headers["ETag"]}
    with app.test_client().get(path, headers=tag) as response:
        assert response.status_code == 304
    check_error(app.test_client().post(path, headers=BEARER), 40501)


def test_page_in_a_site() -> None:
    """A site may have the page under its own prefix; the page loads its files from there."""
    with documented_site().test_client().get("/garden/docs") as page:
        urls = re.findall('(?:href|src)="(.*?)"', page.get_data(as_text=True))
    assert {*urls} == {"data:,", "openapi.json", *(f"docs/{file}" for file in FILES)}


def test_other_paths_below_the_page(app: Flask) -> None:
    """The page has no other files."""
    for path in ("/", "/index.html", "/x", "/..%2fdocs.py", "//docs.js"):
        check_error(app.test_client().get(f"/docs{path}"), 40401)


def test_page_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without flask-swagger-ui, the page does not exist, in the service and in a site."""
    monkeypatch.setattr("plantstore.openapi.blueprint.find_spec", lambda _: None)
    client = create_app({"PLANTSTORE_TOKENS": TOKEN}).test_client()
    for path in ("/docs", "/docs/docs.js"):
        check_error(client.get(path), 40401)
        assert documented_site().test_client().get(f"/garden{path}").status_code == 404
    assert client.get("/openapi.json").status_code == 200


def test_page_only_if_it_is_registered(site: Flask) -> None:
    """A site has neither the page nor the document unless it registers their blueprint."""
    client = site.test_client()
    for path in ("/docs", "/openapi.json", "/garden/docs", "/garden/openapi.json"):
        assert client.get(path).status_code == 404
