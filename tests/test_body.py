"""Reading a request body: errors 40001, 40002 and 41301."""

import gzip
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from json import loads
from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from plantstore import MemoryStore, create_app
from tests.support.responses import check_error, send
from tests.support.sites import ROSE_JSON, TOKEN, make_site

# The WSGI environment of a chunked request.
CHUNKED = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=latin-1",
        "Application/JSON",
        "application/json ; a=b",
        "application/json;",
    ],
)
def test_content_type_json_is_accepted(client: FlaskClient, content_type: str) -> None:
    """Content-Type application/json is accepted in any letter case and with any parameters."""
    assert send(client, ROSE_JSON, content_type=content_type).status_code == 200


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "application/json, text/plain",
        "application/jsonx",
        "application/problem+json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "x" * 5000,
    ],
)
def test_other_content_type_is_refused(client: FlaskClient, content_type: str | None) -> None:
    """A body with another Content-Type, or without one, is refused with 40001."""
    check_error(send(client, ROSE_JSON, content_type=content_type), 40001)


@pytest.mark.parametrize("coding", ["gzip", "br", "identity", "utf-8"])
def test_content_encoding_is_refused(client: FlaskClient, coding: str) -> None:
    """A body with a Content-Encoding is refused with 40001, whether it is encoded or not."""
    for body in (ROSE_JSON, gzip.compress(ROSE_JSON, mtime=0)):
        check_error(send(client, body, headers={"Content-Encoding": coding}), 40001)


@pytest.fixture
def small() -> FlaskClient:
    """Return a client of a service whose bodies may have 100 bytes."""
    return create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_MAX_BODY": 100}).test_client()


def test_max_body_is_inclusive(small: FlaskClient) -> None:
    """A body of exactly PLANTSTORE_MAX_BODY bytes is accepted; one more byte is 41301."""
    check_error(send(small, ROSE_JSON.ljust(101)), 41301)
    assert send(small, ROSE_JSON.ljust(100)).status_code == 200


class Unread(BytesIO):
    """An input that must not be read."""

    def read(self, size: int | None = -1) -> bytes:
        raise AssertionError("the body is read")


@pytest.mark.parametrize("terminated", [True, False])
def test_body_that_is_declared_too_large_is_not_read(small: FlaskClient, terminated: bool) -> None:
    """A body whose Content-Length is over the limit is 41301 without waiting for any of it."""
    environ = {
        "CONTENT_LENGTH": "101",
        "wsgi.input": Unread(),
        "wsgi.input_terminated": terminated,
    }
    check_error(send(small, b"", environ_overrides=environ), 41301)


def test_max_body_default(client: FlaskClient) -> None:
    """The default limit of a body is 65,536 bytes."""
    check_error(send(client, ROSE_JSON.ljust(65537)), 41301)
    assert send(client, ROSE_JSON.ljust(65536)).status_code == 200


def test_max_body_without_content_length(small: FlaskClient) -> None:
    """A body without Content-Length is refused with 41301 above the limit, and never truncated."""
    for length in (101, 10_000):
        check_error(send(small, ROSE_JSON.ljust(length), environ_overrides=CHUNKED), 41301)
    assert send(small, ROSE_JSON.ljust(100), environ_overrides=CHUNKED).status_code == 200


def test_missing_content_length_and_unterminated_input(client: FlaskClient) -> None:
    """Without Content-Length, input that the server does not terminate is not read: 40002."""
    unterminated = CHUNKED | {"wsgi.input_terminated": False}
    check_error(send(client, ROSE_JSON, environ_overrides=unterminated), 40002)


INCOMPLETE = (
    "The body could not be read completely: it was cut short, took too long to arrive,"
    " had malformed or too many small chunks, or was already read by the site."
)


def test_body_shorter_than_content_length_is_refused(client: FlaskClient) -> None:
    """A body shorter than its Content-Length is refused with 40002, even if it is valid JSON."""
    short = send(client, ROSE_JSON, environ_overrides={"CONTENT_LENGTH": "500"})
    assert check_error(short, 40002) == INCOMPLETE
    assert send(client, ROSE_JSON).status_code == 200


