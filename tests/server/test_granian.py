"""Another WSGI server: granian responds as gunicorn does."""

import pytest

from tests.support.log import LINE
from tests.support.serving import Granian, Gunicorn, chunk, chunked, post

pytestmark = pytest.mark.server

NEW = b'{"id": %d, "name": "Monstera", "tag": "indoor"}'
REQUESTS = [
    post(NEW % 1),
    post(NEW % 1),
    chunked(chunk((NEW % 3)[:9]), chunk((NEW % 3)[9:]), chunk(b"")),
    post((NEW % 4).ljust(65_536)),
    post((NEW % 5).ljust(65_537)),
    post(b"", length=10**12),
    chunked(*[chunk(b" " * 4096)] * 17, chunk(b"")),
    post(b"").replace(b"Content-Length: 0\r\n", b""),
    post(b"{}"),
    post(b"["),
    post(NEW % 6, "Content-Encoding: gzip"),
    post(NEW % 6).replace(b"s3cret", b"wrong"),
    post(NEW % 6).replace(b"Bearer s3cret", b""),
    b"DELETE" + post(b"")[4:],
    b"OPTIONS" + post(b"")[4:],
    post(NEW % 6).replace(b"/plants", b"/plants/1"),
]


def test_granian_responses_equal_gunicorn() -> None:
    """For every kind of request granian sends the same status, headers and body as gunicorn.

    The lines of the service in the log have the same format.
    """
    with (
        Gunicorn(PLANTSTORE_TOKENS="s3cret") as gunicorn,
        Granian("--blocking-threads", "8", PLANTSTORE_TOKENS="s3cret") as granian,
    ):
        for request in REQUESTS:
            expected, response = gunicorn.request(request), granian.request(request)
            assert (response.status, response.body) == (expected.status, expected.body)
            for name in ("content-type", "content-length", "www-authenticate"):
                assert response.headers.get(name) == expected.headers.get(name)
            allowed = [{*it.headers.get("allow", "").split(", ")} for it in (expected, response)]
            assert allowed[0] == allowed[1]
        assert LINE.match(granian.wait_for(".*40002: .*")[0])
        assert "Traceback" not in granian.log
