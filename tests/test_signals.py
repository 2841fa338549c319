"""The signal plant_added."""

import logging
from typing import Any

import pytest
from flask import Flask, abort, request

from plantstore import MemoryStore, Plant, plant_added
from tests.support.sites import BEARER, ROSE, ROSE_PLANT, make_site


def add(site: Flask, new: Any = ROSE, prefix: str = "/garden") -> int:
    """Send a create request to a site; return the status of the response."""
    response = site.test_client().post(f"{prefix}/plants", json=new, headers=BEARER)
    return response.status_code


def test_plant_added_is_sent_after_the_store_has_the_plant(site: Flask, store: MemoryStore) -> None:
    """The signal has the site, the plant and the client's name; the store then has the plant.

    It is not sent for a refused request, nor while it is muted.
    """
    calls = []

    def receiver(sender: Flask, plant: Plant, client: str) -> None:
        calls.append((sender, plant, client, store.get(plant.id)))

    with plant_added.connected_to(receiver):
        assert [add(site), add(site), add(site, {"id": 2})] == [200, 400, 400]
        assert site.test_client().post("/garden/plants", json={**ROSE, "id": 3}).status_code == 401
        with plant_added.muted():
            assert add(site, {"id": 4, "name": ""}) == 200
    assert calls == [(site, ROSE_PLANT, "token-1", ROSE_PLANT)]


@pytest.mark.parametrize("setting", ["", "TESTING", "DEBUG", "TRAP_HTTP_EXCEPTIONS"])
@pytest.mark.parametrize("failure", [ZeroDivisionError, lambda: abort(404)])
def test_exception_in_a_receiver_is_logged(
    site: Flask, store: MemoryStore, setting: str, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """When receivers raise, the response is 200 and each exception is logged.

    The plant is stored, and the other receivers are called.
    """
    site.config[setting] = True
    calls = []

    def fail(sender: Flask, plant: Plant, **_: Any) -> None:
        calls.append(plant.name)
        raise failure()

    def fail_too(sender: Flask, plant: Plant, **_: Any) -> None:
        fail(sender, plant)

    with plant_added.connected_to(fail), plant_added.connected_to(fail_too):
        assert add(site) == 200
    assert calls == ["Rose", "Rose"]
    assert len(store) == 1
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    start = "A receiver of plant_added failed for plant 1 (client: 'token-1', "
    assert all(record.getMessage().startswith(start) for record in errors)
    assert all(record.exc_info for record in errors)


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


def test_async_receiver(site: Flask) -> None:
    """A receiver may be a coroutine function."""
    calls = []

    async def receiver(sender: Flask, plant: Plant, client: str) -> None:
        calls.append(plant.name)

    with plant_added.connected_to(receiver):
        assert add(site) == 200
    assert calls == ["Rose"]


def test_log_of_new_plants_at_info(site: Flask, caplog: pytest.LogCaptureFixture) -> None:
    """At level INFO the logger plantstore has one line per new plant: its id and client."""
    assert add(site) == 200
    assert caplog.messages == []
    caplog.set_level(logging.INFO, "plantstore")
    assert add(site, {"id": -7, "name": "Lily"}) == 200
    (line,) = caplog.messages
    assert line.startswith("Plant -7 was added (client: 'token-1', address: '127.0.0.1', request: ")
