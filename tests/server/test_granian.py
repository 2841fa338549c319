"""Another WSGI server: granian responds as gunicorn does."""

from collections.abc import Iterator

import pytest

from tests.support.race import race
from tests.support.serving import LIMIT, Granian, Gunicorn, Response, Server, chunk, chunked, post

pytestmark = pytest.mark.server

# A create request body, without its id.
NEW = b'{"id": %d, "name": "Monstera", "tag": "indoor"}'
LARGEST = 65536

# Each list of requests is sent in order, and does not depend on the other lists.
REQUESTS = {
    "create": [post(NEW % 1)],
    "duplicate": [post(NEW % 2), post(NEW % 2)],
    "chunked": [chunked(chunk((NEW % 3)[:9]), chunk((NEW % 3)[9:]), chunk(b""))],
    "largest body": [post((NEW % 4).ljust(LARGEST))],
    "body too large": [post((NEW % 5).ljust(LARGEST + 1))],
    "content_length too large": [post(b"", length=10**12)],
    "chunks too large": [chunked(*[chunk(b" " * 4096)] * 17, chunk(b""))],
    "no content_length": [post(b"").replace(b"Content-Length: 0\r\n", b"")],
    "invalid plant": [post(b"{}")],
    "invalid JSON": [post(b"[")],
    "content_encoding": [post(NEW % 6, "Content-Encoding: gzip")],
    "wrong token": [post(NEW % 6).replace(b"s3cret", b"wrong")],
    "no token": [post(NEW % 6).replace(b"Bearer s3cret", b"")],
    "method_not_allowed": [b"DELETE" + post(b"")[4:]],
    "OPTIONS": [b"OPTIONS" + post(b"")[4:]],
    "not_found": [post(NEW % 6).replace(b"/plants", b"/plants/1")],
}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """Run the standalone service under gunicorn and under granian."""
    with (
        Gunicorn(PLANTSTORE_TOKENS="s3cret") as gunicorn,
        Granian("--blocking-threads", "8", PLANTSTORE_TOKENS="s3cret") as granian,
    ):
        yield gunicorn, granian
        assert "Traceback" not in granian.log


@pytest.mark.parametrize("kind", REQUESTS)
def test_granian_responses_equal_gunicorn(servers: tuple[Server, Server], kind: str) -> None:
    """For every kind of request granian sends the same status, headers and body as gunicorn."""
    for request in REQUESTS[kind]:
        gunicorn, granian = (server.request(request) for server in servers)
        assert granian.status == gunicorn.status
        assert granian.body == gunicorn.body
        for name in ("content-type", "content-length", "www-authenticate"):
            assert granian.headers.get(name) == gunicorn.headers.get(name)
        assert allowed(granian) == allowed(gunicorn)


def allowed(response: Response) -> list[str]:
    """Return the methods in Allow. Their order is that of a set."""
    return sorted(response.headers.get("allow", "").split(", "))


def test_granian_concurrent_duplicates() -> None:
    """When clients create the same ids at granian, each id is acknowledged once."""
    with Granian("--blocking-threads", "8", PLANTSTORE_TOKENS="s3cret") as server:
        created = race([server], clients=16, ids=50)
    assert [id for id, _ in created] == [*range(50)]


def test_granian_without_a_token_does_not_start() -> None:
    """Without a token granian does not start, and the log says what to set."""
    server = Granian()
    assert server.process.wait(LIMIT) != 0
    assert "no token is configured: set PLANTSTORE_TOKENS" in server.log
    server.stop()
