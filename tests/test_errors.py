"""Every row of the table of errors that is not a body's or a token's: methods, paths, stores."""

import logging
import re

import pytest
from flask import Blueprint, Flask
from flask.cli import routes_command
from flask.testing import FlaskClient
from marshmallow import ValidationError

from plantstore import MemoryStore, Plant, StoreUnavailable
from plantstore.errors import ERRORS

from .conftest import check_error, create
from .sites import BEARER, ROSE, TOKEN, make_blueprint, make_site

OTHER_METHODS = ["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND", "FOO"]


class FailingStore(MemoryStore):
    """A store whose engine fails with what it is given."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def add(self, plant: Plant) -> None:
        """Fail."""
        raise self.error


def test_numbers_are_statuses_and_counters() -> None:
    """Every error's number is its status times 100 plus a counter, and fits an int32."""
    for error in ERRORS:
        assert 400 <= error // 100 <= 599
        assert 0 < error % 100 < 100


@pytest.mark.parametrize("method", OTHER_METHODS)
@pytest.mark.parametrize("prefix", ["", "/garden", "/outer/inner"])
def test_other_methods(app: Flask, site: Flask, prefix: str, method: str) -> None:
    """Any other method on the path, known or not, is 405 with Allow, wherever it is mounted."""
    outer = Blueprint("outer", "site", url_prefix="/outer")
    outer.register_blueprint(make_blueprint(name="inner"), url_prefix="/inner")
    site.register_blueprint(outer)
    client = (site if prefix else app).test_client()
    response = client.open(f"{prefix}/plants", method=method, headers=BEARER)
    assert response.headers["Allow"] == "OPTIONS, POST"
    if method == "HEAD":
        assert (response.status_code, response.data) == (405, b"")
    else:
        check_error(response, 40501)


@pytest.mark.parametrize("headers", [{}, BEARER, {"Authorization": "Bearer wrong"}])
def test_options_needs_no_credentials(client: FlaskClient, headers: dict[str, str]) -> None:
    """OPTIONS is answered with or without credentials, and tells nothing but Allow."""
    response = client.options("/plants", headers=headers)
    assert (response.status_code, response.data) == (200, b"")
    # A Content-Type even of nothing, as Flask's own have it: extensions rely on it.
    assert dict(response.headers) == {
        "Allow": "OPTIONS, POST",
        "Content-Length": "0",
        "Content-Type": "text/html; charset=utf-8",
    }


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/plants/",
        "/plants//",
        "/x//plants",
        "/plants/1",
        "/Plants",
        "/static/x",
        "/favicon.ico",
        "/%00",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "FOO"])
def test_other_paths(client: FlaskClient, path: str, method: str) -> None:
    """Every other path of the standalone service is 404, with a token or without."""
    for headers in ({}, BEARER):
        check_error(client.open(path, method=method, json=ROSE, headers=headers), 40401)


def test_a_sites_own_errors_stay_its_own(site: Flask) -> None:
    """Where it is a guest, the blueprint has no say in the site's 404 and 405."""
    client = site.test_client()
    for response, status in ((client.get("/garden/x"), 404), (client.post("/"), 405)):
        assert (response.status_code, response.content_type) == (status, "text/html; charset=utf-8")


def test_routes_are_listed_as_they_are(site: Flask) -> None:
    """Whoever lists the site's routes finds ours with the methods that it serves."""
    listed = site.test_cli_runner().invoke(routes_command, ["--all-methods"]).output
    assert re.search(r"plantstore.create_plant +OPTIONS, POST +/garden/plants", listed)


def test_no_sitemap_takes_us_for_a_page(site: Flask) -> None:
    """Whoever looks among the site's routes for pages to visit finds the site's alone."""
    assert None not in [rule.methods for rule in site.url_map.iter_rules()]
    pages = [
        rule.rule
        for rule in site.url_map.iter_rules()
        if "GET" in (rule.methods or ()) and not rule.arguments
    ]
    assert pages == ["/"]


