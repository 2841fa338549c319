"""A cluster of three Galera nodes: concurrent creates, and nodes that are lost or separated."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count

import orjson
import pytest

from plantstore import Plant
from tests.support.clients import LATEST, Clients, timed
from tests.support.databases import Place
from tests.support.galera import SIZE, Galera, galera
from tests.support.serving import Gunicorn, post, together
from tests.support.sql import environment
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
    return Gunicorn("-w", "1", **environment(Place(cluster.nodes[number].url)))


def create(server: Gunicorn) -> int:
    """Create a new plant; return the status of the response, which must be in time."""
    body = b'{"id":%d,"name":"Rose"}' % next(unused)
    response, seconds = timed(lambda: server.request(post(body)))
    assert seconds < LATEST
    return response.status


def test_concurrent_duplicates_are_acknowledged_once(cluster: Galera) -> None:
    """When six clients create the same 100 ids on three nodes, each id is acknowledged once."""

    def create_all(client: int) -> set[Plant]:
        plants = [Plant(id, f"of client {client}") for id in range(100)]
        requests = [post(orjson.dumps(plant.members())) for plant in plants]
        with services[client % SIZE].connect() as connection:
            responses = [connection.request(request) for request in requests]
        refused = [response.error for response in responses if response.status != 200]
        assert {*refused} <= {40004}
        pairs = zip(plants, responses, strict=True)
        return {plant for plant, response in pairs if response.status == 200}

    running = together(service(cluster, number) for number in range(SIZE))
    with running as services, ThreadPoolExecutor(6) as threads:
        created = [*chain.from_iterable(threads.map(create_all, range(6)))]
        assert not any("Traceback" in server.log for server in services)
    assert sorted(plant.id for plant in created) == [*range(100)]
    for number in range(SIZE):
        assert cluster.plants(number) == {*created}


def test_minority_is_503_until_the_others_return(cluster: Galera) -> None:
    """While two of three nodes are lost, a create is 503; afterwards it is 200 by itself."""
    with service(cluster, 0) as server:
        assert create(server) == 200
        with cluster.nodes[1].frozen(), cluster.nodes[2].frozen():
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
