"""Failover of a PostgreSQL primary to its synchronous standby, under load."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from plantstore import Plant
from tests.support.clients import Clients, Record, acknowledged, clients_of, wait_for_responses
from tests.support.databases import Place
from tests.support.replication import Node, Pair, postgresql_pair
from tests.support.serving import Gunicorn, together
from tests.support.sql import environment, started
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

SERVICES = 2
# Each service has eight clients, and each of them one request at a time.
CLIENTS = 8 * SERVICES
# Seconds from the start of the promotion to a 200 of each service. It takes 2 seconds if the old
# primary was killed, and longer if timeouts must find that it is frozen. The rest is for a busy
# machine.
RECOVERS = 15
RECOVERS_FROM_SILENCE = 40


@contextmanager
def loaded(place: Place) -> Iterator[list[Clients]]:
    """Run services on a pair of servers, under load."""
    services = (Gunicorn("-w", "1", **environment(place)) for _ in range(SERVICES))
    with together(services) as servers, clients_of(servers) as groups:
        wait_for_creations(groups)
        yield groups
        wait_for_creations(groups)
        assert not any("50001" in server.log for server in servers)
        assert [clients.unanswered for clients in groups] == [0] * SERVICES


def wait_for_creations(groups: list[Clients]) -> None:
    """Return when each service has acknowledged fifty more plants."""
    for clients in groups:
        clients.wait_for_creations()


def wait_for_recovery(groups: list[Clients], seconds: float) -> None:
    """Return when each service has acknowledged one more plant; fail after this time."""
    before = [(clients, len(clients.acknowledged)) for clients in groups]
    wait_until(lambda: all(len(it.acknowledged) > number for it, number in before), seconds)


def plants(node: Node) -> set[Plant]:
    """Return all plants of a server."""
    return {Plant(*row) for row in node.execute("SELECT id, name, tag FROM plants")}


Fault = Callable[[Pair, list[Clients]], AbstractContextManager[None]]


@contextmanager
def killed(pair: Pair, groups: list[Clients]) -> Iterator[None]:
    """Kill the primary, and in the block promote the standby."""
    pair.primary.kill()
    wait_for_responses(groups, 2 * CLIENTS)
    yield


@contextmanager
def killed_without_standby(pair: Pair, groups: list[Clients]) -> Iterator[None]:
    """Kill the primary when the standby has been stopped for some time, and start the standby.

    A frozen standby would still find the last commits in the buffers of its connection.
    """
    with pair.standby.stopped():
        wait_for_responses(groups, 2 * CLIENTS)
        pair.primary.kill()
    yield


@contextmanager
def frozen(pair: Pair, groups: list[Clients]) -> Iterator[None]:
    """Freeze the primary: its connections stay open, and it accepts others, but never responds."""
    with pair.primary.frozen():
        wait_for_responses(groups, 2 * CLIENTS)
        yield
        pair.primary.kill()


def fail_over(fault: Fault, options: str = "") -> tuple[set[Plant], list[Clients]]:
    """Promote the standby under load, after a fault of the primary.

    Returns the plants that are stored, and the clients.

    :param options: more options of the URL.
    """
    limit = RECOVERS_FROM_SILENCE if fault is frozen else RECOVERS
    with postgresql_pair() as pair:
        with loaded(Place(pair.url + options)) as groups, fault(pair, groups):
            with started(lambda: wait_for_recovery(groups, limit)) as (recovery,):
                pair.promote()
            recovery.result()
        return plants(pair.standby), groups


@pytest.mark.parametrize("fault", [killed, killed_without_standby, frozen])
def test_failover_loses_no_acknowledged_plant(fault: Fault, record: Record) -> None:
    """After a failover under load, every acknowledged plant is stored, and no other than sent ones.

    The services respond with 200 again without a restart.
    """
    stored, clients = fail_over(fault)
    record(stored, *clients)


def test_drill_detects_a_store_that_does_not_wait_for_the_standby() -> None:
    """The drill fails for a store whose acknowledged plants are only on the primary."""
    local = "&options=-c%20synchronous_commit%3Dlocal"
    stored, clients = fail_over(killed_without_standby, local)
    assert acknowledged(clients) - stored
