"""Slow clients and malformed framing, directly and through nginx."""

import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from itertools import count
from typing import NamedTuple

import pytest

from plantstore import open_store
from tests.support.clients import Row, timed
from tests.support.front import NGINX, front
from tests.support.serving import Connection, Gunicorn, Response, post
from tests.support.sites import TOKEN, new_rose

pytestmark = pytest.mark.drill

SLOW = 1000
# The time in which 99 of 100 well-behaved clients get their response, in seconds.
P99 = 1.0
HALVES = (post(new_rose())[:60], post(b"", length=10))


class Way(NamedTuple):
    """A way to the service: directly, or through nginx.

    :param prefix: the prefix of the path.
    """

    connect: Callable[[], Connection]
    prefix: bytes

    def path(self, request: bytes) -> bytes:
        """Return a request with the path of the service."""
        return request.replace(b"/plants", self.prefix + b"/plants")


@contextmanager
def serving(url: str, has_nginx: bool) -> Iterator[Way]:
    """Run the service, directly or behind nginx."""
    if has_nginx and NGINX is None:
        pytest.skip("apt-get install nginx")
    # All requests of this drill have few addresses.
    limits = {"rate=100r/s": "rate=10000r/s", "connections 100": "connections 10000"}
    with (
        Gunicorn("-w", "2", PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_STORE=url) as server,
        front(server.port, limits) if has_nginx else nullcontext(server) as nearest,
    ):
        yield Way(nearest.connect, b"/garden" if has_nginx else b"")
        assert "Traceback" not in server.log


WAYS = pytest.mark.parametrize("has_nginx", [False, True], ids=["direct", "through_nginx"])


@WAYS
def test_slow_clients(url: str, has_nginx: bool, row: Row) -> None:
    """With 1,000 clients that send a part of a request, 99 of 100 others are served in a second."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))

    def send(request: bytes) -> Connection:
        connection = way.connect()
        connection.send(way.path(request))
        return connection

    def create(id: int) -> None:
        with send(post(b'{"id":%d,"name":"Rose"}' % id)) as connection:
            assert connection.receive().status == 200

    ids = {*range(200)}
    with serving(url, has_nginx) as way, ExitStack() as slow, ThreadPoolExecutor(8) as threads:
        for connection in threads.map(send, HALVES * (SLOW // 2)):
            slow.enter_context(connection)
        seconds = sorted(timed(partial(create, id))[1] for id in ids)
    stored = stored_ids(url)
    row(len(ids), len(ids), len(stored), len(ids - stored), 0, slowest=seconds[-1])
    assert stored == ids
    assert seconds[197] < P99, seconds[190:]


def stored_ids(url: str) -> set[int]:
    """Return the ids that are stored."""
    with open_store(url) as store:
        return {plant.id for plant in store}


# What determines the size of a body, in ways that programs understand differently.
FRAMINGS = [
    b"Content-Length: %(all)d\r\nTransfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: %(one)d\r\n",
    b"Content-Length: %(one)d\r\nContent-Length: %(all)d\r\n",
    *(b"Content-Length: %(all)d, %(one)d\r\n", b"Content-Length: +%(one)d\r\n"),
    *(b"Content-Length: 0x10\r\n", b"Content-Length: -1\r\n", b"Content-Length : %(one)d\r\n"),
    *(b"Content-Length:\r\n %(one)d\r\n", b"Transfer-Encoding: xchunked\r\n"),
    b"Transfer-Encoding : chunked\r\nContent-Length: %(all)d\r\n",
    b"Transfer-Encoding:\x0bchunked\r\nContent-Length: %(all)d\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    *(b"Transfer-Encoding: identity, chunked\r\n", b"Transfer-Encoding: chunked, identity\r\n"),
    b"X: y\nTransfer-Encoding: chunked\r\nContent-Length: %(all)d\r\n",
    b"X: y\rTransfer-Encoding: chunked\r\nContent-Length: %(all)d\r\n",
    b"\nContent-Length: %(all)d\r\n",
    b"\0Transfer-Encoding: chunked\r\nContent-Length: %(all)d\r\n",
]
# The sizes of a chunk, in ways that programs understand differently.
SIZES = [b"%x;\n", b"+%x", b"0x%x", b"%x \t", b"-%x", b"fffffffffffffff%x", b"%x\n", b'%x;x="\r\n"']

# The first id of two valid requests.
VALID = 1_000_000


def attack(framing: bytes, size: bytes, first: int) -> bytes:
    """Return a create request that may be understood as two, for two ids from the first one on."""
    one = b'{"id":%d,"name":"Rose"}' % first
    hidden = post(b'{"id":%d,"name":"Rose"}' % (first + 1))
    body = (size % len(one)) + b"\r\n" + one + b"\r\n0\r\n\r\n" + hidden
    head = post(b"").replace(
        b"Content-Length: 0\r\n", framing % {b"one": len(one), b"all": len(body)}
    )
    return head + body


@WAYS
def test_malformed_framing(url: str, has_nginx: bool, row: Row) -> None:
    """Of a request whose size is ambiguous, at most one plant is stored; no response is a 500."""
    acknowledged, slowest = {VALID, VALID + 1}, 0.0
    attacks = [(framing, b"%x") for framing in FRAMINGS]
    attacks += [(b"Transfer-Encoding: chunked\r\n", size) for size in SIZES]
    with serving(url, has_nginx) as served:
        for id, (framing, size) in zip(count(0, 10), attacks, strict=False):
            request = served.path(attack(framing, size, id))
            responses, seconds = timed(partial(responses_to, served, request))
            slowest = max(slowest, seconds)
            for number, response in enumerate(responses):
                assert response.status < 500
                if response.status == 200:
                    acknowledged.add(id + number)
        # Two valid requests in the same form: the service still serves, and both are stored.
        with served.connect() as connection:
            connection.send(served.path(attack(b"Transfer-Encoding: chunked\r\n", b"%x", VALID)))
            assert [connection.receive().status for _ in range(2)] == [200, 200]
    stored, lost = stored_ids(url), acknowledged - stored_ids(url)
    requests, failed = len(attacks) + 2, len(attacks) + 2 - len(acknowledged)
    row(requests, len(acknowledged), len(stored), len(lost), failed, slowest=slowest)
    assert lost == set()
    assert {id for id in stored if id % 10 == 1 and id - 1 in stored} == {VALID + 1}


def responses_to(way: Way, request: bytes) -> list[Response]:
    """Send a request; return the responses until the connection is closed."""
    responses: list[Response] = []
    with suppress(ConnectionError, IndexError, TimeoutError), way.connect() as connection:
        connection.limit(20)
        connection.send_what_is_read(request)
        connection.finish()
        while True:
            responses.append(connection.receive())
    return responses
