"""How a body is read: errors 40001, 40002 and 41301."""

import gzip
from io import BytesIO
from typing import Any

import pytest
from flask import Flask, request
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from plantstore import MemoryStore, create_app

from .conftest import check_error
from .sites import BEARER, ROSE_JSON, TOKEN, make_site

CHUNKED = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}


def send(client: FlaskClient, body: Any, path: str = "/plants", **options: Any) -> TestResponse:
    """Send a body as it stands, as application/json unless told otherwise."""
    options.setdefault("content_type", "application/json")
    headers = BEARER | options.pop("headers", {})
    return client.post(path, data=body, headers=headers, **options)


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
def test_json_is_read(client: FlaskClient, content_type: str) -> None:
    """A body of application/json is read, in any letter case and with any parameters."""
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
def test_other_media_types_are_refused(client: FlaskClient, content_type: str | None) -> None:
    """A body of another media type, or of none, is refused with 40001."""
    check_error(send(client, ROSE_JSON, content_type=content_type), 40001)


@pytest.mark.parametrize("coding", ["gzip", "br", "identity", "utf-8"])
def test_a_content_encoding_is_refused(client: FlaskClient, coding: str) -> None:
    """A body with a Content-Encoding is refused with 40001, whether or not it is encoded."""
    for body in (ROSE_JSON, gzip.compress(ROSE_JSON)):
        check_error(send(client, body, headers={"Content-Encoding": coding}), 40001)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"id":1,"name":"Rose"',
        b'{"id":1,"name":"Rose"}{}',
        b'{"id":1,"name":"Rose",}',
        b'{"id":1,"name":NaN}',
        b'{"id":Infinity,"name":"Rose"}',
        b'{"id":01,"name":"Rose"}',
        b'{"id":1e999,"name":"Rose"}',
        b"{'id':1,'name':'Rose'}",
        b'{"id":1,"name":"\\ud800"}',
        b'{"id":1,"name":"\\udc00\\ud800"}',
        b'{"id":1,"name":"\xed\xa0\x80"}',
        b'{"id":1,"name":"\xff"}',
        b'{"id":1,"name":"a\nb"}',
        b"\xef\xbb\xbf" + ROSE_JSON,
        ROSE_JSON.decode().encode("utf-16"),
        ROSE_JSON.decode().encode("utf-16-le"),
        ROSE_JSON.decode().encode("utf-32"),
        gzip.compress(ROSE_JSON),
        b"id=1&name=Rose",
        b"[" * 100_000,
        b"[" * 5000 + b"]" * 5000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
)
def test_what_is_not_json_is_refused(client: FlaskClient, body: bytes) -> None:
    """A body that is not JSON in UTF-8, or too deep or large in numbers, is refused with 40002."""
    check_error(send(client, body), 40002)
    assert send(client, ROSE_JSON).status_code == 200


def test_white_space_around_is_fine(client: FlaskClient) -> None:
    """White space around the JSON text is no fault (RFC 8259 section 2)."""
    assert send(client, b" \t\r\n" + ROSE_JSON + b"\n").status_code == 200


@pytest.fixture
def small() -> FlaskClient:
    """Return a client of a service that takes bodies of 100 bytes."""
    return create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_MAX_BODY": 100}).test_client()


def test_the_limit_is_the_last_byte_taken(small: FlaskClient) -> None:
    """A body as long as the limit is taken, and one byte more is refused with 41301."""
    check_error(send(small, ROSE_JSON.ljust(101)), 41301)
    assert send(small, ROSE_JSON.ljust(100)).status_code == 200


def test_the_limit_is_a_mebibyte_by_default(client: FlaskClient) -> None:
    """Unless set otherwise, a body may be 1,048,576 bytes long."""
    check_error(send(client, ROSE_JSON.ljust(1048577)), 41301)
    assert send(client, ROSE_JSON.ljust(1048576)).status_code == 200


def test_the_limit_holds_without_a_length(small: FlaskClient) -> None:
    """A body of no declared length is refused with 41301 past the limit, not cut there."""
    for length in (101, 10_000):
        check_error(send(small, ROSE_JSON.ljust(length), environ_overrides=CHUNKED), 41301)
    assert send(small, ROSE_JSON.ljust(100), environ_overrides=CHUNKED).status_code == 200


def test_a_body_whose_end_is_unknown_is_none(client: FlaskClient) -> None:
    """Where the server doesn't tell the end of a body without a length, it is not waited for."""
    unterminated = CHUNKED | {"wsgi.input_terminated": False}
    check_error(send(client, ROSE_JSON, environ_overrides=unterminated), 40002)


