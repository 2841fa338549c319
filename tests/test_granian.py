"""Any WSGI server: granian answers as gunicorn does, over a socket."""

from collections.abc import Iterator

import pytest

from .race import race
from .serving import LIMIT, Granian, Gunicorn, Server, chunk, chunked, post

NEW = b'{"id": %d, "name": "Monstera", "tag": "indoor"}'
MEBIBYTE = 1048576

ASKED = {
    "create": post(NEW % 8001),
    "create again": post(NEW % 8001),
    "chunked": chunked(chunk((NEW % 8002)[:9]), chunk((NEW % 8002)[9:]), chunk(b"")),
    "largest": post((NEW % 8003).ljust(MEBIBYTE)),
    "too large": post((NEW % 8004).ljust(MEBIBYTE + 1)),
    "too large by its length": post(b"", length=10**12),
    "too large in chunks": chunked(*[chunk(b" " * 65536)] * 17, chunk(b"")),
    "no length": post(b"").replace(b"Content-Length: 0\r\n", b""),
    "no plant": post(b"{}"),
    "no JSON": post(b"["),
    "encoded": post(NEW % 8005, "Content-Encoding: gzip"),
    "stranger": post(NEW % 8005).replace(b"s3cret", b"wrong"),
    "no token": post(NEW % 8005).replace(b"Bearer s3cret", b""),
    "another method": b"DELETE" + post(b"")[4:],
    "preflight": b"OPTIONS" + post(b"")[4:],
    "another path": post(NEW % 8005).replace(b"/plants", b"/plants/1"),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """Serve the standalone service by a real gunicorn and by a real granian."""
    with (
        Gunicorn(PLANTSTORE_TOKENS="s3cret") as gunicorn,
        Granian("--blocking-threads", "8", PLANTSTORE_TOKENS="s3cret") as granian,
    ):
        yield gunicorn, granian
        assert "Traceback" not in granian.log


@pytest.mark.parametrize("asked", ASKED)
def test_granian_responses_equal_gunicorn(servers: tuple[Server, Server], asked: str) -> None:
    """For every kind of request granian sends the same status, headers and body as gunicorn."""
    here, there = (server.request(ASKED[asked]) for server in servers)
    assert there.status == here.status
    assert there.body == here.body
    for name in ("content-type", "content-length", "www-authenticate", "allow"):
        assert there.headers.get(name) == here.headers.get(name)


def test_granian_concurrent_duplicates() -> None:
    """When clients create the same ids at granian, each id is acknowledged once."""
    with Granian("--blocking-threads", "8", PLANTSTORE_TOKENS="s3cret") as server:
        won = race([server], clients=16, ids=50)
    assert [id for id, _ in won] == [*range(50)]


def test_granian_without_a_token_does_not_start() -> None:
    """Without a token granian does not start, and the log says what to set."""
    server = Granian()
    assert server.process.wait(LIMIT) != 0
    assert "no token is configured: set PLANTSTORE_TOKENS" in server.log
    server.stop()
