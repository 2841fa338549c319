"""Many clients of several services, who all want the same plants."""

from contextlib import ExitStack

from plantstore import open_store

from ..databases import Place
from ..race import race
from ..serving import Gunicorn


def test_an_id_is_acknowledged_once(place: Place) -> None:
    """Of 32 clients who create the same 1,000 ids, one hears 200 for each, and its plant is kept.

    On SQLite at one service with four workers, on a server's database at two services.
    """
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": place.url}
    workers = ["4"] if place.url.startswith("sqlite") else ["2", "2"]
    with ExitStack() as running:
        servers = [running.enter_context(Gunicorn("-w", n, **environment)) for n in workers]
        won = race(servers, clients=32, ids=1000)
        assert not any("Traceback" in server.log for server in servers)
    store = open_store(place.url)
    assert won == [(plant.id, plant.name) for plant in store]
    assert len(won) == 1000
    store.close()


def test_an_id_in_memory_is_acknowledged_once() -> None:
    """Of 32 clients who create the same 1,000 ids in memory, one hears 200 for each."""
    with Gunicorn(PLANTSTORE_TOKENS="s3cret") as server:
        won = race([server], clients=32, ids=1000)
    assert [id for id, _ in won] == [*range(1000)]