@pytest.mark.parametrize("length", ["", "-5", "x", "1e3"])
def test_invalid_content_length_means_no_body(client: FlaskClient, length: str) -> None:
    """An invalid Content-Length is read as no body: the response is 40002, never a 500."""
    check_error(send(client, ROSE_JSON, environ_overrides={"CONTENT_LENGTH": length}), 40002)


class SmallReads(BytesIO):
    """An input that returns at most five bytes per call, as some servers do.

    :param body: the bytes of the input.
    :param most: the number of bytes that may be read in all. On a socket, another byte blocks.
    """

    def __init__(self, body: bytes, most: int) -> None:
        super().__init__(body)
        self._most = most

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert size <= self._most - self.tell()
        return super().read(min(5, size))


def test_body_in_small_reads_is_complete(client: FlaskClient) -> None:
    """A body that the server delivers in small pieces is read completely, and no byte beyond it."""
    for environ in ({}, CHUNKED):
        body = b'{"id":%d,"name":"Rose"}' % len(environ)
        pieces = {"wsgi.input": SmallReads(body, 2**16 + 1 if environ else len(body))}
        assert send(client, body, environ_overrides=environ | pieces).status_code == 200


def test_max_body_of_one_byte() -> None:
    """The smallest limit is one byte."""
    site = make_site(max_body=1)
    check_error(send(site.test_client(), b"{}"), 41301)
    check_error(send(site.test_client(), b"1"), 40003)


def fill(start: bytes, unit: bytes, end: bytes) -> bytes:
    """Return a body of about 64 KiB."""
    return start + unit * ((2**16 - len(start) - len(end)) // len(unit)) + end


NEW = b'{"id":1,"name":"Rose",'
# Bodies whose values take much memory, or whose faults do.
LARGE = {
    "lists": fill(NEW + b'"x":[', b"[],", b"1]}"),
    "lists in id": fill(b'{"name":"","id":[', b"[],", b"1]}"),
    "nested lists": fill(NEW + b'"x":[', b"[[[[[[[[]]]]]]]],", b"1]}"),
    "objects": fill(NEW + b'"x":[', b"{},", b"1]}"),
    "members": NEW + b"".join(b'"a%d":1,' % number for number in range(6_000)) + b'"b":1}',
    "numbers": fill(NEW + b'"x":[', b"1,", b"1]}"),
    "escapes": fill(b'{"id":1,"name":"', rb"\u0001", b'"}'),
    "emoji": fill('{"id":1,"name":"🌹'.encode(), b"a", b'"}'),
    "digits": fill(b'{"name":"","id":', b"9", b"}"),
    "exponent": b'{"name":"","id":1e999999999}'.ljust(2**16),
    "bad end": fill('{"id":1,"name":"🌹'.encode(), b"a", b'"]'),
    "not UTF-8": fill("🌹".encode(), b"a", b"\xff"),
    "deep": b"[" * 2**16,
}


def peak_memory(client: FlaskClient, body: bytes, **environ: Any) -> int:
    """Return how many bytes of memory a request takes at most."""
    send(client, b"")  # What is initialised only once does not count.
    tracemalloc.start()
    try:
        send(client, body, environ_overrides=environ)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("body", LARGE.values(), ids=LARGE)
def test_memory_of_a_large_body(client: FlaskClient, body: bytes) -> None:
    """A request with the largest body takes at most 4 MB of memory, whatever is in the body."""
    assert len(body) <= 2**16
    assert peak_memory(client, body) <= 4_000_000


def test_memory_of_small_reads(client: FlaskClient) -> None:
    """A body that the server delivers in small pieces takes as much memory as in one piece."""
    body = ROSE_JSON.ljust(65_000)
    assert peak_memory(client, body, **{"wsgi.input": SmallReads(body, len(body))}) <= 6 * len(body)


class FailingInput(BytesIO):
    """An input that raises, as servers do for a malformed chunk."""

    def read(self, size: int | None = -1) -> bytes:
        raise ZeroDivisionError


def test_read_error_of_the_body_is_refused(client: FlaskClient) -> None:
    """When the server cannot read the body, the response is 40002, and the message says so."""
    response = send(client, ROSE_JSON, environ_overrides={"wsgi.input": FailingInput()})
    assert check_error(response, 40002) == INCOMPLETE


# The ways in which a site can read a body of a request. Each returns the body or its JSON value.
READS: dict[str, Callable[[], Any]] = {
    "get_data": lambda: request.get_data(),
    "data": lambda: request.data,
    "get_json": lambda: request.get_json(),
    "json": lambda: request.json,
    "form": lambda: request.form or request.get_data(),
    "files": lambda: request.files or request.get_data(),
    "values": lambda: request.values or request.get_data(),
    "stream": lambda: request.stream.read(),
    "wsgi.input": lambda: request.environ["wsgi.input"].read(),
}
# What a site may do with a body before the blueprint reads it.
OPENS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "open": lambda: request.stream,
    "form": lambda: request.form,
    "get_data": lambda: request.get_data(),
    "get_json": lambda: request.get_json(silent=True),
    "get_json and form": lambda: (request.get_json(silent=True), request.form),
}
# The ways in which a site may consume a body or a part of it, so that Flask cannot read it again.
CONSUMES: list[Callable[[], Any]] = [
    lambda: request.stream.read(),
    lambda: request.stream.read(5),
    lambda: request.get_data(cache=False),
    lambda: request.environ["wsgi.input"].read(5),
]
# The WSGI environments of a request with a Content-Length, from two kinds of servers, and of a
# chunked request.
LENGTHS = {"declared": {}, "terminated": {"wsgi.input_terminated": True}, "chunked": CHUNKED}
each_length = pytest.mark.parametrize("environ", LENGTHS.values(), ids=LENGTHS)


