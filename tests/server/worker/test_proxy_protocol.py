"""The PROXY protocol, by which a load balancer names the client of a connection."""

import socket
import struct
from collections.abc import Iterator

import pytest

from tests.support.serving import Gunicorn, post, promptly
from tests.support.sites import TOKEN, new_rose

pytestmark = pytest.mark.server

ADDRESS = "203.0.113.7"
V1 = f"PROXY TCP4 {ADDRESS} 127.0.0.1 5000 80\r\n".encode()
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V2 = SIGNATURE + b"\x21\x11\0\x0c" + socket.inet_aton(ADDRESS) + bytes(4) + struct.pack(">HH", 1, 2)
# A load balancer that checks the health of the service.
LOCAL = SIGNATURE + b"\x20\0\0\0"
OPTIONS = ("--proxy-protocol=auto", "--access-logfile=-")


@pytest.fixture(scope="module")
def server() -> Iterator[Gunicorn]:
    """Run the service with both versions of the protocol."""
    with Gunicorn(*OPTIONS, PLANTSTORE_TOKENS=TOKEN) as server:
        yield server


@pytest.mark.parametrize(
    ("header", "address"), [(V1, ADDRESS), (V2, ADDRESS), (b"", "127.0.0.1"), (LOCAL, "127.0.0.1")]
)
def test_address_of_the_client(server: Gunicorn, header: bytes, address: str) -> None:
    """The address is that of the header, or its own, for all requests of the connection."""
    with server.connect() as connection:
        connection.send(header[:10])
        for sent in (header[10:], b"", b""):
            id = connection.request(sent + post(b"{}")).headers["x-request-id"]
            assert server.wait_for(rf"(?m)\] (\S*) \"POST .* {id}$")[1] == address


@pytest.mark.parametrize("header", [V1, V2, V1[:20], V2[:20], V2[:3], LOCAL])
def test_clients_that_send_only_the_header(server: Gunicorn, header: bytes) -> None:
    """Clients that send the header, or a part of it, and nothing else, do not block others."""
    with server.clients(16, header):
        assert promptly(server, V2 + post(new_rose())).status == 200


MALFORMED = [
    *(b"PROXY x\r\n", b"PROXY " + b"x" * 200, b"GET /\r\n", V2.replace(b"\x21", b"\x31")),
    *(b"PROXY TCP6 ::\0 ::2 1 2\r\n", b"PROXY TCP4 127.0.0.1 127.0.0.1\0 1 2\r\n"),
]


@pytest.mark.parametrize("header", [*MALFORMED, *((it + post(b"{}")) * 2 for it in (V1, V2))])
def test_malformed_header(server: Gunicorn, header: bytes) -> None:
    """A malformed header, or a second one on a connection, is an Error."""
    with server.connect() as connection:
        connection.send(header + b"\r\n\r\n")
        if b"POST" in header:
            assert connection.receive().error == 40003
        assert connection.receive().error == 40000


def test_header_of_a_client_that_is_no_proxy() -> None:
    """A client that is not one of the proxies cannot choose its address: 40300."""
    options = (*OPTIONS, "--proxy-allow-from=192.0.2.1")
    with Gunicorn(*options, PLANTSTORE_TOKENS=TOKEN) as server:
        assert promptly(server, V2 + post(new_rose())).error == 40300
