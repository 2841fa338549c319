"""A cluster of three Galera nodes: concurrent creates, and nodes that are lost or silent."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count

import pytest

from plantstore import Plant
from tests.support.clients import LATEST, Clients, Record, timed
from tests.support.galera import SIZE, Galera, Node, galera
from tests.support.race import race
from tests.support.serving import Gunicorn, Server, post
from tests.support.sql import open_sql
from tests.support.waiting import wait_until

# One process runs all of them, since they share a cluster.
pytestmark = [pytest.mark.drill, pytest.mark.xdist_group("galera")]

# `pytest --log-cli-level=INFO` shows the seconds.
LOG = logging.getLogger(__name__)
# An id that no other clients use.
unused = count(10**9)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Galera]:
    """Run a cluster for all tests of this file."""
    with galera() as cluster:
        yield cluster


@pytest.fixture
def cluster(nodes: Galera) -> Galera:
    """Return a cluster of three nodes, all ready, without plants."""
    nodes.recover()
    nodes.clear()
    return nodes


def service(url: str, app: str = "wsgi:app", workers: int = 1) -> Gunicorn:
    """Return a service that stores its plants on one node."""
    environment = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": url}
    return Gunicorn("-w", str(workers), app, **environment)


@contextmanager
def services(cluster: Galera, app: str = "wsgi:app") -> Iterator[list[Server]]:
    """Run a service for each node."""
    with ExitStack() as running:
        urls = [cluster.node_url(number) for number in range(SIZE)]
        servers: list[Server] = []
        for url in urls:
            servers.append(running.enter_context(service(url, app)))
        yield servers


def create(server: Gunicorn) -> int:
    """Create a new plant; return the status of the response, which must be in time."""
    body = b'{"id":%d,"name":"Rose"}' % next(unused)
    response, seconds = timed(lambda: server.request(post(body)))
    assert seconds < LATEST
    return response.status


def seconds_until(condition: Callable[[], bool]) -> float:
    """Wait until the condition is true; return how long this took."""
    return timed(lambda: wait_until(condition))[1]


def report(clients: Clients) -> None:
    """Log what the clients have measured."""
    times = clients.slowest(), clients.outage(), len(clients.acknowledged), clients.refused
    LOG.info("slowest %.2f s, without a 200 %.2f s, %d acknowledged, %d refused", *times)


def test_concurrent_duplicates_are_acknowledged_once(cluster: Galera) -> None:
    """When six clients create the same 300 ids on three nodes, each id is acknowledged once."""
    with services(cluster) as servers:
        created = race(servers, clients=6, ids=300)
        assert not any("Traceback" in server.log for server in servers)
    assert [id for id, _ in created] == [*range(300)]
    for number in range(SIZE):
        assert cluster.plants(number) == {Plant(id, name) for id, name in created}


def kill_node(cluster: Galera, app: str) -> tuple[set[Plant], list[Clients]]:
    """Kill a node under load; return the plants that are stored, and the clients.

    The services on the other nodes must continue, with every response in time.
    """
    with open_sql(cluster.node_url(0)) as store:
        store.add_all([])  # Creates the table, also for a service that stores its plants later.
    with services(cluster, app) as servers, ExitStack() as running:
        clients = [
            running.enter_context(Clients(server.port, first=number * 10**6))
            for number, server in enumerate(servers)
        ]
        for client in clients:
            client.wait_for_creations()
        cluster.nodes[2].kill()
        for number in (0, 1):
            cluster.wait_until_ready(number, size=2)
            clients[number].wait_for_creations()
    for client in clients:
        report(client)
        assert client.slowest() < LATEST
    stored = cluster.plants(0)
    assert cluster.plants(1) == stored
    return stored, clients


def test_kill_a_node(cluster: Galera, record: Record) -> None:
    """When a node is killed under load, the others have all plants that any service acknowledged.

    The services on the other nodes continue, and each response is in time.
    """
    stored, clients = kill_node(cluster, "wsgi:app")
    record(stored, *clients)


def test_drill_detects_a_store_that_acknowledges_early(cluster: Galera) -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    stored, clients = kill_node(cluster, "tests.drills.early_store:app")
    assert set[Plant]().union(*[client.acknowledged for client in clients]) - stored


@contextmanager
def frozen(cluster: Galera) -> Iterator[None]:
    """Suspend two of the nodes."""
    with cluster.nodes[1].frozen(), cluster.nodes[2].frozen():
        yield


@contextmanager
def killed(cluster: Galera) -> Iterator[None]:
    """Kill two of the nodes, and start them again."""
    for node in cluster.nodes[1:]:
        node.kill()
    yield
    cluster.recover()


@pytest.mark.parametrize("outage", [frozen, killed])
def test_minority_is_503_until_the_others_return(
    cluster: Galera, outage: Callable[[Galera], AbstractContextManager[None]]
) -> None:
    """While two of three nodes are lost, a create is 503; afterwards it is 200 by itself."""
    with service(cluster.node_url(0)) as server:
        assert create(server) == 200
        with outage(cluster):
            # The node waits for the others, and then is not ready.
            for _ in range(3):
                assert create(server) == 503
            assert not cluster.nodes[0].is_ready(SIZE)
            assert create(server) == 503
        seconds = seconds_until(lambda: create(server) == 200)
        LOG.info("%s: 200 after %.2f s", outage.__name__, seconds)
        assert "50001" not in server.log


@contextmanager
def dead(node: Node) -> Iterator[None]:
    """Kill a node."""
    node.kill()
    yield


@contextmanager
def not_ready(node: Node) -> Iterator[None]:
    """Separate a node from the others, and wait until it is not ready."""
    with node.isolated():
        wait_until(lambda: not node.is_ready(SIZE))
        yield


OUTAGES = [dead, not_ready, Node.isolated, Node.frozen]


@pytest.mark.parametrize("outage", OUTAGES, ids=lambda outage: outage.__name__)
def test_service_of_another_node(
    cluster: Galera, outage: Callable[[Node], AbstractContextManager[None]]
) -> None:
    """If a node is lost, the services of the other nodes continue within the deadline.

    Also many clients then get no other status than 200 and 503. That of the node is 503.
    """
    with service(cluster.node_url(0)) as server, service(cluster.node_url(2)) as other:
        assert create(server) == create(other) == 200
        with outage(cluster.nodes[2]):
            seconds = seconds_until(lambda: create(server) == 200)
            LOG.info("%s: 200 after %.2f s", outage.__name__, seconds)
            with Clients(server.port) as clients:
                clients.wait_for_creations()
            wait_until(lambda: create(other) == 503)
            assert clients.slowest() < LATEST
        assert seconds < LATEST
        assert "50001" not in server.log + other.log


def test_separated_node_under_load(cluster: Galera) -> None:
    """If a node is separated from the others under load, no new id is refused as a duplicate."""
    used = cluster.nodes[0]
    with service(cluster.node_url(0)) as server, Clients(server.port) as clients:
        for _ in range(2):
            clients.wait_for_creations()
            with used.isolated():
                wait_until(lambda: not used.is_ready(SIZE))
            cluster.wait_until_ready(0)
            clients.wait_for_creations()
    report(clients)
    assert clients.acknowledged <= cluster.plants(1) <= clients.sent


@pytest.mark.parametrize("clients", [8, 24])
@pytest.mark.parametrize("silence", [3, 8])
def test_one_deadline(cluster: Galera, silence: float, clients: int) -> None:
    """While a node is frozen, and after that, each response is in time.

    This is also true for requests that wait for one of the eight threads of the service.
    """
    with (
        service(cluster.node_url(2)) as server,
        Clients(server.port, number=clients) as running,
    ):
        running.wait_for_creations()
        with cluster.nodes[2].frozen():
            end = time.monotonic() + silence
            wait_until(lambda: time.monotonic() > end)
        cluster.wait_until_ready(2)
        running.wait_for_creations()
    report(running)
    assert running.slowest() < LATEST
    assert running.acknowledged <= cluster.plants(0) <= running.sent