def before(site: Flask, action: Callable[[], Any]) -> None:
    """Let a site execute an action before the view."""

    @site.before_request
    def act() -> None:
        action()


def audit(site: Flask, read: Callable[[], Any]) -> list[Any]:
    """Let a site read each request body after the view; return the list of what it has read."""
    seen = []

    @site.after_request
    def keep(response: Any) -> Any:
        seen.append(read())
        return response

    return seen


@each_length
@pytest.mark.parametrize("opens", OPENS.values(), ids=OPENS)
@pytest.mark.parametrize("reads", READS.values(), ids=READS)
def test_site_may_read_the_body_before_and_after(
    site: Flask, opens: Callable[[], Any], reads: Callable[[], Any], environ: dict[str, Any]
) -> None:
    """A host site's hooks may read the complete body before and after, up to the site's limit."""
    before(site, opens)
    seen, client = audit(site, reads), site.test_client()
    for limit in (None, len(ROSE_JSON), 10_000):
        site.config["MAX_CONTENT_LENGTH"] = limit
        for body in (ROSE_JSON, b"{}"):
            response = send(client, body, "/garden/plants", environ_overrides=environ)
            assert response.status_code == (200 if (limit, body) == (None, ROSE_JSON) else 400)
            assert seen.pop() in (body, loads(body))


class OpenInput(BytesIO):
    """An input whose end the server does not mark: reading beyond it would block."""

    def read(self, size: int | None = -1) -> bytes:
        assert size == len(data := super().read(size)), "this read would block"
        return data


@pytest.mark.parametrize("opens", OPENS.values(), ids=OPENS)
def test_input_is_not_read_beyond_its_end(site: Flask, opens: Callable[[], Any]) -> None:
    """The input is never read beyond the Content-Length, also if a hook has read the body."""
    before(site, opens)
    environ = {"wsgi.input": OpenInput(ROSE_JSON), "CONTENT_LENGTH": str(len(ROSE_JSON))}
    response = send(site.test_client(), b"", "/garden/plants", environ_overrides=environ)
    assert response.status_code == 200


@each_length
@pytest.mark.parametrize("consumes", CONSUMES)
def test_body_that_a_site_has_consumed_is_refused(
    site: Flask, store: MemoryStore, consumes: Callable[[], Any], environ: dict[str, Any]
) -> None:
    """If a host site's hook has consumed the body or a part of it, the response is 40002."""
    before(site, consumes)
    seen, client = audit(site, request_data), site.test_client()
    for limit in (None, len(ROSE_JSON)):
        site.config["MAX_CONTENT_LENGTH"] = limit
        response = send(client, ROSE_JSON, "/garden/plants", environ_overrides=environ)
        check_error(response, 40002)
    assert len(seen) == 2
    assert len(store) == 0


