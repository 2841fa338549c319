"""Where a request ends in the bytes that have arrived of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plantstore.server.worker._framing import ChunkedBody, EndlessBody, head_end
from tests.support.serving import chunk

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\nX: \xe9\t\r\n\r\n"


@given(st.lists(st.integers(0, len(HEAD) - 1)), st.binary())
def test_head_ends_at_the_first_empty_line(cuts: list[int], rest: bytes) -> None:
    """A head ends after its empty line, in whatever pieces it arrives, and whatever follows it."""
    data, seen = bytearray(), 0
    for cut in sorted({*cuts}):
        data[:] = HEAD[:cut]
        assert head_end(data, 0, seen) is None
        seen = len(data)
    assert head_end(bytearray(HEAD + rest), 0, seen) == len(HEAD)
    assert head_end(bytearray(b"PROXY" + HEAD + rest), 5, 0) == 5 + len(HEAD)


LAST = [b"0\r\n\r\n", b"000;x=y\r\n\r\n", b"0\r\nX: y\r\nZ: y\r\n\r\n"]


@given(
    st.lists(st.binary(min_size=1, max_size=30), max_size=5),
    st.sampled_from(["", ";x", " ;x=y"]),
    st.sampled_from(LAST),
    st.binary(),
)
def test_chunked_body(content: list[bytes], extension: str, last: bytes, rest: bytes) -> None:
    """A chunked body ends after its trailers, in whatever pieces it arrives."""
    chunks = [chunk(data).replace(b"\r\n", extension.encode() + b"\r\n", 1) for data in content]
    whole = b"head" + b"".join(chunks) + last
    body = ChunkedBody(4, sum(map(len, content)))
    for cut in range(4, len(whole)):
        assert body.end(bytearray(whole[:cut])) is None
    assert body.end(bytearray(whole + rest)) == len(whole)
    assert ChunkedBody(4, 150).end(bytearray(whole + rest)) == len(whole)


def test_chunked_body_of_many_chunks() -> None:
    """A body of more than some thousand chunks has no end, although its content is small."""
    assert ChunkedBody(0, 65536).end(bytearray(chunk(b"x") * 3000)) is None
    with pytest.raises(EndlessBody):
        ChunkedBody(0, 65536).end(bytearray(chunk(b"x") * 4000))


def test_chunked_body_over_the_limit() -> None:
    """A chunked body has no end as soon as more than the limit has arrived, and not earlier."""
    for before in (b"", chunk(b"12")):
        size = 3 if before else 5
        body = ChunkedBody(0, 5)
        assert body.end(bytearray(before + b"100\r\n" + b"x" * size)) is None
        with pytest.raises(EndlessBody):
            body.end(bytearray(before + b"100\r\n" + b"x" * (size + 1)))
