"""Reading a request body: errors 40001, 40002 and 41301."""

import tracemalloc
from collections.abc import Callable
from io import BytesIO
from itertools import product
from json import loads
from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from plantstore import MemoryStore
from tests.support.responses import check_error, send
from tests.support.sites import ROSE_JSON, make_site

INCOMPLETE = (
    "The body could not be read completely: it was cut short, took too long to arrive,"
    " had malformed or too many small chunks, or was already read by the site."
)
# The WSGI environment of a chunked request.
CHUNKED = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
EMPTY = "The body is empty. Send a JSON object."
JSON = "application/json"
# A request with a Content-Length, from two kinds of servers, and a chunked request. They are in one
# test: a fault in how a body is read is then one failure.
LENGTHS: list[dict[str, Any]] = [{}, {"wsgi.input_terminated": True}, CHUNKED]


@pytest.mark.parametrize(
    "content_type", [JSON, f"{JSON}; charset=latin1", "Application/JSON ; a", f"{JSON};"]
)
def test_content_type_json_is_accepted(client: FlaskClient, content_type: str) -> None:
    """Content-Type application/json is accepted in any letter case and with any parameters."""
    assert send(client, ROSE_JSON, content_type=content_type).status_code == 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("Content-Type", value) for value in (None, "", "text/plain", f"{JSON}x", f"{JSON}, x")),
        *(("Content-Encoding", coding) for coding in ("gzip", "identity")),
    ],
)
def test_other_type_is_refused(client: FlaskClient, name: str, value: str | None) -> None:
    """A body of another type, without a type, or with a Content-Encoding, is refused: 40001."""
    options: Any = {"content_type": value} if "T" in name else {"headers": {name: value}}
    check_error(send(client, ROSE_JSON, **options), 40001)


def post(site: Flask, body: bytes, **environ: Any) -> TestResponse:
    """Send a body unchanged to the store of a host site."""
    return send(site.test_client(), body, "/garden/plants", environ_overrides=environ)


# The parameter of the blueprint, the limit of the site, and the one that applies.
LIMITS: list[tuple[int | None, float | None, int]] = [
    *((None, None, 65536), (60, None, 60), (60, 10**7, 60), (60, 60, 60), (1, None, 1)),
    *((None, 60, 60), (None, 60.0, 60), (None, 0, 0)),
]


def test_limit_of_a_body_is_inclusive() -> None:
    """The lower one of max_body, by default 65,536 bytes, and MAX_CONTENT_LENGTH applies."""
    for (max_body, site_limit, limit), environ in product(LIMITS, LENGTHS):
        options: Any = {} if max_body is None else {"max_body": max_body}
        site = make_site(url_prefix="/garden", **options)
        site.config["MAX_CONTENT_LENGTH"] = site_limit
        for length in (limit + 1, 2 * limit + 2):
            message = check_error(post(site, b"0" * length, **environ), 41301)
            assert message.endswith(f" this service. Send at most {limit} bytes.")
        response = post(site, b"0" * limit, **environ)  # This is no NewPlant, but it is read.
        assert check_error(response, 40003 if limit == 1 else 40002) != INCOMPLETE


def test_limit_of_one_request_applies(site: Flask) -> None:
    """A limit that a host site's hook sets for one request (Flask 3.1) is 41301."""
    site.before_request(lambda: setattr(request, "max_content_length", 50))
    check_error(post(site, ROSE_JSON.ljust(51)), 41301)
    assert post(site, ROSE_JSON.ljust(50)).status_code == 200


class FailingInput(BytesIO):
    """An input that raises, as servers do for a malformed chunk."""

    def read(self, size: int | None = -1) -> bytes:
        raise ZeroDivisionError


@pytest.mark.parametrize("terminated", [True, False])
def test_body_that_is_declared_too_large_is_not_read(site: Flask, terminated: bool) -> None:
    """A body whose Content-Length is over the limit is 41301 without waiting for any of it."""
    environ = {"wsgi.input": FailingInput(), "wsgi.input_terminated": terminated}
    check_error(post(site, b"", CONTENT_LENGTH="65537", **environ), 41301)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"CONTENT_LENGTH": "500"}, INCOMPLETE),
        ({"wsgi.input": FailingInput()}, INCOMPLETE),
        # Input that the server does not terminate is not read without a length.
        (CHUNKED | {"wsgi.input_terminated": False}, EMPTY),
        *(({"CONTENT_LENGTH": length}, EMPTY) for length in ("", "-5", "1e3")),
    ],
)
def test_incomplete_body_is_refused(site: Flask, environ: dict[str, Any], message: str) -> None:
    """A body that is cut short, broken, or has no valid length is 40002, never a 500."""
    assert check_error(post(site, ROSE_JSON, **environ), 40002) == message
    assert post(site, ROSE_JSON).status_code == 200


class SmallReads(BytesIO):
    """An input that returns at most five bytes per call, and on which reading more blocks."""

    def __init__(self, body: bytes, most: int) -> None:
        super().__init__(body)
        self._most = most

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert size <= self._most - self.tell()
        return super().read(min(5, size))


