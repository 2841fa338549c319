"""The URL that a client has requested, also through a proxy."""

import pytest
from flask import Flask

from plantstore import create_docs_blueprint
from plantstore.request_url import forwarded_url
from tests.support.responses import servers

FORWARDED = {
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "nursery.example",
    "X-Forwarded-Prefix": "/garden",
}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (FORWARDED, "https://nursery.example/garden"),
        ({"X-Forwarded-Prefix": "/a/b/"}, "http://localhost/a/b"),
        ({"X-Forwarded-Prefix": "/"}, "http://localhost"),
        ({"X-Forwarded-Prefix": "garden"}, "http://localhost"),
        ({"X-Forwarded-Prefix": "/a, /b"}, "http://localhost/a"),
        ({"X-Forwarded-Prefix": "/a/../b"}, "http://localhost"),
        ({"X-Forwarded-Prefix": "/%zz"}, "http://localhost"),
        ({"X-Forwarded-Host": "b.example:81, a.example"}, "http://b.example:81"),
        ({"X-Forwarded-Host": "<script>"}, "http://localhost"),
        ({"X-Forwarded-Host": "a b"}, "http://localhost"),
        ({"X-Forwarded-Host": "[::1"}, "http://localhost"),
        ({"X-Forwarded-Host": ""}, "http://localhost"),
        ({"X-Forwarded-Host": "xn--zz"}, "http://xn--zz"),
        ({"X-Forwarded-Prefix": "/caf%C3%A9"}, "http://localhost/caf%C3%A9"),
        ({"X-Forwarded-Proto": "javascript"}, "http://localhost"),
        ({"X-Forwarded-Prefix": "/<script>"}, "http://localhost"),
        ({"X-Forwarded-Prefix": "//evil.example"}, "http://localhost"),
        ({"X-Forwarded-Prefix": ""}, "http://localhost"),
    ],
)
def test_document_behind_a_proxy(app: Flask, headers: dict[str, str], expected: str) -> None:
    """The document of the service names the URL that a proxy forwards, if the headers are valid."""
    assert servers(app, "/openapi.json", headers=headers) == {"url": expected}


def test_site_decides_which_headers_of_a_proxy_it_trusts(site: Flask) -> None:
    """In a site, the headers of a proxy have no effect by themselves."""
    site.register_blueprint(create_docs_blueprint(), url_prefix="/garden")
    assert servers(site, "/garden/openapi.json", headers=FORWARDED) == {
        "url": "http://localhost/garden"
    }


def test_forwarded_url_changes_nothing_else(app: Flask) -> None:
    """The request itself stays as it was sent."""
    with app.test_request_context("/openapi.json", headers=FORWARDED) as context:
        assert forwarded_url() == "https://nursery.example/garden/openapi.json"
        assert context.request.base_url == "http://localhost/openapi.json"
