"""Headers that are nearly right."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plantstore.blueprint import OPERATIONS
from tests.support.serving import Gunicorn
from tests.support.sites import TOKEN

pytestmark = pytest.mark.server

# The headers that a response depends on, or that a library could parse, with a right value.
DATE = b"Mon, 01 Jan 2024 00:00:00 GMT"
HEADERS = {
    b"Accept": b"text/html;q=0.9, */*",
    b"Accept-Encoding": b"gzip;q=0.5, identity",
    b"Access-Control-Request-Headers": b"authorization, content-type",
    b"Access-Control-Request-Method": b"POST",
    b"Authorization": b"Bearer s3cret",
    b"Connection": b"keep-alive, close",
    b"Content-Encoding": b"gzip",
    b"Content-Length": b"2",
    b"Content-Type": b"application/json; charset=utf-8",
    b"Cookie": b'session=a.b.c; x="\\012"',
    b"Expect": b"100-continue",
    b"Host": b"x:80",
    b"If-Match": b'W/"x", *',
    b"If-Modified-Since": DATE,
    b"If-None-Match": b'W/"x", "y"',
    b"If-Range": DATE,
    b"If-Unmodified-Since": DATE,
    b"Origin": b"https://x:80",
    b"Range": b"bytes=0-1,-5",
    b"Transfer-Encoding": b"gzip, chunked",
    b"Upgrade": b"websocket",
    b"X-Forwarded-For": b"::1, 192.0.2.1:80",
    b"X-Forwarded-Host": b"x",
    b"X-Forwarded-Proto": b"https",
    b"X-Request-ID": b"a-1",
}
PATHS = b"plants plants/1 openapi.json docs docs/index.css healthz metrics".split()
# What is inserted: what means something in a header, numbers and dates out of range, and any bytes.
PIECES = b', ; = : " \\ / * % - + ( [ @ # \t \0 \x80 \xff \r\n \r\n\r\n +9999999999999'.split(b" ")
PIECES += [b"", b"9" * 30, b"-1", b"1_0", b"0x5", b"\xb2", b"xn--", b"..", b"a" * 300, DATE]
Change = tuple[int, int, bytes]
NAME = st.sampled_from([*HEADERS])
CHANGE = st.tuples(
    st.integers(0, 40), st.integers(0, 4), st.sampled_from(PIECES) | st.binary(max_size=4)
)


@pytest.fixture(scope="module")
def server() -> Iterator[Gunicorn]:
    """Run the service with all operations and pages."""
    settings = {"PLANTSTORE_OPERATIONS": ",".join(OPERATIONS), "PLANTSTORE_METRICS": "1"}
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN, **settings) as server:
        yield server
        assert "Traceback" not in server.log
        assert TOKEN not in server.log


def changed(value: bytes, changes: list[Change]) -> bytes:
    """Return a value in which parts are replaced."""
    for place, size, piece in changes:
        start = place % (len(value) + 1)
        value = value[:start] + piece + value[start + size :]
    return value


METHODS = st.sampled_from([b"GET", b"POST", b"PUT", b"OPTIONS", b"HEAD"])
STARTS = st.tuples(METHODS, st.sampled_from(PATHS), st.sampled_from([b"0", b"1"]))
WRONG = st.dictionaries(NAME, st.lists(CHANGE, min_size=1, max_size=2), min_size=1, max_size=2)


@given(STARTS.map(b"%b /%b HTTP/1.%b\r\n".__mod__), st.lists(NAME, max_size=3), WRONG)
def test_mutated_headers(
    server: Gunicorn, start: bytes, right: list[bytes], wrong: dict[bytes, list[Change]]
) -> None:
    """No value of a header makes the service fail, or writes a traceback or a token to its log."""
    fields = [(name, HEADERS[name]) for name in (b"Host", b"Authorization", *right)]
    fields += [(name, changed(HEADERS[name], changes)) for name, changes in wrong.items()]
    lines = [b"%b: %b\r\n" % field for field in dict(fields).items()]
    with server.connect() as connection:
        connection.send_what_is_read(b"".join([start, *lines, b"\r\n"]) + b"{}")
        connection.finish()
        received = connection.receive_all()
    assert not re.search(rb"HTTP/1\.[01] 5", received), received
