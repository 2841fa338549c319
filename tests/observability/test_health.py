"""The health endpoints of the standalone service and of host sites."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any
from unittest.mock import Mock

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from plantstore import (
    MemoryStore,
    Store,
    StoreMisconfigured,
    StoreUnavailable,
    create_app,
    create_health_blueprint,
)
from plantstore.stores.deadline import note_queued, remaining
from tests.support.responses import check_error
from tests.support.serving import LIMIT, PATIENCE
from tests.support.sites import TOKEN
from tests.support.waiting import wait_until


def pinged(ping: Any) -> Any:
    """Return a store whose ping calls a function, or raises an exception."""
    store: Any = MemoryStore()
    store.ping = Mock(side_effect=ping)
    return store


def client_of(ping: Any) -> FlaskClient:
    """Return a client of a standalone service whose store is pinged in this way."""
    return create_app(store=pinged(ping), verify_token={TOKEN: "Flora"}.get).test_client()


def test_health_needs_no_token() -> None:
    """/healthz and /readyz are 200 without a token, and not cached; a ping has two seconds."""
    seconds: list[float] = []
    client = client_of(lambda: seconds.append(remaining(60)))
    for path in ("/healthz", "/readyz"):
        response = client.get(path)
        assert (response.status_code, response.json) == (200, {"status": "ok"})
        assert response.headers["Cache-Control"] == "no-store"
        response = client.head(path)
        assert (response.status_code, response.data) == (200, b"")
    assert 0 < min(seconds) <= max(seconds) <= 2


@pytest.mark.parametrize(
    ("kind", "number"),
    [(StoreUnavailable, 50301), (StoreMisconfigured, 50303), (ZeroDivisionError, 50301)],
)
def test_store_that_fails_is_not_ready(
    kind: type[Exception], number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """If the store fails, /readyz is 503 without a secret, and /healthz is 200."""
    client = client_of(kind("hunter2"))
    assert "hunter2" not in check_error(client.get("/readyz"), number)
    assert client.get("/healthz").status_code == 200
    assert ("hunter2" in caplog.text) == issubclass(kind, StoreUnavailable)


def test_store_that_does_not_respond_is_not_ready(caplog: pytest.LogCaptureFixture) -> None:
    """If the store does not respond in two seconds, /readyz is 503, with one waiting thread."""
    released, pings = Event(), list[int]()

    def ping() -> None:
        pings.append(threading.get_ident())
        released.wait()

    client = client_of(ping)
    began = time.monotonic()
    with ThreadPoolExecutor(4) as threads:
        for response in threads.map(lambda _: client.get("/readyz"), range(8)):
            check_error(response, 50301)
    assert 2 <= time.monotonic() - began < PATIENCE
    assert (len(pings), len(caplog.messages)) == (1, 8)
    assert caplog.text.count("it has not responded within two seconds") == 8
    released.set()
    wait_until(lambda: client.get("/readyz").status_code == 200)


def test_ping_of_a_request_that_has_waited() -> None:
    """A ping has two seconds, however long its request has waited, and the request's context."""
    found = list[tuple[float, str]]()
    site = Flask("site")
    site.before_request(lambda: note_queued(1.5))
    site.teardown_request(lambda _: note_queued(0))
    store = pinged(lambda: found.append((remaining(60), request.path)))
    site.register_blueprint(create_health_blueprint(store=store))
    assert site.test_client().get("/readyz").status_code == 200
    ((seconds, path),) = found
    assert (0.5 < seconds <= 2, path) == (True, "/readyz")


def test_ping_without_a_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the system has no resources for a thread, the store is unavailable."""
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("no thread")))
    check_error(client_of(None).get("/readyz"), 50301)
    assert "cannot start a thread: no thread" in caplog.text


def test_concurrent_callers_get_the_last_result() -> None:
    """While a ping is in progress, others get the last result at once, and occupy no thread."""
    released, first, second = Event(), Event(), Event()

    def ping() -> None:
        if first.is_set():
            second.set()
            released.wait()
        first.set()

    client = client_of(ping)
    assert client.get("/readyz").status_code == 200
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.get, "/readyz")
        second.wait(LIMIT)
        assert client.get("/readyz").status_code == 200
        check_error(waiting.result(), 50301)
    check_error(client.get("/readyz"), 50301)
    released.set()
    wait_until(lambda: client.get("/readyz").status_code == 200)


def test_memory_of_several_processes_is_not_ready(client: FlaskClient) -> None:
    """If several processes serve plants in memory, /readyz is 50302."""
    check_error(client.get("/readyz", environ_overrides={"wsgi.multiprocess": True}), 50302)


def test_health_of_a_site(store: Store) -> None:
    """A site may register the health of several stores, under any prefix, with its own errors."""
    site = Flask("site")
    site.register_error_handler(503, lambda error: "the site's own page")
    broken = pinged(StoreUnavailable(""))
    site.register_blueprint(create_health_blueprint(store=store), url_prefix="/garden")
    site.register_blueprint(create_health_blueprint(store=broken, name="other"), url_prefix="/<x>")
    client = site.test_client()
    assert client.get("/garden/readyz").json == {"status": "ok"}
    check_error(client.get("/other/readyz"), 50301)
    assert client.get("/healthz").status_code == 404
