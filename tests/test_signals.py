"""The signals and the lines of the log about new and removed plants."""

import logging
from typing import Any

import pytest
from flask import Flask, abort, request

from plantstore import MemoryStore, Plant, plant_added, plant_removed
from tests.support.responses import ALL
from tests.support.sites import BEARER, ROSE, ROSE_PLANT, make_site


@pytest.fixture
def site(store: MemoryStore) -> Flask:
    """Return a host site with all operations at /garden."""
    return make_site(store=store, url_prefix="/garden", operations=ALL)


def add(site: Flask, new: Any = ROSE, prefix: str = "/garden") -> int:
    """Send a create request to a site; return the status of the response."""
    return site.test_client().post(f"{prefix}/plants", json=new, headers=BEARER).status_code


def remove(site: Flask, id: object) -> int:
    """Send a delete request to a site; return the status of the response."""
    return site.test_client().delete(f"/garden/plants/{id}", headers=BEARER).status_code


def test_signals_are_sent_after_the_change(site: Flask, store: MemoryStore) -> None:
    """A signal, also to a coroutine function, has the site, the plant or its id, and the client."""
    calls: list[Any] = []

    async def added(sender: Flask, plant: Plant, client: str) -> None:
        calls.append((sender, plant, client, store.get(plant.id)))

    def removed(sender: Flask, id: int, client: str) -> None:
        calls.append((sender, id, client, store.get(id)))

    with plant_added.connected_to(added), plant_removed.connected_to(removed):
        assert [add(site), add(site), add(site, {"id": 2})] == [200, 400, 400]
        assert site.test_client().post("/garden/plants", json={**ROSE, "id": 3}).status_code == 401
        assert [remove(site, 1), remove(site, 1), remove(site, "x")] == [204, 404, 404]
        with plant_added.muted():
            assert add(site, {"id": 4, "name": ""}) == 200
    assert calls == [(site, ROSE_PLANT, "token-1", ROSE_PLANT), (site, 1, "token-1", None)]


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

    for signal, change in ((plant_added, add), (plant_removed, lambda site: remove(site, 1))):
        with signal.connected_to(fail), signal.connected_to(fail_too):
            assert change(site) in {200, 204}
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
        assert [add(site), add(other, prefix="/first"), add(other, prefix="/second")] == [200] * 3
    assert calls == ["first", "second"]


def test_log_of_changes_at_info(site: Flask, caplog: pytest.LogCaptureFixture) -> None:
    """At level INFO the loggers below plantstore have a line per new and per removed plant."""
    assert (add(site), remove(site, 1), caplog.messages) == (200, 204, [])
    caplog.set_level(logging.INFO, "plantstore")
    assert (add(site, {"id": -7, "name": "Lily"}), remove(site, -7)) == (200, 204)
    for record, name in zip(caplog.records, ("added", "removed"), strict=True):
        assert (record.levelno, record.name) == (logging.INFO, f"plantstore.{name}")
        start = f"Plant -7 was {name} (client: 'token-1', address: '127.0.0.1', request: "
        assert record.getMessage().startswith(start)
