"""Where a request ends in the bytes that have arrived of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plantstore.server.worker._framing import (
    MAX_HEAD,
    ChunkedBody,
    EndlessBody,
    head_end,
    proxy_header_end,
    sized_body,
)
from plantstore.server.worker._refusals import RefusedRequest
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


REFUSED = [
    *((data, 40000) for data in (b"\x16", b"\x16\x03\x01\x02\0\x01", b"\n", b"GET / HTTP/1.1\rH")),
    *((b"GET / HTTP/1.1" + end, 40000) for end in (b"\nHost: x\n\n", b"\r\nHost: x\n")),
    *((b"GET / HTTP/1.1\r\nX: " + end, 40000) for end in (b"\0", b"\x7f")),
    *((b"x" * MAX_HEAD, 43100), (b"x" * (MAX_HEAD - 3) + b"\r\n\r\n", 43100)),
]


@pytest.mark.parametrize(("data", "error"), REFUSED)
def test_head_that_cannot_become_right(data: bytes, error: int) -> None:
    """A head is refused at the first byte that cannot be right, and at its largest size."""
    for seen in (0, len(data) - 1):
        with pytest.raises(RefusedRequest) as caught:
            head_end(bytearray(data), 0, seen)
        assert caught.value.number == error


V2 = b"\r\n\r\n\0\r\nQUIT\n"


V1 = b"PROXY TCP4 203.0.113.7 127.0.0.1 5000 80\r\n"


def test_header_of_the_proxy_protocol() -> None:
    """The header of the PROXY protocol ends where it says, in whatever pieces it arrives.

    A connection without it begins with a head.
    """
    for header in (V1, V2 + b"\x21\x11\0\x0c" + bytes(12), V2 + b"\x20\0\0\0"):
        for cut in range(len(header)):
            assert proxy_header_end(bytearray(header[:cut])) is None
        assert proxy_header_end(bytearray(header + HEAD)) == len(header)
    for data in (b"GET", b"P ", b"\r\nGET", b"PROXY " + b"x" * 200):
        assert proxy_header_end(bytearray(data)) == 0


def test_body_with_a_length() -> None:
    """A body with a Content-Length ends there; one over the limit has no end."""
    end = sized_body(3, 4, 4)
    assert end(bytearray(6)) is None
    assert end(bytearray(7)) == end(bytearray(9)) == 7
    with pytest.raises(EndlessBody):
        sized_body(3, 4, 5)(bytearray())


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


def test_chunked_body_over_the_limit() -> None:
    """A chunked body has no end as soon as more than the limit has arrived, and not earlier."""
    for before in (b"", chunk(b"12")):
        size = 3 if before else 5
        body = ChunkedBody(0, 5)
        assert body.end(bytearray(before + b"100\r\n" + b"x" * size)) is None
        with pytest.raises(EndlessBody):
            body.end(bytearray(before + b"100\r\n" + b"x" * (size + 1)))


MALFORMED = [
    *(b"x\r\n", b"\r\n", b"-1\r\n", b"0x1\r\n", b"1_0\r\n", b" 1\r\n", b"1 x\r\n"),
    *(b"1\n\r\n", b"1 \r\n"),
    *(b"1;a\rb\r\n", b"1;a=\0\r\n", b"0\r\nnot a field\r\n\r\n", b"3\r\nabcd\r\n"),
    b"0\r\nX: y\n\nGET /plants HTTP/1.1\r\nHost: x\r\n\r\n",
    *(b"1" * 16 + b"\r\n", b"1;" + b"x" * 8192, b"1\r\n \r\n" * 12_000),
]


@pytest.mark.parametrize("data", MALFORMED)
def test_malformed_chunk(data: bytes) -> None:
    """A chunked body that is malformed, or mostly not content, has no end."""
    with pytest.raises(EndlessBody):
        ChunkedBody(0, 1000).end(bytearray(data))


def test_trailers_that_are_too_large() -> None:
    """Trailers of more than 8 KiB are refused."""
    with pytest.raises(RefusedRequest) as caught:
        ChunkedBody(0, 1000).end(bytearray(b"0\r\n" + b"X: y\r\n" * 2000))
    assert caught.value.number == 43100
