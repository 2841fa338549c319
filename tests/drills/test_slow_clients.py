"""Clients with a token that are slow."""

import pytest

from tests.support.serving import Gunicorn, chunk, chunked, post
from tests.support.sites import TOKEN

pytestmark = pytest.mark.drill


def test_body_that_takes_too_long() -> None:
    """A body that takes longer than ten seconds to arrive is 40002, also one in chunks."""
    with (
        Gunicorn(PLANTSTORE_TOKENS=TOKEN) as server,
        server.connect() as sized,
        server.connect() as in_chunks,
    ):
        sized.send(post(b"", length=10_000))
        in_chunks.send(chunked(chunk(b" ")))
        while not (sized.has_response(0.1) and in_chunks.has_response(0.1)):
            sized.send_what_is_read(b" ")
            in_chunks.send_what_is_read(chunk(b" "))
        assert sized.receive().error == in_chunks.receive().error == 40002
