"""The site hears of new plants: the signal plant_added."""

import logging
from typing import Any

import pytest
from flask import Flask, abort, request

from plantstore import MemoryStore, Plant, plant_added

from .sites import BEARER, ROSE, ROSE_PLANT, make_site


def add(site: Flask, new: Any = ROSE, prefix: str = "/garden") -> int:
    """Ask a site for a new plant; return the status of its answer."""
    answer = site.test_client().post(f"{prefix}/plants", json=new, headers=BEARER)
    return answer.status_code


def test_a_receiver_hears_of_a_new_plant(site: Flask, store: MemoryStore) -> None:
    """Once the store has a plant, receivers are told of it, of its client, and by which site."""
    told = []

    def hear(sender: Flask, plant: Plant, client: str) -> None:
        told.append((sender, plant, client, store.get(plant.id)))

    with plant_added.connected_to(hear):
        assert add(site) == 200
    assert told == [(site, ROSE_PLANT, "token-1", ROSE_PLANT)]


def test_a_receiver_hears_of_nothing_else(site: Flask) -> None:
    """Nobody is told of what was refused, nor of what the site itself put into its store."""
    told = []

    def hear(sender: Flask, plant: Plant, **_: Any) -> None:
        told.append(plant.id)

    with plant_added.connected_to(hear):
        assert [add(site), add(site), add(site, {"id": 2})] == [200, 400, 400]
        assert site.test_client().post("/garden/plants", json={**ROSE, "id": 3}).status_code == 401
    assert told == [1]


@pytest.mark.parametrize("setting", ["", "TESTING", "DEBUG", "TRAP_HTTP_EXCEPTIONS"])
@pytest.mark.parametrize("failure", [ZeroDivisionError, lambda: abort(404)])
def test_a_receiver_that_raises_harms_nothing(
    site: Flask, store: MemoryStore, setting: str, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """When receivers raise the plant is kept, the answer 200, the others told, and it is logged."""
    site.config[setting] = True
    told = []

    def fail(sender: Flask, plant: Plant, **_: Any) -> None:
        told.append(plant.name)
        raise failure()

    def fail_too(sender: Flask, plant: Plant, **_: Any) -> None:
        fail(sender, plant)

    with plant_added.connected_to(fail), plant_added.connected_to(fail_too):
        assert add(site) == 200
    assert told == ["Rose", "Rose"]
    assert len(store) == 1
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == [
        "A receiver of plant_added failed (plant 1, client 'token-1')"
    ] * 2
    assert all(record.exc_info for record in errors)


def test_a_receiver_chooses_its_site(site: Flask) -> None:
    """Receivers that name a site are told of its plants alone, and tell its stores by blueprint."""
    other = Flask("other")
    for name in ("first", "second"):
        make_site(other, name=name, url_prefix=f"/{name}")
    told = []

    def hear(sender: Flask, plant: Plant, client: str) -> None:
        told.append(request.blueprint)

    with plant_added.connected_to(hear, sender=other):
        assert [add(site), add(other, prefix="/first"), add(other, prefix="/second")] == [200] * 3
    assert told == ["first", "second"]


def test_a_receiver_may_be_a_coroutine(site: Flask) -> None:
    """A receiver that is a coroutine function is run as Flask runs such views."""
    told = []

    async def hear(sender: Flask, plant: Plant, client: str) -> None:
        told.append(plant.name)

    with plant_added.connected_to(hear):
        assert add(site) == 200
    assert told == ["Rose"]


def test_the_signal_can_be_muted(site: Flask) -> None:
    """While the signal is muted nobody is told."""
    told = []

    def hear(sender: Flask, plant: Plant, client: str) -> None:
        told.append(plant)

    with plant_added.connected_to(hear), plant_added.muted():
        assert add(site) == 200
    assert told == []


def test_the_log_says_who_added_what(site: Flask, caplog: pytest.LogCaptureFixture) -> None:
    """At level INFO the logger plantstore has each new plant's id and client, and else nothing."""
    assert add(site) == 200
    assert caplog.messages == []
    caplog.set_level(logging.INFO, "plantstore")
    assert add(site, {"id": -7, "name": "Lily"}) == 200
    assert caplog.messages == ["Plant -7 was added (client: 'token-1')"]