def request_data() -> bytes:
    """Return the body of the current request."""
    return request.get_data()


@each_length
@pytest.mark.parametrize("limit", [0, 50, 50.0])
def test_lower_limit_of_the_site_applies(
    site: Flask, store: MemoryStore, limit: float, environ: dict[str, Any]
) -> None:
    """A body over the host site's MAX_CONTENT_LENGTH is 41301, and the plant is not stored.

    A hook of the site that then reads the body does not turn the response into a 500.
    """
    site.config["MAX_CONTENT_LENGTH"] = limit
    seen, padded = audit(site, request_data), ROSE_JSON.ljust(51)
    response = send(site.test_client(), padded, "/garden/plants", environ_overrides=environ)
    check_error(response, 41301)
    assert (seen, len(store)) == ([b""], 0)


def test_site_hook_that_cannot_read_the_body(site: Flask, store: MemoryStore) -> None:
    """If a host site's hook cannot read the body, the Error is that of the plant store."""
    site.config["MAX_CONTENT_LENGTH"] = 50
    before(site, request_data)
    client = site.test_client()
    check_error(send(client, ROSE_JSON.ljust(51), "/garden/plants"), 41301)
    short = {"CONTENT_LENGTH": "50"}
    response = send(client, ROSE_JSON, "/garden/plants", environ_overrides=short)
    assert check_error(response, 40002) == INCOMPLETE
    assert len(store) == 0


def test_limit_of_the_site_is_inclusive(site: Flask) -> None:
    """A body of exactly the host site's MAX_CONTENT_LENGTH is accepted, chunked or not."""
    site.config["MAX_CONTENT_LENGTH"] = 50
    for number, environ in enumerate(LENGTHS.values()):
        body = (b'{"id":%d,"name":"Rose"}' % number).ljust(50)
        response = send(site.test_client(), body, "/garden/plants", environ_overrides=environ)
        assert response.status_code == 200


@pytest.mark.parametrize("opens", OPENS.values(), ids=OPENS)
def test_lower_site_limit_never_truncates_the_body(
    site: Flask, store: MemoryStore, opens: Callable[[], Any]
) -> None:
    """A chunked body over the host site's limit is 41301, also if a hook has read it before.

    werkzeug truncates such a body for the hook.
    """
    site.config["MAX_CONTENT_LENGTH"] = 50
    before(site, opens)
    for body in (ROSE_JSON.ljust(51), b" " * 50 + ROSE_JSON):
        response = send(site.test_client(), body, "/garden/plants", environ_overrides=CHUNKED)
        check_error(response, 41301)
    assert len(store) == 0


def test_limit_of_one_request_applies(site: Flask) -> None:
    """A limit that a host site's hook sets for one request (Flask 3.1) is 41301."""

    @site.before_request
    def limit() -> None:
        request.max_content_length = 50

    check_error(send(site.test_client(), ROSE_JSON.ljust(51), "/garden/plants"), 41301)
    assert send(site.test_client(), ROSE_JSON.ljust(50), "/garden/plants").status_code == 200


def test_site_hook_does_not_lift_max_body(site: Flask) -> None:
    """After a host site opened the body, no more than max_body plus one byte is read."""

    @site.before_request
    def open_body() -> None:
        assert not request.form

    endless = BytesIO(b" " * 200_000)
    environ = CHUNKED | {"wsgi.input": endless}
    response = send(site.test_client(), b"", "/garden/plants", environ_overrides=environ)
    check_error(response, 41301)
    assert endless.tell() == 65_537


def test_higher_limit_of_the_site_does_not_lift_max_body(store: MemoryStore) -> None:
    """A higher MAX_CONTENT_LENGTH of the host site does not change the blueprint's max_body."""
    site = make_site(store=store, max_body=100)
    site.config["MAX_CONTENT_LENGTH"] = 10_000_000
    assert send(site.test_client(), ROSE_JSON.ljust(100)).status_code == 200
    check_error(send(site.test_client(), ROSE_JSON.ljust(101)), 41301)
