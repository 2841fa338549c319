"""Changes that after_request of a host site makes to a response reach the client."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from flask import Flask, Response
from werkzeug.test import TestResponse

from plantstore import MemoryStore, create_health_blueprint
from tests.support.sites import BEARER, ROSE

Change = Callable[[Any], object]
BODY = '{"name":"Rose","tag":"früh"}'.encode()


def stream(response: Response) -> None:
    """Replace the body by a stream."""
    response.response, response.content_length = BytesIO(b"changed"), 7


# What after_request changes, with the status and the body that are sent.
CHANGES: dict[str, tuple[Change, int, bytes]] = {
    "204": (lambda it: setattr(it, "status_code", 204), 204, b""),
    "data": (lambda it: setattr(it, "data", b"changed"), 200, b"changed"),
    "same length": (lambda it: setattr(it, "response", [BODY.swapcase()]), 200, BODY.swapcase()),
    "append": (lambda response: response.response.append(b"!"), 200, BODY + b"!"),
    "stream": (stream, 200, b"changed"),
    "no content length": (lambda response: response.headers.pop("Content-Length"), 200, BODY),
}


def send(site: Flask, change: Change) -> TestResponse:
    """Send a create request to a site that changes the response."""
    site.after_request(lambda response: (change(response), response)[1])
    return site.test_client().post("/garden/plants", json=ROSE, headers=BEARER)


@pytest.mark.parametrize("change", CHANGES)
def test_after_request_may_change_the_response(site: Flask, change: str) -> None:
    """A changed response is sent so, with the right Content-Length, and is closed once."""
    function, status, body = CHANGES[change]
    closed: list[int] = []
    count = lambda: closed.append(1)  # noqa: E731
    site.after_request(lambda response: (response.call_on_close(count), response)[1])
    with send(site, function) as response:
        assert (response.status_code, response.data, closed) == (status, body, [])
    assert closed == [1]
    length = response.headers.get("Content-Length")
    assert length == (None if change == "204" else str(len(body)))


def test_head_is_closed_once(site: Flask) -> None:
    """A function that a site adds by call_on_close is called once for HEAD, too."""
    closed: list[int] = []
    count = lambda: closed.append(1)  # noqa: E731
    site.after_request(lambda response: (response.call_on_close(count), response)[1])
    site.register_blueprint(create_health_blueprint(store=MemoryStore()))
    with site.test_client().head("/healthz") as response:
        assert (response.status_code, response.data) == (200, b"")
    assert closed == [1]


def test_after_request_may_change_headers(site: Flask) -> None:
    """Headers that after_request adds, changes or removes are sent so, in any response class."""

    def change(response: Response) -> None:
        assert response.headers.pop("Content-Type") == "application/json"
        for link in ("</b>", "</c>"):
            response.headers.add("Link", link)
        response.headers["Location"] = "/ö"

    site.response_class = type("Shouting", (Response,), {"default_mimetype": "text/loud"})
    response = send(site, change)
    assert (response.status_code, response.data) == (200, BODY)
    assert response.headers.getlist("Link") == ["</b>", "</c>"]
    assert "Content-Type" not in response.headers
    assert response.headers["Location"] == "/%C3%B6"
    assert len(response.headers.getlist("X-Request-ID")) == 1
