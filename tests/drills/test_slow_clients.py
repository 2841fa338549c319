"""Clients with a token that are slow: they get an error, and do not block others for long."""

from contextlib import ExitStack
from itertools import count

import pytest

from tests.support.serving import Gunicorn, chunk, chunked, post
from tests.support.sites import TOKEN, new_rose

pytestmark = pytest.mark.drill

# More than the threads of the service.
CLIENTS = 12


@pytest.mark.parametrize(
    ("start", "piece"),
    [(post(b"", length=10_000), b" "), (chunked(chunk(b" ")), chunk(b" "))],
    ids=["content_length", "chunked"],
)
def test_body_that_takes_too_long(start: bytes, piece: bytes) -> None:
    """A body that takes longer than ten seconds to arrive is 40002."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server, server.connect() as connection:
        connection.send(start)
        for _ in count():
            connection.send_what_is_read(piece)
            if connection.has_response(0.3):
                break
        assert connection.receive().error == 40002


def test_large_responses_that_are_not_read() -> None:
    """Clients that do not read a response of a megabyte do not block others."""
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_MAX_BODY": "2000000"}
    with ExitStack() as opened, Gunicorn(**settings) as server:
        for id in range(CLIENTS):
            connection = opened.enter_context(server.connect(unread=1))
            connection.send(post(b'{"id":%d,"name":"%s"}' % (id, b"x" * 1_000_000)))
        with server.connect() as other:
            other.limit(15)
            other.send(post(new_rose()))
            assert other.receive().status == 200
        assert "Traceback" not in server.log
