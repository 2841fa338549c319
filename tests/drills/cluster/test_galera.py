"""A cluster of three Galera nodes: concurrent creates, and nodes that are lost or silent."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count

import pytest

from plantstore import Plant
from tests.support.clients import LATEST, Clients, Record, clients_of, timed
from tests.support.front import HAPROXY, haproxy
from tests.support.galera import SIZE, Galera, galera
from tests.support.race import race
from tests.support.serving import Gunicorn, Server, post, together
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

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


def service(cluster: Galera, number: int) -> Gunicorn:
    """Return a service that stores its plants on one node."""
    return Gunicorn(
        "-w", "1", PLANTSTORE_TOKENS="s3cret", PLANTSTORE_STORE=cluster.node_url(number)
    )


@pytest.fixture
def services(cluster: Galera) -> Iterator[list[Server]]:
    """Return a service for each node."""
    with together(service(cluster, number) for number in range(SIZE)) as servers:
        yield servers
        assert not any("Traceback" in server.log for server in servers)


def create(server: Gunicorn) -> int:
    """Create a new plant; return the status of the response, which must be in time."""
    body = b'{"id":%d,"name":"Rose"}' % next(unused)
    response, seconds = timed(lambda: server.request(post(body)))
    assert seconds < LATEST
    return response.status


def test_concurrent_duplicates_are_acknowledged_once(
    cluster: Galera, services: list[Server]
) -> None:
    """When six clients create the same 100 ids on three nodes, each id is acknowledged once."""
    created = race(services, clients=6, ids=100)
    assert [id for id, _ in created] == [*range(100)]
    for number in range(SIZE):
        assert cluster.plants(number) == {Plant(id, name) for id, name in created}


def test_kill_a_node(cluster: Galera, services: list[Server], record: Record) -> None:
    """When a node is killed under load, the others have all plants that any service acknowledged.

    The services on the other nodes continue, and each response is in time.
    """
    with clients_of(services) as clients:
        for client in clients:
            client.wait_for_creations()
        cluster.nodes[2].kill()
        for number in (0, 1):
            cluster.wait_until_ready(number, size=2)
            clients[number].wait_for_creations()
        wait_until(lambda: clients[2].refused > 0)
    stored = cluster.plants(0)
    record(stored, *clients)
    assert cluster.plants(1) == stored
    assert max(client.slowest() for client in clients) < LATEST


@pytest.mark.skipif(HAPROXY is None, reason="apt-get install haproxy")
def test_kill_a_node_behind_haproxy(
    cluster: Galera, services: list[Server], record: Record
) -> None:
    """When a node is killed, deploy/haproxy.cfg soon sends no more requests to its instance."""
    with (
        haproxy(services[1].port, services[2].port) as proxy,
        Clients(proxy.port, path="/garden/plants", tls=True) as clients,
    ):
        clients.wait_for_creations()
        cluster.nodes[2].kill()
        cluster.wait_until_ready(1, size=2)
        wait_until(lambda: all_succeed(clients))
    record(cluster.plants(1), clients)


def all_succeed(clients: Clients) -> bool:
    """Return whether the last hundred requests were all acknowledged."""
    last = clients.responses[-100:]
    return len(last) == 100 and {status for _, _, status in last} == {200}


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
    with service(cluster, 0) as server:
        assert create(server) == 200
        with outage(cluster):
            # The node waits for the others, and then is not ready.
            assert create(server) == 503
            wait_until(lambda: not cluster.nodes[0].is_ready(SIZE))
            assert create(server) == 503
        wait_until(lambda: create(server) == 200)
        assert "50001" not in server.log


def test_separated_node_under_load(cluster: Galera) -> None:
    """If a node is separated from the others under load, no new id is refused as a duplicate."""
    used = cluster.nodes[0]
    with service(cluster, 0) as server, Clients(server.port) as clients:
        clients.wait_for_creations()
        with used.isolated():
            wait_until(lambda: not used.is_ready(SIZE))
        cluster.wait_until_ready(0)
        clients.wait_for_creations()
    assert clients.acknowledged <= cluster.plants(1) <= clients.sent


def test_frozen_node(cluster: Galera) -> None:
    """While a node is frozen, and after that, each response is in time. Other nodes continue.

    This is also true for requests that wait for one of the eight threads of the service.
    """
    with (
        service(cluster, 0) as server,
        service(cluster, 2) as other,
        Clients(other.port, number=24) as clients,
    ):
        for silence in (3, 8):
            clients.wait_for_creations()
            with cluster.nodes[2].frozen():
                end = time.monotonic() + silence
                wait_until(lambda: create(server) == 200, LATEST)
                with Clients(server.port, first=10**6 * silence) as others:
                    others.wait_for_creations()
                wait_until(lambda end=end: time.monotonic() > end)  # type: ignore[misc]
            cluster.wait_until_ready(2)
            clients.wait_for_creations()
            assert max(clients.slowest(), others.slowest()) < LATEST
        assert "50001" not in server.log + other.log
    assert clients.acknowledged <= cluster.plants(0)