@pytest.mark.parametrize("before", [True, False])
def test_a_site_may_have_a_page_there(store: MemoryStore, before: bool) -> None:
    """A page of the site's own at our path stays the site's; all else there is still ours."""
    site = Flask("site", static_folder=None)
    if before:
        make_site(site, store=store, url_prefix="/garden")
    site.add_url_rule("/garden/plants", "page", lambda: "my plants")
    if not before:
        make_site(site, store=store, url_prefix="/garden")
    client = site.test_client()
    assert client.get("/garden/plants").data == b"my plants"
    assert client.post("/garden/plants", json=ROSE, headers=BEARER).status_code == 200
    check_error(client.delete("/garden/plants", headers=BEARER), 40501)


def test_a_prefix_may_have_parameters(store: MemoryStore) -> None:
    """A site whose prefix has a parameter, such as a language, is served like any other."""
    client = make_site(store=store, url_prefix="/<lang>").test_client()
    assert client.post("/de/plants", json=ROSE, headers=BEARER).status_code == 200
    check_error(client.get("/de/plants", headers=BEARER), 40501)


def test_what_cannot_be_routed(app: Flask) -> None:
    """In the standalone service a host that is none, or that is not trusted, is 40005."""
    client = app.test_client()
    check_error(client.post("/plants", headers={"Host": "a..b"}), 40005)
    app.config["TRUSTED_HOSTS"] = ["example.com"]
    message = check_error(client.post("/plants", headers={"Host": "hunter2"}), 40005)
    assert "hunter2" not in message


def test_a_sites_own_validation_errors_are_its_own(store: MemoryStore) -> None:
    """A ValidationError of the site's own code is the site's fault, and its message is not sent."""

    def verify_token(token: str) -> str:
        raise ValidationError({"token": [f"bad {token}"]})

    site = make_site(store=store, verify_token=verify_token)
    message = check_error(create(site.test_client(), ROSE), 50001)
    assert TOKEN not in message


def test_what_clients_do_wrong_is_not_logged(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    """What is refused for the client's own fault leaves no line in the log."""
    check_error(client.post("/plants"), 40101)
    check_error(create(client, {}), 40003)
    check_error(client.get("/plants", headers=BEARER), 40501)
    assert caplog.messages == []


def test_our_fault(caplog: pytest.LogCaptureFixture) -> None:
    """An unforeseen failure is 50001: the log has the traceback, the answer no detail."""
    client = make_site(store=FailingStore(ZeroDivisionError("hunter2"))).test_client()
    message = check_error(create(client, ROSE), 50001)
    assert "hunter2" not in message
    assert caplog.records[0].exc_info is not None
    assert "ZeroDivisionError: hunter2" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("setting", ["TESTING", "DEBUG"])
def test_our_fault_is_shown_to_developers(setting: str) -> None:
    """In testing and debug mode an unforeseen failure is raised, for the developer to see."""
    site = make_site(store=FailingStore(ZeroDivisionError()))
    site.config[setting] = True
    with pytest.raises(ZeroDivisionError):
        create(site.test_client(), ROSE)


def test_the_store_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    """When the store can't take it the answer is 50301 with Retry-After, and the log says why."""
    client = make_site(store=FailingStore(StoreUnavailable("refused\nby x"))).test_client()
    response = create(client, ROSE)
    assert "refused" not in check_error(response, 50301)
    assert int(response.headers["Retry-After"]) > 0
    assert [(record.levelno, record.exc_info) for record in caplog.records] == [
        (logging.ERROR, None)
    ]
    assert r"refused\nby x" in caplog.messages[0]


def test_one_process_store_served_by_several(
    site: Flask, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A store of one process refuses creations with 50302 where several serve; the log says so."""
    environ = {"wsgi.multiprocess": True}
    client = site.test_client()
    send = {"json": ROSE, "headers": BEARER, "environ_overrides": environ}
    check_error(client.post("/garden/plants", **send), 50302)
    assert len(store) == 0
    assert "50302: " in caplog.text


def test_shared_stores_may_be_served_by_several() -> None:
    """A store that processes share takes creations from several."""

    class SharedStore(MemoryStore):
        one_process = False

    client = make_site(store=SharedStore()).test_client()
    assert create(client, ROSE, environ_overrides={"wsgi.multiprocess": True}).status_code == 200
