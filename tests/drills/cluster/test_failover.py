"""Failover of a PostgreSQL primary to its synchronous standby, under load.

``--log-cli-level=INFO`` shows the seconds that each failover took.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest
from sqlalchemy import make_url

from plantstore import Plant, SQLStore, StoreUnavailable
from tests.support.clients import Clients, Record
from tests.support.databases import Place, only, postgresql
from tests.support.databases import Server as DatabaseServer
from tests.support.replication import MOST, WAITING, Node, Pair, postgresql_pair
from tests.support.serving import Gunicorn, Server
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import environment, open_sql, started
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

_log = logging.getLogger(__name__)

EARLY = "tests.drills.early_store:app"
SERVICES = 2
# Each service has eight clients, and each of them one request at a time.
CLIENTS = 8 * SERVICES
# While the standby does not respond, each request takes nearly five seconds. After this number of
# responses, more requests have waited for it than the services have connections.
MANY = 4 * CLIENTS
# Seconds from the start of the promotion to a 200 of each service. It takes 2 seconds if the old
# primary was killed, and longer if timeouts must find that it is frozen. The rest is for a busy
# machine.
RECOVERS = 15
RECOVERS_FROM_SILENCE = 40
# Seconds after which a test fails because an operation has not given up. The deadline is 5 seconds;
# the rest is for a busy machine. With one deadline for each of the hosts it takes 24 seconds.
GIVES_UP, HOSTS = 15, 8


class Load:
    """Services that share the plants of a pair, each with clients of its own."""

    def __init__(self, services: list[Server], clients: list[Clients]) -> None:
        self._services = services
        self.clients = clients

    @property
    def sent(self) -> set[Plant]:
        """The plants of all requests."""
        return set[Plant]().union(*[clients.sent.copy() for clients in self.clients])

    @property
    def acknowledged(self) -> set[Plant]:
        """The plants of all requests that got 200."""
        return set[Plant]().union(*[clients.acknowledged.copy() for clients in self.clients])

    @property
    def refused(self) -> int:
        """The number of requests that got 503."""
        return sum(clients.refused for clients in self.clients)

    def wait_for_responses(self, number: int) -> None:
        """Return when this number of requests has been answered, with any status."""
        enough = self._responses() + number
        wait_until(lambda: self._responses() >= enough)

    def _responses(self) -> int:
        return len(self.acknowledged) + self.refused

    def wait_for_creations(self) -> None:
        """Return when each service has acknowledged fifty more plants."""
        for clients in self.clients:
            clients.wait_for_creations()

    def wait_for_recovery(self, seconds: float) -> None:
        """Return when each service has acknowledged one more plant; fail after this time."""
        deadline = time.monotonic() + seconds
        before = [len(clients.acknowledged) for clients in self.clients]
        for clients, number in zip(self.clients, before, strict=True):
            left = deadline - time.monotonic()
            wait_until(lambda: len(clients.acknowledged) > number, left)  # noqa: B023  # Used here.

    def check_responses(self) -> None:
        """Check that no service has an unexpected error, or leaves a request without response."""
        assert not any("50001" in service.log for service in self._services)
        assert [clients.unanswered for clients in self.clients] == [0] * SERVICES


@contextmanager
def loaded(pair: Pair, app: str = "wsgi:app", options: str = "") -> Iterator[Load]:
    """Run services on a pair of servers, under load.

    :param options: more options of the URL.
    """
    place = Place(pair.url + options)
    with open_sql(place.url) as store:
        store.add_all([])  # Creates the table, also for a service that stores its plants later.
    with ExitStack() as running:
        services, groups = [], []
        for number in range(SERVICES):
            service = running.enter_context(Gunicorn("-w", "1", app, **environment(place)))
            clients = running.enter_context(Clients(service.port, first=number * 1_000_000))
            services.append(service)
            groups.append(clients)
        load = Load(services, groups)
        load.wait_for_creations()
        yield load
        load.wait_for_creations()
        load.check_responses()


def plants(node: Node) -> set[Plant]:
    """Return all plants of a server."""
    return {Plant(*row) for row in node.execute("SELECT id, name, tag FROM plants")}


Fault = Callable[[Pair, Load], AbstractContextManager[None]]


@contextmanager
def killed(pair: Pair, load: Load) -> Iterator[None]:
    """Kill the primary, and in the block promote the standby."""
    pair.primary.kill()
    load.wait_for_responses(MANY)
    yield


@contextmanager
def killed_without_standby(pair: Pair, load: Load) -> Iterator[None]:
    """Kill the primary when the standby has been stopped for some time, and start the standby.

    A frozen standby would still find the last commits in the buffers of its connection.
    """
    with pair.standby.stopped():
        load.wait_for_responses(2 * CLIENTS)
        pair.primary.kill()
    yield


@contextmanager
def frozen(pair: Pair, load: Load) -> Iterator[None]:
    """Freeze the primary: its connections stay open, and it accepts others, but never responds."""
    with pair.primary.frozen():
        load.wait_for_responses(2 * CLIENTS)
        yield
        pair.primary.kill()


def fail_over(
    fault: Fault, app: str = "wsgi:app", options: str = ""
) -> tuple[set[Plant], list[Clients]]:
    """Promote the standby under load, after a fault of the primary.

    Returns the plants that are stored, and the clients.
    """
    limit = RECOVERS_FROM_SILENCE if fault is frozen else RECOVERS
    with postgresql_pair() as pair:
        with loaded(pair, app, options) as load, fault(pair, load):
            begin = time.monotonic()
            with started(lambda: load.wait_for_recovery(limit)) as (recovery,):
                pair.promote()
                promoted = time.monotonic() - begin
            recovery.result()
            recovered = time.monotonic() - begin
            _log.info(
                "%s: promoted in %.2f seconds, 200 after %.2f seconds",
                *(fault.__name__, promoted, recovered),
            )
        return plants(pair.standby), load.clients


def lost(stored: set[Plant], clients: list[Clients]) -> set[Plant]:
    """Return the acknowledged plants that are not stored."""
    return set[Plant]().union(*[client.acknowledged for client in clients]) - stored


FAULTS = pytest.mark.parametrize("fault", [killed, killed_without_standby, frozen])


@FAULTS
def test_failover_loses_no_acknowledged_plant(fault: Fault, record: Record) -> None:
    """After a failover under load, every acknowledged plant is stored, and no other than sent ones.

    The services respond with 200 again without a restart.
    """
    stored, clients = fail_over(fault)
    record(stored, *clients)


@FAULTS
def test_drill_detects_a_store_that_acknowledges_early(fault: Fault) -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    assert lost(*fail_over(fault, EARLY))


def test_drill_detects_a_store_that_does_not_wait_for_the_standby() -> None:
    """The drill fails for a store whose acknowledged plants are only on the primary."""
    local = "&options=-c%20synchronous_commit%3Dlocal"
    assert lost(*fail_over(killed_without_standby, options=local))


Outage = Callable[[DatabaseServer], AbstractContextManager[object]]
OUTAGES = pytest.mark.parametrize("outage", [DatabaseServer.frozen, DatabaseServer.stopped])


def lose_standby(outage: Outage, app: str = "wsgi:app") -> tuple[int, int, Any]:
    """Let the standby not respond under load, for about four timeouts of a request.

    Returns how many plants were acknowledged meanwhile, the highest number of backends that waited
    for the standby, and the plants that were lost when the standby replaced the primary later.
    """
    with postgresql_pair() as pair:
        with loaded(pair, app) as load:
            with outage(pair.standby):
                acknowledged, waiting = _wait_in_vain(pair, load)
            returned = time.monotonic()
            load.wait_for_recovery(RECOVERS)
            _log.info(
                "the standby was %s: at most %d backends waited, 200 after %.2f seconds",
                *(outage.__name__, waiting, time.monotonic() - returned),
            )
        pair.primary.kill()
        pair.promote()
        return acknowledged, waiting, load.acknowledged - plants(pair.standby)


def _wait_in_vain(pair: Pair, load: Load) -> tuple[int, int]:
    """Return how many plants are acknowledged while the standby does not respond.

    And return the highest number of backends that wait for it.
    """
    before, waiting = len(load.acknowledged), [0]
    with started(lambda: load.wait_for_responses(MANY)) as (responses,):
        while not responses.done():
            waiting.append(pair.waiting())
    responses.result()
    return len(load.acknowledged) - before, max(waiting)


@OUTAGES
def test_standby_that_does_not_respond_keeps_a_limited_number_of_backends(outage: Outage) -> None:
    """While no standby responds, not more backends wait for it than the pools have connections.

    All responses are 503. When it responds again, they are 200. No acknowledged plant is lost.
    """
    acknowledged, waiting, lost = lose_standby(outage)
    # The responses to requests whose plants the standby had already stored.
    assert acknowledged <= CLIENTS
    assert waiting <= SERVICES * MOST
    assert not lost


@OUTAGES
def test_drill_detects_a_store_that_acknowledges_without_standby(outage: Outage) -> None:
    """The drill fails for a store that responds with 200 while the standby does not respond."""
    acknowledged, _, _ = lose_standby(outage, EARLY)
    assert acknowledged > CLIENTS


@only(postgresql)
def test_silent_hosts_share_one_deadline(place: Place) -> None:
    """An operation gives up after five seconds, however many hosts of its URL do not respond."""
    hosts = "&".join([f"host=127.0.0.1:{make_url(place.url).port}"] * HOSTS)
    with open_sql(f"postgresql://plants@/postgres?{hosts}") as store:
        with place.server.frozen():
            for operation in (store.ping, lambda: store.add(ROSE_PLANT)):
                begin = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    operation()
                assert time.monotonic() - begin < GIVES_UP
        store.add(ROSE_PLANT)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Return a primary and its standby, both without plants."""
    with postgresql_pair() as pair:
        yield pair


