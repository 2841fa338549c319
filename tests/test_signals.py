"""The signals and the lines of the log about new, changed and removed plants."""

import logging
from typing import Any

import pytest
from flask import Flask, abort

from plantstore import MemoryStore, Plant, plant_added, plant_changed, plant_removed
from tests.support.responses import ALL
from tests.support.sites import BEARER, ROSE, ROSE_PLANT, make_site

ROSA = Plant(1, "Rosa")


@pytest.fixture
def site(store: MemoryStore) -> Flask:
    """Return a host site with all operations at /garden."""
    return make_site(store=store, url_prefix="/garden", operations=ALL)


def send(site: Flask, method: str, path: str, json: Any = None) -> int:
    """Send a request to a site; return the status of the response."""
    options = {"method": method, "json": json, "headers": BEARER}
    return site.test_client().open(f"/garden{path}", **options).status_code


# Requests that change the plants or not, with their status.
REQUESTS: list[tuple[str, str, Any, int]] = [
    *(("POST", "/plants", new, status) for new, status in ((ROSE, 200), (ROSE, 400), ({}, 400))),
    *(("PUT", f"/plants/{id}", {"name": "Rosa"}, status) for id, status in ((1, 200), (3, 404))),
    *(("DELETE", "/plants/1", None, status) for status in (204, 404)),
]


def test_signals_of_changes(site: Flask, store: MemoryStore) -> None:
    """A signal, also to a coroutine function, has the site, the plant or its id, and the client."""
    calls: list[Any] = []

    async def received(sender: Flask, plant: Plant, client: str) -> None:
        calls.append((sender, plant, client, store.get(plant.id)))

    def removed(sender: Flask, id: int, client: str) -> None:
        calls.append((sender, id, client, store.get(id)))

    with (
        plant_added.connected_to(received),
        plant_changed.connected_to(received),
        plant_removed.connected_to(removed),
    ):
        assert [send(site, *request) for *request, _ in REQUESTS] == [it[-1] for it in REQUESTS]
        with plant_added.muted():
            assert send(site, "POST", "/plants", ROSE) == 200
    changes = ((ROSE_PLANT, ROSE_PLANT), (ROSA, ROSA), (1, None))
    assert calls == [(site, sent, "token-1", stored) for sent, stored in changes]


def test_log_of_changes(site: Flask, caplog: pytest.LogCaptureFixture) -> None:
    """At level INFO the loggers below plantstore have a line per change, and at WARNING none."""
    for level in ("WARNING", "INFO"):
        caplog.set_level(level, "plantstore")
        assert [send(site, *request) for *request, _ in REQUESTS] == [it[-1] for it in REQUESTS]
        assert level == "INFO" or caplog.messages == []
    lines = [record for record in caplog.records if record.name != "plantstore"]
    for record, name in zip(lines, ("added", "changed", "removed"), strict=True):
        assert (record.levelno, record.name) == (logging.INFO, f"plantstore.{name}")
        start = f"Plant 1 was {name} (client: 'token-1', address: '127.0.0.1', request: "
        assert record.getMessage().startswith(start)


@pytest.mark.parametrize("setting", ["", "TESTING", "DEBUG", "TRAP_HTTP_EXCEPTIONS"])
@pytest.mark.parametrize("failure", [ZeroDivisionError, lambda: abort(404)])
def test_exception_in_a_receiver_is_logged(
    site: Flask, store: MemoryStore, setting: str, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """When receivers raise, each exception is logged, and nothing else is affected."""
    site.config[setting] = True
    calls = []

    def fail(sender: Flask, **_: Any) -> None:
        calls.append(store.get(1))
        raise failure()

    def fail_too(sender: Flask, **_: Any) -> None:
        fail(sender)

    for signal, method, path in ((plant_added, "POST", ""), (plant_removed, "DELETE", "/1")):
        with signal.connected_to(fail), signal.connected_to(fail_too):
            assert send(site, method, f"/plants{path}", ROSE) in {200, 204}
    assert calls == [ROSE_PLANT, ROSE_PLANT, None, None]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    for record, name in zip(errors, ["added"] * 2 + ["removed"] * 2, strict=True):
        start = f"A receiver of plant_{name} failed for plant 1 (client: 'token-1', "
        assert (record.getMessage().startswith(start), record.exc_info is None) == (True, False)
