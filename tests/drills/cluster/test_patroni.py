"""Three machines with Patroni: one of them, or etcd, fails under load."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count

import pytest

from plantstore import open_store
from tests.support.clients import Record, loaded, wait_for_creations
from tests.support.patroni import Cluster, leader_proxy, patroni_cluster
from tests.support.waiting import wait_for_more

pytestmark = pytest.mark.drill


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Run a cluster for all tests of this file. In the long form, its machines can be separated."""
    with patroni_cluster(separable=request.config.getoption("--long")) as cluster:
        yield cluster


@contextmanager
def leader_killed(cluster: Cluster) -> Iterator[None]:
    """Kill all processes of the leader's machine; after the block, start it again."""
    leader, *_ = cluster.roles()
    leader.kill()
    yield
    leader.start()


@contextmanager
def etcd_frozen(cluster: Cluster) -> Iterator[None]:
    """Freeze all of etcd for longer than Patroni's ttl."""
    leader, *_ = cluster.roles()
    with ExitStack() as frozen:
        for machine in cluster.machines:
            frozen.enter_context(machine.frozen("etcd"))
        yield
        wait_for_more(lambda: leader.log().count("failsafe mode is enabled"), 3)


Fault = Callable[[Cluster], AbstractContextManager[None]]
FAULTS: dict[str, Fault] = {
    "leader_killed": leader_killed,
    # Afterwards, it is a second leader until Patroni stops it.
    "leader_frozen": lambda cluster: cluster.roles()[0].frozen(),
    "standby_frozen": lambda cluster: cluster.roles()[1].frozen(),
    "etcd_frozen": etcd_frozen,
}
LONG: dict[str, Fault] = {"leader_separated": lambda cluster: cluster.roles()[0].separated()}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Separate the leader from all other machines only in the long form."""
    faults = FAULTS | (LONG if metafunc.config.getoption("--long") else {})
    metafunc.parametrize("fault", faults.values(), ids=faults)


def test_patroni(cluster: Cluster, fault: Fault, long: bool, record: Record) -> None:
    """Whatever fails, no acknowledged plant is lost, and no id is acknowledged twice.

    The services respond with 200 again without a restart, also when the machine has returned.
    """
    cluster.execute("DROP TABLE IF EXISTS plants", "plantstore")
    # Each id is sent twice at the same time: two leaders would acknowledge both requests.
    ids = map(lambda number: number // 2, count())  # noqa: C417
    with (
        leader_proxy(cluster) as proxy,
        loaded([cluster.url, cluster.url, proxy], number=4, ids=ids) as groups,
    ):
        for _ in range(3 if long else 1):
            with fault(cluster):
                wait_for_creations(groups)
            cluster.roles()
            wait_for_creations(groups)
    with open_store(cluster.url) as store:
        record({*store}, *groups)