NEW = b'{"id":1,"name":"Rose",'
# Bodies of about 64 KiB whose values take much memory, or whose faults do.
LARGE = {
    "lists in id": b'{"name":"","id":[%s1]}' % (b"[]," * 21_800),
    "nested lists": NEW + b'"x":[%s1]}' % (b"[[[[[[[[]]]]]]]]," * 3_800),
    "members": NEW + b"".join(b'"a%d":1,' % number for number in range(6_000)) + b'"b":1}',
    "escapes": b'{"id":1,"name":"%s"}' % (rb"\u0001" * 10_900),
    "exponent": b'{"name":"","id":1e999999999}'.ljust(2**16),
    "not UTF-8": "🌹".encode() + b"a" * 65_500 + b"\xff",
}


@pytest.mark.parametrize("body", LARGE.values(), ids=LARGE)
def test_memory_of_a_large_body(site: Flask, body: bytes) -> None:
    """A request with the largest body takes at most 4 MB of memory, whatever is in the body."""
    assert 50_000 < len(body) <= 2**16
    post(site, b"")  # What is initialised only once does not count.
    tracemalloc.start()
    try:
        post(site, body)
        assert tracemalloc.get_traced_memory()[1] <= 4_000_000
    finally:
        tracemalloc.stop()


Read = Callable[[], Any]
# The ways in which a site can read a body of a request. Each returns the body or its JSON value.
READS: dict[str, Read] = {
    "get_data": lambda: request.get_data(),
    "get_json": lambda: request.get_json(),
    "form": lambda: request.form or request.get_data(),
    "stream": lambda: request.stream.read(),
    "wsgi.input": lambda: request.environ["wsgi.input"].read(),
}
# What a site may do with a body before the blueprint reads it.
OPENS: list[Read] = [
    lambda: None,
    lambda: request.stream,
    lambda: request.form,
    lambda: request.get_data(),
    lambda: (request.get_json(silent=True), request.form),
]
# The ways in which a site may consume a body or a part of it, so that Flask cannot read it again.
CONSUMES: list[Read] = [
    lambda: request.stream.read(),
    lambda: request.get_data(cache=False),
    lambda: request.environ["wsgi.input"].read(5),
]


def hook(before: Read, after: Read = READS["get_data"]) -> tuple[Flask, MemoryStore, list[Any]]:
    """Return a site that reads each body before the view, its store, and what it reads after it."""
    store, seen = MemoryStore(), list[Any]()
    site = make_site(store=store, url_prefix="/garden")
    site.before_request(lambda: (before(), None)[1])

    @site.after_request
    def keep(response: Any) -> Any:
        seen.append(after())
        return response

    return site, store, seen


def test_site_may_read_the_body_before_and_after() -> None:
    """A site's hooks may read the body before and after; no byte beyond its end is read."""
    for opens, reads, environ in product(OPENS, READS.values(), LENGTHS):
        site, _, seen = hook(opens, reads)
        for limit, body in product((None, len(ROSE_JSON)), (ROSE_JSON, b"{}")):
            site.config["MAX_CONTENT_LENGTH"] = limit
            pieces = SmallReads(body, 2**17 if environ else len(body))
            response = post(site, body, **{**environ, "wsgi.input": pieces})
            assert response.status_code == (200 if (limit, body) == (None, ROSE_JSON) else 400)
            assert seen.pop() in (body, loads(body))


def test_body_that_a_site_has_consumed_is_refused() -> None:
    """If a host site's hook has consumed the body or a part of it, the response is 40002."""
    for consumes, environ in product(CONSUMES, LENGTHS):
        site, store, seen = hook(consumes)
        for limit in (None, len(ROSE_JSON)):
            site.config["MAX_CONTENT_LENGTH"] = limit
            check_error(post(site, ROSE_JSON, **environ), 40002)
        assert (len(seen), len(store)) == (2, 0)


def test_lower_limit_of_the_site_applies() -> None:
    """A body over the host site's limit is 41301; a hook that then reads it causes no 500."""
    # werkzeug truncates a chunked body for a hook that reads it before.
    requests = [(environ, OPENS[0]) for environ in LENGTHS] + [(CHUNKED, it) for it in OPENS]
    for environ, opens in requests:
        site, store, seen = hook(opens)
        site.config["MAX_CONTENT_LENGTH"] = 50
        for body in (ROSE_JSON.ljust(51), b" " * 50 + ROSE_JSON):
            check_error(post(site, body, **environ), 41301)
            assert seen.pop() in {b"", body[:50]}
        assert len(store) == 0


def test_site_hook_that_cannot_read_the_body(site: Flask, store: MemoryStore) -> None:
    """If a host site's hook cannot read the body, the Error is that of the plant store."""
    site.config["MAX_CONTENT_LENGTH"] = 50
    site.before_request(lambda: (request.get_data(), None)[1])
    check_error(post(site, ROSE_JSON.ljust(51)), 41301)
    assert check_error(post(site, ROSE_JSON, CONTENT_LENGTH="50"), 40002) == INCOMPLETE
    assert len(store) == 0


def test_site_hook_does_not_lift_max_body(site: Flask) -> None:
    """After a host site opened the body, no more than max_body plus one byte is read."""
    site.before_request(lambda: (request.form, None)[1])
    endless = BytesIO(b" " * 200_000)
    check_error(post(site, b"", **CHUNKED, **{"wsgi.input": endless}), 41301)
    assert endless.tell() == 65_537
