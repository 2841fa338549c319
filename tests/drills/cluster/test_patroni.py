"""Three machines with Patroni: what fails, and the seconds until a create succeeds again."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count

import pytest

from tests.support.clients import Clients, Record
from tests.support.databases import Place
from tests.support.patroni import COMPLETE, Cluster, leader_proxy, patroni_cluster
from tests.support.serving import Gunicorn, together
from tests.support.sql import environment
from tests.support.waiting import wait_for_more, wait_until

pytestmark = pytest.mark.drill


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster for all tests of this file."""
    with patroni_cluster() as cluster:
        yield cluster


Fault = Callable[[Cluster], AbstractContextManager[None]]


@contextmanager
def leader_killed(cluster: Cluster) -> Iterator[None]:
    """Kill all processes of the leader's machine; after the block, start it again."""
    leader = cluster.leader()
    leader.kill()
    yield
    leader.start()


@contextmanager
def leader_frozen(cluster: Cluster) -> Iterator[None]:
    """Freeze the leader's machine. It goes on as a second leader until Patroni stops it."""
    with cluster.leader().frozen():
        yield


@contextmanager
def standby_frozen(cluster: Cluster) -> Iterator[None]:
    """Freeze the machine of a standby until the others have given it up."""
    leader, (standby, _) = cluster.leader(), cluster.standbys()
    with standby.frozen():
        yield
        wait_until(lambda: len(leader.members()) == 2, COMPLETE)


@contextmanager
def etcd_frozen(cluster: Cluster) -> Iterator[None]:
    """Freeze all of etcd for longer than the time after which a leader is given up."""
    leader = cluster.leader()
    with ExitStack() as frozen:
        for machine in cluster.machines:
            frozen.enter_context(machine.frozen("etcd"))
        yield
        # Each line is at least seven seconds later than the one before.
        wait_for_more(lambda: leader.log().count("failsafe mode is enabled"), 3, COMPLETE)


FAULTS = [leader_killed, leader_frozen, standby_frozen, etcd_frozen]


@contextmanager
def loaded(cluster: Cluster) -> Iterator[list[Clients]]:
    """Run two services with the URL of all servers, and a third one behind HAProxy, under load."""
    clients = list[Clients]()
    # Each id is sent by two clients at the same time: two leaders would acknowledge it twice.
    ids = map(lambda number: number // 2, count())  # noqa: C417
    with leader_proxy(cluster) as url, ExitStack() as running:
        urls = [cluster.url, cluster.url, url]
        services = (Gunicorn("-w", "1", **environment(Place(url))) for url in urls)
        for server in running.enter_context(together(services)):
            clients.append(running.enter_context(Clients(server.port, number=4, ids=ids)))
        yield clients


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_of_patroni(cluster: Cluster, fault: Fault, record: Record) -> None:
    """Whatever fails, no acknowledged plant is lost, and none is acknowledged twice.

    The services respond with 200 again without a restart, also when the machine has returned.
    """
    cluster.clear()
    with loaded(cluster) as groups:
        wait_for_creations(groups)
        with fault(cluster):
            wait_for_creations(groups)
        cluster.wait_until_complete()
        wait_for_creations(groups)
    print([f"{group.outage():.1f}" for group in groups])
    record(cluster.plants(), *groups)


def wait_for_creations(groups: list[Clients]) -> None:
    """Return when each service has acknowledged fifty more plants."""
    before = [(clients, len(clients.acknowledged)) for clients in groups]
    wait_until(lambda: all(len(it.acknowledged) > n + 50 for it, n in before), COMPLETE)