def test_a_body_cut_short_is_refused(client: FlaskClient) -> None:
    """A body shorter than was declared is refused with 40002, also where it is JSON by itself."""
    check_error(send(client, ROSE_JSON, environ_overrides={"CONTENT_LENGTH": "500"}), 40002)
    assert send(client, ROSE_JSON).status_code == 200


@pytest.mark.parametrize("length", ["", "-5", "x", "1e3"])
def test_a_length_that_is_none_counts_as_zero(client: FlaskClient, length: str) -> None:
    """A length that no server should let through is no fault of ours: there is no body."""
    check_error(send(client, ROSE_JSON, environ_overrides={"CONTENT_LENGTH": length}), 40002)


class Trickle(BytesIO):
    """An input that gives five bytes at a time, as some servers do."""

    def read(self, size: int | None = -1) -> bytes:
        """Return five bytes at the most."""
        return super().read(min(5, -1 if size is None else size))


def test_a_body_in_pieces_is_read_whole(client: FlaskClient) -> None:
    """A server that hands the body over in pieces makes no difference."""
    for environ in ({}, CHUNKED):
        body = b'{"id":%d,"name":"Rose"}' % len(environ)
        pieces = {"wsgi.input": Trickle(body)}
        assert send(client, body, environ_overrides=environ | pieces).status_code == 200


class Broken(BytesIO):
    """An input whose reading fails, as servers' do for a bad chunk."""

    def read(self, size: int | None = -1) -> bytes:
        """Raise what no one can know of."""
        raise ZeroDivisionError


def test_a_body_that_cannot_be_read_is_the_clients_fault(client: FlaskClient) -> None:
    """When the server can't read the body, the answer is 40002, never a 500."""
    check_error(send(client, ROSE_JSON, environ_overrides={"wsgi.input": Broken()}), 40002)


@pytest.mark.parametrize("reads", ["get_data", "get_json", "form", "stream"])
@pytest.mark.parametrize("maximum", [None, 50, 10_000])
def test_a_site_may_read_the_body_first(site: Flask, reads: str, maximum: int | None) -> None:
    """A site whose own hook reads the body before us changes nothing, whatever its own limit."""
    site.config["MAX_CONTENT_LENGTH"] = maximum
    silent = {"get_json": {"silent": True}}

    @site.before_request
    def read() -> None:
        attribute = getattr(request, reads)
        if callable(attribute):
            attribute(**silent.get(reads, {}))

    client = site.test_client()
    assert send(client, ROSE_JSON, "/garden/plants").status_code == 200
    check_error(send(client, b"{", "/garden/plants"), 40002)


def test_a_site_that_reads_first_cuts_nothing(site: Flask) -> None:
    """A site that opens the body under a lower limit than ours can't have it cut in silence."""
    site.config["MAX_CONTENT_LENGTH"] = 50

    @site.before_request
    def open_body() -> None:
        assert not request.form

    padded = ROSE_JSON.ljust(60)
    response = send(site.test_client(), padded, "/garden/plants", environ_overrides=CHUNKED)
    check_error(response, 41301)


def test_a_site_that_reads_first_lifts_no_limit(site: Flask) -> None:
    """A site that opens the body first doesn't have us read more of it than our limit."""

    @site.before_request
    def open_body() -> None:
        assert not request.form

    endless = BytesIO(b" " * 3_000_000)
    environ = CHUNKED | {"wsgi.input": endless}
    response = send(site.test_client(), b"", "/garden/plants", environ_overrides=environ)
    check_error(response, 41301)
    assert endless.tell() == 1_048_577


def test_a_site_may_read_the_body_afterwards(site: Flask) -> None:
    """A site whose own hook reads the body after us gets all of it."""
    seen = []

    @site.after_request
    def audit(response: Any) -> Any:
        seen.append(request.get_data())
        return response

    send(site.test_client(), ROSE_JSON, "/garden/plants")
    assert seen == [ROSE_JSON]


@pytest.mark.parametrize("maximum", [5, 10_000_000])
def test_the_limit_is_ours_alone(store: MemoryStore, maximum: int) -> None:
    """The site's MAX_CONTENT_LENGTH, above or below ours, has no say in ours."""
    site = make_site(store=store, max_body=100)
    site.config["MAX_CONTENT_LENGTH"] = maximum
    assert send(site.test_client(), ROSE_JSON.ljust(100)).status_code == 200
    check_error(send(site.test_client(), ROSE_JSON.ljust(101)), 41301)
