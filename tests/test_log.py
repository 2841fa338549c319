"""The id of a request, and the lines of the log about it."""

import logging
import re
from itertools import product
from multiprocessing import get_context
from typing import Any
from unittest.mock import Mock

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from plantstore import MemoryStore, StoreMisconfigured, StoreUnavailable, create_app
from plantstore.responses import request_id
from tests.support.responses import check_error, create
from tests.support.sites import BEARER, ROSE, TOKEN, make_site

ID = "X-Request-ID"
KNOWN: dict[str, Any] = {"headers": BEARER, "content_type": "application/json"}
CUT: dict[str, Any] = {"data": "{hunter2", "environ_overrides": {"CONTENT_LENGTH": "9"}}


@pytest.mark.parametrize("id", ["a", "abc-1.2_3~4+5/6=7:8@9", "Root=1-67891233-abcdef", "x" * 128])
def test_request_id_of_the_client(site: Flask, id: str) -> None:
    """A reasonable X-Request-ID is in the response and in the environment."""
    seen = []
    site.teardown_request(lambda error: seen.append(request.environ["plantstore.request_id"]))
    response = site.test_client().post("/garden/plants", headers={ID: id})
    assert (response.headers.getlist(ID), seen) == ([id], [id])


@pytest.mark.parametrize("id", ["", "-a", "a b", "é", "x" * 129, '"a"', "%0a"])
def test_unreasonable_request_id_is_replaced(client: FlaskClient, id: str) -> None:
    """An unreasonable X-Request-ID is replaced by a unique id."""
    headers = BEARER | {ID: id.encode().decode("latin-1")}
    ids = {client.post("/plants", headers=headers).headers[ID] for _ in range(2)}
    assert len(ids) == 2
    assert all(re.fullmatch("[0-9a-f]{16}-[0-9]+", made) for made in ids)


# This process has the threads of pytest-xdist. The processes that it forks use none of their locks.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.posix
def test_request_id_of_another_process() -> None:
    """Processes that a server forks make different ids, although they have the same memory."""
    processes = get_context("fork")
    with processes.Pool(2, maxtasksperchild=1) as pool:
        ids = [request_id({}), *pool.map(request_id, [{}, {}], chunksize=1), request_id({})]
    assert len({*ids}) == 4


def test_every_response_has_one_request_id(client: FlaskClient) -> None:
    """Every response of the service has one X-Request-ID, whether accepted or refused."""
    paths = ("/plants", "/healthz", "/readyz", "/nothing")
    for path, method in product(paths, ("POST", "GET", "HEAD", "OPTIONS", "BREW")):
        response = client.open(path, method=method, headers={ID: "abc"})
        assert response.headers.getlist(ID) == ["abc"]


def test_request_id_of_a_site_stays(site: Flask, caplog: pytest.LogCaptureFixture) -> None:
    """The pages of a host site get no X-Request-ID; a site may set the header, or the id."""
    caplog.set_level("INFO", "plantstore")
    client, headers = site.test_client(), BEARER | {ID: "of-the-client"}

    @site.before_request
    def set_id() -> None:
        if request.path != "/":
            request.environ["plantstore.request_id"] = "of-the-site"

    assert ID not in client.get("/", headers=headers).headers
    response = client.post("/garden/plants", json={}, headers=headers)
    check_error(response, 40003)
    assert ID not in response.headers
    assert caplog.messages[0].endswith("request: of-the-site)")
    own = make_site()
    own.after_request(lambda response: response.headers.set(ID, "own") or response)
    for plant in (ROSE, {}):
        assert create(own.test_client(), plant).headers.getlist(ID) == ["own"]


@pytest.mark.parametrize(
    ("sent", "line", "name"),
    [
        ({**KNOWN, "json": ROSE}, "40004: A plant with this id already exists.", "'token-1'"),
        ({**KNOWN, "json": {"id": "hunter2"}}, "40003: The body must be a NewPlant, ", "'token-1'"),
        ({**KNOWN, "data": "{hunter2"}, "40002: The body is not JSON.", "'token-1'"),
        ({**KNOWN, **CUT}, "40002: The body could not be read", "'token-1'"),
        ({"headers": {"Authorization": "Basic hunter2"}}, "40101: Send Authorization: ", "None"),
    ],
)
def test_refusal_is_logged_at_info(
    client: FlaskClient, caplog: pytest.LogCaptureFixture, sent: Any, line: str, name: str
) -> None:
    """A refusal is one line at INFO: number, reason, client, address, id, and nothing sent."""
    create(client, ROSE)
    caplog.set_level("INFO", "plantstore")
    response = client.post("/plants", **sent)
    number = int(line[:5])
    check_error(response, number)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    # A collector of errors groups lines by their text before its arguments are put in.
    assert (record.msg[:7], vars(record)["plantstore_error"]) == (f"{number}: ", number)
    assert record.getMessage().startswith(line)
    about = f" (client: {name}, address: '127.0.0.1', request: {response.headers[ID]})"
    assert record.getMessage().endswith(about)
    assert "hunter2" not in caplog.text


FAILURES: list[tuple[Exception, str]] = [
    (StoreUnavailable("no\ndisk"), "50301: The store is unavailable: no disk ("),
    (StoreMisconfigured("no\ntable"), "50303: The store is not set up for plants: no table ("),
    (ZeroDivisionError("no disk"), "50001: The service failed. ("),
]


@pytest.mark.parametrize("standalone", [True, False])
def test_failure_is_logged(standalone: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A 5xx is an ERROR with the client and the id; only an unexpected one has a traceback."""
    for error, line in FAILURES:
        is_unexpected = isinstance(error, ZeroDivisionError)
        # The cause may have the values of a plant.
        error.__cause__ = None if is_unexpected else ValueError("hunter2")
        store: Any = Mock(MemoryStore, one_process=False, add=Mock(side_effect=error))
        config = {"PLANTSTORE_TOKENS": TOKEN}
        app = create_app(config, store=store) if standalone else make_site(store=store)
        caplog.clear()
        response = create(app.test_client(), ROSE)
        assert str(error) not in check_error(response, int(line[:5]))
        record = caplog.records[-1]
        assert record.levelno == logging.ERROR
        start = f"{line}client: 'token-1', address: '127.0.0.1', request: {response.headers[ID]}"
        assert record.getMessage().startswith(start)
        has_traceback = (record.exc_info is not None, "ZeroDivisionError" in caplog.text)
        assert has_traceback == (is_unexpected, is_unexpected)
        assert len(caplog.records) == (2 if is_unexpected and not standalone else 1)
        assert not any(secret in caplog.text for secret in (TOKEN, "hunter2"))


def test_failure_outside_the_blueprints(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    """An exception at any path of the standalone service is 50001, and logged once."""

    @app.before_request
    def fail() -> None:
        raise ZeroDivisionError

    check_error(app.test_client().get("/nothing"), 50001)
    (record,) = caplog.records
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("store", [None, MemoryStore()])
def test_memory_is_a_warning(store: MemoryStore | None, caplog: pytest.LogCaptureFixture) -> None:
    """A WARNING at the start says that ``memory://`` keeps no plants, unless the site chose it."""
    create_app({"PLANTSTORE_TOKENS": TOKEN}, store=store)
    text = "Store: memory:// (the plants are lost when the process ends)"
    assert caplog.messages == ([text] if store is None else [])
