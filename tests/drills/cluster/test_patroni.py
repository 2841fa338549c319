"""Three machines with Patroni: one of them, or etcd, fails under load."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count

import pytest

from plantstore import open_store
from tests.support.clients import Clients, Record
from tests.support.databases import Place
from tests.support.patroni import Cluster, leader_proxy, patroni_cluster
from tests.support.serving import Gunicorn, together
from tests.support.sql import environment

pytestmark = pytest.mark.drill


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a cluster for all tests of this file. In the long form, its machines can be separated."""
    with patroni_cluster(separable=request.config.getoption("--long")) as cluster:
        yield cluster


Fault = Callable[[Cluster], AbstractContextManager[None]]


@contextmanager
def leader_killed(cluster: Cluster) -> Iterator[None]:
    """Kill all processes of the leader's machine; after the block, start it again."""
    leader, *_ = cluster.roles()
    leader.kill()
    yield
    leader.start()


def leader_frozen(cluster: Cluster) -> AbstractContextManager[None]:
    """Freeze the leader's machine. Then, it is a second leader until Patroni stops it."""
    return cluster.roles()[0].frozen()


def leader_separated(cluster: Cluster) -> AbstractContextManager[None]:
    """Separate the leader's machine from all others, and connect it again."""
    return cluster.roles()[0].separated()


def standby_frozen(cluster: Cluster) -> AbstractContextManager[None]:
    """Freeze the machine of a standby."""
    return cluster.roles()[1].frozen()


@contextmanager
def etcd_frozen(cluster: Cluster) -> Iterator[None]:
    """Freeze all of etcd for longer than Patroni's ttl."""
    leader, *_ = cluster.roles()
    with ExitStack() as frozen:
        for machine in cluster.machines:
            frozen.enter_context(machine.frozen("etcd"))
        yield
        leader.wait_for_log("failsafe mode is enabled", 3)


@contextmanager
def loaded(cluster: Cluster) -> Iterator[list[Clients]]:
    """Run two services with the URL of all servers, and one behind HAProxy, under load."""
    # Each id is sent twice at the same time: two leaders would acknowledge both requests.
    ids = map(lambda number: number // 2, count())  # noqa: C417
    with leader_proxy(cluster) as proxy, ExitStack() as running:
        urls = [cluster.url, cluster.url, proxy]
        services = (Gunicorn("-w", "1", **environment(Place(url))) for url in urls)
        servers = running.enter_context(together(services))
        clients = [Clients(server.port, number=4, ids=ids) for server in servers]
        yield [running.enter_context(it) for it in clients]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Separate machines only in the long form."""
    faults = [leader_killed, leader_frozen, standby_frozen, etcd_frozen, leader_separated]
    metafunc.parametrize("fault", faults if metafunc.config.getoption("--long") else faults[:-1])


def test_patroni(cluster: Cluster, fault: Fault, long: bool, record: Record) -> None:
    """Whatever fails, no acknowledged plant is lost, and no id is acknowledged twice.

    The services respond with 200 again without a restart, also when the machine has returned.
    """
    cluster.execute("DROP TABLE IF EXISTS plants", "plantstore")
    with loaded(cluster) as groups:
        for _ in range(5 if long else 1):
            for clients in groups:
                clients.wait_for_creations()
            with fault(cluster):
                for clients in groups:
                    clients.wait_for_creations()
            cluster.roles()
        for clients in groups:
            clients.wait_for_creations()
    with open_store(cluster.url) as store:
        record({*store}, *groups)
