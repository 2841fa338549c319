"""The id of a request, and the lines of the log about it."""

import logging
import re
from multiprocessing import get_context
from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient
from werkzeug.exceptions import HTTPException, ServiceUnavailable, TooManyRequests

from plantstore import MemoryStore, StoreMisconfigured, StoreUnavailable, create_app
from plantstore.responses import request_id
from tests.support.responses import check_error, create, send
from tests.support.sites import BEARER, ROSE, TOKEN, make_site
from tests.support.stores import FailingStore

ID = "X-Request-ID"


@pytest.mark.parametrize("id", ["a", "abc-1.2_3~4+5/6=7:8@9", "Root=1-67891233-abcdef", "x" * 128])
def test_request_id_of_the_client(site: Flask, id: str) -> None:
    """A reasonable X-Request-ID is in the response, in the log line and in the environment."""
    seen = []
    site.teardown_request(lambda error: seen.append(request.environ["plantstore.request_id"]))
    response = site.test_client().post("/garden/plants", headers={ID: id})
    assert (response.headers.getlist(ID), seen) == ([id], [id])


@pytest.mark.parametrize(
    "id",
    ["", " ", "-a", "a b", "a,b", "é", "x" * 129, "<a>", '"a"', "%0a"],
)
def test_unreasonable_request_id_is_replaced(client: FlaskClient, id: str) -> None:
    """An unreasonable X-Request-ID is replaced by a unique id."""
    headers = BEARER | {ID: id.encode().decode("latin-1")}
    ids = {client.post("/plants", headers=headers).headers[ID] for _ in range(2)}
    assert len(ids) == 2
    assert all(re.fullmatch("[0-9a-f]{16}-[0-9]+", made) for made in ids)


def test_request_id_of_another_process() -> None:
    """Processes that a server forks make different ids, although they have the same memory."""
    processes = get_context("fork")
    with processes.Pool(2, maxtasksperchild=1) as pool:
        ids = [request_id({}), *pool.map(request_id, [{}, {}], chunksize=1), request_id({})]
    assert len({*ids}) == 4


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *[(method, "/plants") for method in ("POST", "GET", "HEAD", "OPTIONS", "BREW")],
        ("GET", "/healthz"),
        ("POST", "/readyz"),
        ("GET", "/nothing"),
    ],
)
def test_every_response_has_one_request_id(client: FlaskClient, method: str, path: str) -> None:
    """Every response of the service has one X-Request-ID, whether accepted or refused."""
    response = client.open(path, method=method, headers={ID: "abc"})
    assert response.headers.getlist(ID) == ["abc"]


def test_request_id_of_a_site_stays(site: Flask) -> None:
    """The pages of a host site get no X-Request-ID, and a site may set its own."""
    client = site.test_client()
    assert ID not in client.get("/").headers
    site = make_site()
    site.after_request(lambda response: response.headers.set(ID, "of the site") or response)
    for plant in (ROSE, {}):
        assert create(site.test_client(), plant).headers.getlist(ID) == ["of the site"]


def test_request_id_that_the_site_sets(site: Flask, caplog: pytest.LogCaptureFixture) -> None:
    """If the site sets the id of a request, the log has it, and the response has no other id."""
    caplog.set_level("INFO", "plantstore")

    @site.before_request
    def set_id() -> None:
        request.environ["plantstore.request_id"] = "of-the-site"

    headers = BEARER | {ID: "of-the-client"}
    response = site.test_client().post("/garden/plants", json={}, headers=headers)
    check_error(response, 40003)
    assert ID not in response.headers
    assert caplog.messages[0].endswith("request: of-the-site)")