def test_standby_is_not_used(pair: Pair) -> None:
    """A store never uses a standby, also if it is the first server of the URL."""
    servers = f"host=127.0.0.1:{pair.standby.port}&host=127.0.0.1:{pair.primary.port}"
    with open_sql(f"postgresql://plants@/postgres?{servers}") as store:
        store.add(ROSE_PLANT)


CHANGES: dict[str, Callable[[SQLStore], object]] = {
    "add": lambda store: store.add(ROSE_PLANT),
    "add_all": lambda store: store.add_all([ROSE_PLANT]),
    "replace": lambda store: store.replace(LILY),
    "remove": lambda store: store.remove(LILY.id),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("function", ["pg_cancel_backend", "pg_terminate_backend"])
def test_cancelled_wait_is_store_unavailable(
    pair: Pair, function: str, change: Callable[[SQLStore], object]
) -> None:
    """A change that the standby has not confirmed, because the wait was cancelled, is no success.

    It raises StoreUnavailable, and later ones succeed.
    """
    with open_sql(pair.url) as store:
        store.add(LILY)
        with pair.standby.frozen(), started(lambda: change(store)) as (changing,):
            wait_until(lambda: pair.waiting() >= 1)
            pair.primary.execute(f"SELECT {function}(pid) {WAITING}")
        with pytest.raises(StoreUnavailable):
            changing.result()
        store.add(Plant(3, "Tulip"))
        assert store.get(3) == Plant(3, "Tulip")
