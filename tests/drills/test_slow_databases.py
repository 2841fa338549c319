"""Each response arrives within five seconds, also when the database server is slow or silent."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine, make_url, text

from plantstore import Plant, StoreUnavailable, open_store
from tests.support.clients import GIVES_UP, LATEST, timed
from tests.support.databases import SERVERS, Place, only, postgresql
from tests.support.proxy import proxy, silent_host
from tests.support.serving import LIMIT, Gunicorn, post
from tests.support.sites import ROSE_PLANT
from tests.support.sql import environment, open_sql, started
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

# The delay of each packet in seconds.
DELAY = 0.9


def statuses_until_created(server: Gunicorn) -> tuple[list[int], float]:
    """Send creates until one succeeds; return all statuses, and the seconds of the slowest."""
    statuses, slowest, limit = [0], 0.0, time.monotonic() + LIMIT
    while statuses[-1] != 200:
        body = b'{"id":%d,"name":"Rose"}' % len(statuses)
        response, seconds = timed(lambda body=body: server.request(post(body)))  # type: ignore[misc]
        statuses.append(response.status)
        slowest = max(slowest, seconds)
        assert time.monotonic() < limit, statuses
    return statuses[1:], slowest


def check_concurrent_clients(server: Gunicorn) -> None:
    """Let four clients send creates until, for each of them, five in a row have succeeded."""

    def create(client: int) -> None:
        statuses, limit = [0], time.monotonic() + LIMIT / 2
        while statuses[-5:] != [200] * 5:
            body = b'{"id":%d,"name":"Rose"}' % (1000 * client + len(statuses))
            statuses.append(server.request(post(body)).status)
            assert time.monotonic() < limit, statuses

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(create, range(1, 5)))


@only(*SERVERS)
@pytest.mark.parametrize("both", [False, True], ids=["responses", "both directions"])
def test_slow_server(place: Place, both: bool) -> None:
    """Behind a network with late packets, each response is in time, and creates soon succeed.

    The second create in a row succeeds too, and everything is fast as soon as the network is.
    """
    with proxy(place) as slow:
        slow.response_delay, slow.request_delay = DELAY, DELAY * both
        # Four delays take longer than PostgreSQL's default timeout of 3 seconds to connect.
        url = f"{slow.url}?connect_timeout=10" if both else slow.url
        with Gunicorn("-w", "1", **environment(Place(url))) as server:
            statuses, slowest = statuses_until_created(server)
            assert {*statuses} <= {503, 200}
            response, seconds = timed(lambda: server.request(post(b'{"id":-1,"name":"Lily"}')))
            assert response.status == 200
            assert max(slowest, seconds) < LATEST
            if not both:
                check_concurrent_clients(server)
            slow.response_delay = slow.request_delay = 0
            response, seconds = timed(lambda: server.request(post(b'{"id":-2,"name":"Tulip"}')))
            assert response.status == 200
            assert "50001" not in server.log


def with_hosts(*hosts: str) -> dict[str, str]:
    """Return the settings of a service with these hosts in its URL."""
    return environment(Place(f"postgresql://plants@/postgres?{'&'.join(hosts)}"))


@only(postgresql)
def test_silent_hosts(place: Place) -> None:
    """However many hosts of a URL are silent, each response is in time.

    A host behind them that does respond is used after some time.
    """
    with silent_host() as port:
        silent = f"host=127.0.0.1:{port}"
        with Gunicorn("-w", "1", **with_hosts(*[silent] * 4)) as server:
            for _ in range(2):
                response, seconds = timed(lambda: server.request(post(b'{"id":1,"name":"Rose"}')))
                assert (response.error, seconds < LATEST) == (50301, True), seconds
        last = f"host=127.0.0.1:{make_url(place.url).port}"
        with Gunicorn("-w", "1", **with_hosts(silent, silent, last)) as server:
            statuses, slowest = statuses_until_created(server)
            assert {*statuses} <= {503, 200}
            assert slowest < LATEST


@only(*SERVERS)
@pytest.mark.parametrize("used", [True, False], ids=["used", "new"])
def test_many_threads_on_a_frozen_server(place: Place, used: bool) -> None:
    """While the server is frozen, each of 24 concurrent adds fails in time, on each attempt.

    As soon as one add succeeds, all do. The store has at most 16 connections.
    """
    with proxy(place) as counting, ThreadPoolExecutor(24) as threads:
        store, start = open_store(counting.url), Barrier(24)

        def add(id: int) -> bool:
            try:
                store.add(Plant(id, "Rose"))
            except StoreUnavailable:
                return False
            return True

        def add_with_others(id: int) -> bool:
            start.wait(LIMIT)
            return add(id)

        if used:
            assert all(threads.map(add_with_others, range(24)))
        with place.server.frozen():
            for attempt in (1, 2):
                ids = range(100 * attempt, 100 * attempt + 24)
                results = [*threads.map(lambda id: timed(lambda: add_with_others(id)), ids)]
                assert not any(added for added, _ in results)
                assert max(seconds for _, seconds in results) < LATEST
        wait_until(lambda: add(-1))
        assert all(threads.map(add_with_others, range(1000, 1024)))
        wait_until(lambda: len(counting.clients) <= 16)
        store.close()


@only(*SERVERS)
def test_lock_timeout_is_store_unavailable(place: Place, engine: Engine) -> None:
    """An add raises StoreUnavailable while another transaction still holds the lock on its id."""
    with open_sql(place.url) as store:
        store.add_all([])
        with engine.connect() as other:
            other.execute(text("INSERT INTO plants (id, name) VALUES (1, 'other')"))
            with started(lambda: store.add(ROSE_PLANT)) as (adding,):
                try:
                    with pytest.raises(StoreUnavailable, match=r"lock timeout|Lock wait timeout"):
                        adding.result(GIVES_UP)
                finally:
                    other.rollback()