def test_refusal_is_logged_at_info(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    """A refusal is one line at INFO: its number, the client, the address and the request id.

    The number is a field of the record, and the line begins with it before its arguments are put
    in, so that a collector of errors does not take two numbers for one error.
    """
    caplog.set_level("INFO", "plantstore")
    create(client, ROSE)
    caplog.clear()
    known: dict[str, Any] = {"headers": BEARER, "content_type": "application/json"}
    for sent, number, name in (
        ({**known, "json": ROSE}, 40004, "'token-1'"),
        ({**known, "json": {"id": 1, "name": "hunter2", "tag": 5}}, 40003, "'token-1'"),
        ({**known, "data": "{hunter2"}, 40002, "'token-1'"),
        ({"headers": {"Authorization": "Basic hunter2"}}, 40101, "None"),
    ):
        options: dict[str, Any] = {**sent}
        response = client.post("/plants", **options)
        check_error(response, number)
        (record,) = caplog.records
        assert record.levelno == logging.INFO
        assert (record.msg[:7], vars(record)["plantstore_error"]) == (f"{number}: ", number)
        about = f" (client: {name}, address: '127.0.0.1', request: {response.headers[ID]})"
        assert record.getMessage().startswith(f"{number}: ")
        assert record.getMessage().endswith(about)
        caplog.clear()
    assert "hunter2" not in caplog.text


def test_log_of_a_body_that_is_not_json(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says whether a body is not JSON, or could not be read, and shows nothing of it."""
    caplog.set_level("INFO", "plantstore")
    for body, length, reason in ((b"{hunter2", 8, "is not JSON"), (b"{", 9, "could not be read")):
        environ = {"CONTENT_LENGTH": str(length)}
        check_error(send(client, body, environ_overrides=environ), 40002)
        assert caplog.messages[-1].startswith(f"40002: The body {reason}")
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (StoreUnavailable("no\ndisk"), 50301),
        (StoreMisconfigured("no\ntable"), 50303),
        (ZeroDivisionError("no disk"), 50001),
    ],
)
@pytest.mark.parametrize("standalone", [True, False])
def test_failure_is_logged(
    error: Exception, number: int, standalone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A 5xx is logged at ERROR with the request id; standalone, only once.

    Only an unexpected exception has a traceback: an outage causes one line for each request.
    """
    store = FailingStore(error)
    service = create_app({"PLANTSTORE_TOKENS": TOKEN}, store=store)
    app = service if standalone else make_site(store=store)
    response = create(app.test_client(), ROSE)
    assert str(error) not in check_error(response, number)
    assert TOKEN not in caplog.text
    record = caplog.records[-1]
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith(f"{number}: ")
    assert response.headers[ID] in record.getMessage()
    assert " ".join(str(error).split()) in caplog.text
    assert (record.exc_info is not None) == (number == 50001)
    assert len(caplog.records) == (1 if standalone or number != 50001 else 2)


def test_failure_outside_the_blueprints_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """An exception at any path of the standalone service is 50001, and logged once."""
    app = create_app({"PLANTSTORE_TOKENS": TOKEN})

    @app.before_request
    def fail() -> None:
        raise ZeroDivisionError

    check_error(app.test_client().get("/nothing"), 50001)
    (record,) = caplog.records
    assert "ZeroDivisionError" in caplog.text


def test_cause_of_an_unavailable_store_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The error of a driver, which may have the values of a plant, is not in the log."""

    class DriverStore(MemoryStore):
        def add(self, plant: Any) -> None:
            try:
                raise ValueError(f"cannot store {plant.name}")
            except ValueError as error:
                raise StoreUnavailable("the driver failed") from error

    client = create_app({"PLANTSTORE_TOKENS": TOKEN}, store=DriverStore()).test_client()
    check_error(create(client, {"id": 1, "name": "hunter2"}), 50301)
    assert "the driver failed" in caplog.text
    assert "hunter2" not in caplog.text


class Broken(HTTPException):
    """An exception of a site, which is not werkzeug's own for this status."""

    code = 500


class Strange(HTTPException):
    """An exception of a site with the last status that is no failure."""

    code = 499


@pytest.mark.parametrize(
    ("refusal", "number", "level"),
    [
        (TooManyRequests, 42900, logging.INFO),
        (Strange, 49900, logging.INFO),
        (Broken, 50000, logging.ERROR),
        (ServiceUnavailable, 50300, logging.ERROR),
    ],
)
def test_refusal_of_the_site_is_logged(
    refusal: type[HTTPException], number: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """If the site refuses a request, the line has its number; a 5xx is an ERROR with traceback."""
    caplog.set_level("INFO", "plantstore")
    site = make_site()

    @site.before_request
    def refuse() -> None:
        raise refusal

    check_error(create(site.test_client(), ROSE), number)
    (record,) = caplog.records
    assert (record.levelno, record.exc_info is not None) == (level, level == logging.ERROR)
    assert record.getMessage().startswith(f"{number}: The site refuses the request: ")
