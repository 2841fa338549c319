"""Each response arrives within five seconds, also when the database server is slow or silent."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.clients import LATEST, timed
from tests.support.databases import SERVERS, Place, only
from tests.support.proxy import proxy
from tests.support.serving import LIMIT, Gunicorn, post
from tests.support.sql import environment, with_options

pytestmark = pytest.mark.drill

# The delay of each packet in seconds.
DELAY = 0.9


def create(server: Gunicorn, id: int) -> int:
    """Create a plant; return the status of the response, which must be in time."""
    response, seconds = timed(lambda: server.request(post(b'{"id":%d,"name":"Rose"}' % id)))
    assert seconds < LATEST
    return response.status


def create_until_it_succeeds(server: Gunicorn, first: int = 0, in_a_row: int = 1) -> None:
    """Create plants until so many in a row have succeeded; until then, each other is 503."""
    statuses, end = [0], time.monotonic() + LIMIT
    while statuses[-in_a_row:] != [200] * in_a_row:
        statuses.append(create(server, first + len(statuses)))
        assert time.monotonic() < end, statuses
    assert {*statuses[1:]} <= {503, 200}


@only(*SERVERS)
def test_slow_server(place: Place) -> None:
    """Behind a network with late packets, each response is in time, and creates soon succeed.

    The second create in a row succeeds too, and everything is fast as soon as the network is.
    """
    with proxy(place) as slow:
        # Four delays take longer than PostgreSQL's default timeout of 3 seconds to connect.
        url = with_options(slow.url, connect_timeout="10")
        with Gunicorn("-w", "1", **environment(Place(url))) as server:
            slow.response_delay = DELAY
            create_until_it_succeeds(server)
            assert create(server, -1) == 200
            with ThreadPoolExecutor(4) as threads:
                create_five = lambda first: create_until_it_succeeds(server, first, 5)  # noqa: E731
                list(threads.map(create_five, range(1000, 5000, 1000)))
            slow.request_delay = DELAY
            create_until_it_succeeds(server, 5000)
            slow.response_delay = slow.request_delay = 0
            assert create(server, -2) == 200
            assert "50001" not in server.log
