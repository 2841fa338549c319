"""Failover of a PostgreSQL primary to its synchronous standby, under load."""

import pytest

from plantstore import Plant
from tests.support.clients import Clients, Record, acknowledged, loaded, wait_for_responses
from tests.support.replication import Node, postgresql_pair
from tests.support.sql import started
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

SERVICES = 2
# Each service has eight clients, and each of them one request at a time.
CLIENTS = 8 * SERVICES
# Seconds from the start of the promotion to a 200 of each service. It takes 2 seconds. The rest is
# for a busy machine.
RECOVERS = 15


def wait_for_recovery(groups: list[Clients]) -> None:
    """Return when each service has acknowledged one more plant."""
    before = [(clients, len(clients.acknowledged)) for clients in groups]
    wait_until(lambda: all(len(it.acknowledged) > number for it, number in before), RECOVERS)


def plants(node: Node) -> set[Plant]:
    """Return all plants of a server."""
    return {Plant(*row) for row in node.execute("SELECT id, name, tag FROM plants")}


def fail_over(options: str = "") -> tuple[set[Plant], list[Clients]]:
    """Kill the primary under load when its standby has been stopped, and promote the standby.

    Returns the plants that are stored, and the clients.

    :param options: more options of the URL.
    """
    with postgresql_pair() as pair:
        with loaded([pair.url + options] * SERVICES) as groups:
            # A frozen standby would still find the last commits in the buffers of its connection.
            with pair.standby.stopped():
                wait_for_responses(groups, 2 * CLIENTS)
                pair.primary.kill()
            with started(lambda: wait_for_recovery(groups)) as (recovery,):
                pair.promote()
            recovery.result()
        return plants(pair.standby), groups


def test_failover_loses_no_acknowledged_plant(record: Record) -> None:
    """After a failover to a standby that was away, every acknowledged plant is stored.

    No other than sent ones are. The services respond with 200 again without a restart.
    """
    stored, clients = fail_over()
    record(stored, *clients)


def test_drill_detects_a_store_that_does_not_wait_for_the_standby() -> None:
    """The drill fails for a store whose acknowledged plants are only on the primary."""
    stored, clients = fail_over("&options=-c%20synchronous_commit%3Dlocal")
    assert acknowledged(clients) - stored
