"""The signals and the lines of the log about new, changed and removed plants."""

import logging
from typing import Any

import pytest
from flask import Flask, abort, request

from plantstore import MemoryStore, Plant, plant_added, plant_changed, plant_removed
from tests.support.responses import ALL
from tests.support.sites import BEARER, ROSE, ROSE_PLANT, make_site


@pytest.fixture
def site(store: MemoryStore) -> Flask:
    """Return a host site with all operations at /garden."""
    return make_site(store=store, url_prefix="/garden", operations=ALL)


def send(site: Flask, method: str, path: str, json: Any = None, prefix: str = "/garden") -> int:
    """Send a request to a site; return the status of the response."""
    client = site.test_client()
    return client.open(f"{prefix}{path}", method=method, json=json, headers=BEARER).status_code


def test_signals_and_log_of_changes(
    site: Flask, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    """After a change, its signal and the log have the site, the plant or its id, and the client."""
    calls: list[Any] = []

    async def added(sender: Flask, plant: Plant, client: str) -> None:
        calls.append((sender, plant, client, store.get(plant.id)))

    def changed(sender: Flask, plant: Plant, client: str) -> None:
        calls.append((sender, plant, client, store.get(plant.id)))

    def removed(sender: Flask, id: int, client: str) -> None:
        calls.append((sender, id, client, store.get(id)))

    changes: list[tuple[Any, ...]] = [
        *(("POST", "/plants", ROSE, 200), ("POST", "/plants", ROSE, 400)),
        *(("POST", "/plants", {"id": 2}, 400), ("PUT", "/plants/1", {"name": "Rosa"}, 200)),
        *(("PUT", "/plants/3", ROSE, 404), ("PUT", "/plants/1", {}, 400)),
        *(
            ("DELETE", path, None, status)
            for path, status in (("/plants/1", 204), ("/plants/x", 404))
        ),
    ]
    with (
        plant_added.connected_to(added),
        plant_changed.connected_to(changed),
        plant_removed.connected_to(removed),
    ):
        assert send(site, "POST", "/plants", {**ROSE, "id": 4}) == 200
        assert caplog.messages == []
        calls.clear()
        caplog.set_level(logging.INFO, "plantstore")
        assert [send(site, *change) for *change, _ in changes] == [it[-1] for it in changes]
        with plant_added.muted():
            assert send(site, "POST", "/plants", {"id": 5, "name": ""}) == 200
    rosa = Plant(1, "Rosa")
    assert calls == [
        (site, ROSE_PLANT, "token-1", ROSE_PLANT),
        (site, rosa, "token-1", rosa),
        (site, 1, "token-1", None),
    ]
    lines = [record for record in caplog.records if record.name != "plantstore"]
    for record, name in zip(lines, ("added", "changed", "removed", "added"), strict=True):
        assert (record.levelno, record.name) == (logging.INFO, f"plantstore.{name}")
    start = "Plant 1 was changed (client: 'token-1', address: '127.0.0.1', request: "
    assert lines[1].getMessage().startswith(start)


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
        assert record.getMessage().startswith(start)
        assert record.exc_info


def test_receiver_for_one_sender(site: Flask) -> None:
    """A receiver can select one site, and distinguish its stores by the blueprint."""
    other = Flask("other")
    for name in ("first", "second"):
        make_site(other, name=name, url_prefix=f"/{name}")
    calls = []

    def receiver(sender: Flask, plant: Plant, client: str) -> None:
        calls.append(request.blueprint)

    with plant_added.connected_to(receiver, sender=other):
        for to, prefix in ((site, "/garden"), (other, "/first"), (other, "/second")):
            assert send(to, "POST", "/plants", ROSE, prefix) == 200
    assert calls == ["first", "second"]
