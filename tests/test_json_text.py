"""JSON that cannot be read: error 40002, and its message."""

import gzip
from bisect import bisect_left

import pytest
from flask.testing import FlaskClient

from tests.support.responses import check_error, send
from tests.support.sites import ROSE_JSON


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
        gzip.compress(ROSE_JSON, mtime=0),
        b"id=1&name=Rose",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
)
def test_malformed_json_is_refused(client: FlaskClient, body: bytes) -> None:
    """A body that is not one JSON text in UTF-8 is refused with 40002.

    So is one that nests too deeply, or that has a number beyond the range of a float.
    """
    check_error(send(client, body), 40002)
    assert send(client, ROSE_JSON).status_code == 200


CONTROL = r"a control character in a string must be escaped, for example as \n"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b'{"id":1,"name":"Rose"', "it ends too early, at line 1, column 22."),
        (b'{"id":-', "it ends too early, at line 1, column 8."),
        (b'{\n"id":1,}', "trailing comma in object, at line 2, column 8: }"),
        (b'{"id":1}\n{}', "expected nothing after the value, at line 2, column 1: {}"),
        (b'{"id":1}}', "expected nothing after the value, at line 1, column 9: }"),
        (b'{"id" 1}', "expected ':', at line 1, column 7: 1}"),
        (b'{"id":1 "name":""}', "expected ',' or '}', at line 1, column 9: \"name\":\"\"}"),
        (b"[1 2]", "expected ',' or ']', at line 1, column 4: 2]"),
        (b"{'id':1}", "expected '\"', at line 1, column 2: 'id':1}"),
        (b'{"id":NaN}', "expected a value, at line 1, column 7: NaN}"),
        (b'{"id": ,', "expected a value, at line 1, column 8: ,"),
        (b"id=1&name=Rose", "expected a value, at line 1, column 1: id=1&name=Rose"),
        (b"tru", "expected a value, at line 1, column 1: tru"),
        (b'{"id":nul}', "expected a value, at line 1, column 7: nul}"),
        (b'{"id":-x}', "expected a value, at line 1, column 7: -x}"),
        (b"[t\t]", r"expected a value, at line 1, column 2: t\t]"),
        (b"\0{}", r"expected a value, at line 1, column 1: \x00{}"),
        (b'{"name":"a\nb"}', rf'{CONTROL}, at line 1, column 11: \nb"}}'),
        (b'{"name":"a,\t"}', rf'{CONTROL}, at line 1, column 12: \t"}}'),
        (b'{"id":01}', "a number must not begin with 0, at line 1, column 7: 01}"),
        (b'{"id":-01}', "a number must not begin with 0, at line 1, column 8: 01}"),
        (b'{"id":1.}', "expected a digit, at line 1, column 9: }"),
        (b'{"name":"\\u1"}', 'expected a hexadecimal digit, at line 1, column 13: "}'),
        (b'{"name":"\\ud800"}', r'a lone surrogate, at line 1, column 10: \ud800"}'),
        (b'["\\udc00\\ud800"]', r'a lone surrogate, at line 1, column 3: \udc00\ud800"]'),
        (b'["\\ud800\\u0041"]', r'a lone surrogate, at line 1, column 3: \ud800\u0041"]'),
        (b'["\\\\ud800\\udc00"]', r'a lone surrogate, at line 1, column 10: \udc00"]'),
        ('{"früh":1,}'.encode(), "trailing comma in object, at line 1, column 11: }"),
        ('{"früh":"'.encode() + b"\xff", "it is not UTF-8, at line 1, column 10: \ufffd"),
        (b"\xef\xbb\xbf{}", r"remove the byte order mark, at line 1, column 1: \ufeff{}"),
    ],
)
def test_message_says_where_the_body_is_not_json(
    client: FlaskClient, body: bytes, fault: str
) -> None:
    """The message of 40002 says what is wrong with the body, and in which line and column."""
    assert check_error(send(client, body), 40002) == f"The body cannot be read as JSON: {fault}"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b'{"id":1e400,"name":"id"}', 'a number in "id" is beyond the range of a 64-bit float.'),
        (
            b'{"tag":-1e400,"a":{"tag":1}}',
            'a number in "tag" is beyond the range of a 64-bit float.',
        ),
        (b"1e999", "a number is beyond the range of a 64-bit float."),
        (b"[" * 100_000, "it is nested too deeply."),
    ],
)
def test_message_without_a_position(client: FlaskClient, body: bytes, fault: str) -> None:
    """If the position of a fault is unknown, the message gives none, rather than a wrong one."""
    assert check_error(send(client, body), 40002) == f"The body cannot be read as JSON: {fault}"


def nested(depth: int) -> bytes:
    """Return a body that is not JSON, with lists of this depth before its fault."""
    return b'{"x":' + b"[" * depth + b"]" * depth + b',"id":tru}'


def test_fault_after_the_deepest_lists(client: FlaskClient) -> None:
    """A body that is not JSON is 40002 at whatever depth its lists are nested."""

    def is_too_deep(depth: int) -> bool:
        return "too deeply" in check_error(send(client, nested(depth)), 40002)

    # The limit of the depth differs between versions of Python.
    limit = bisect_left(range(100_000), True, 900, key=is_too_deep)
    assert {is_too_deep(limit + n) for n in range(-20, 20)} == {False, True}


@pytest.mark.parametrize("body", [b"", b" ", b"\r\n\t " * 1000])
def test_message_for_an_empty_body(client: FlaskClient, body: bytes) -> None:
    """If there is no body, or only white space, the message says that the body is empty."""
    message = check_error(send(client, body), 40002)
    assert message == "The body is empty. Send a JSON object."


@pytest.mark.parametrize("character", ["x", "\0", "\x1b", "\u202e", "\U0001f600", "\x85", "\\"])
def test_message_repeats_at_most_20_characters(client: FlaskClient, character: str) -> None:
    """A message repeats at most 20 characters of the body, and none that is not printable."""
    message = check_error(send(client, b"1" + character.encode() * 1000), 40002)
    fault, _, found = message.partition("column 2: ")
    assert message.isprintable()
    assert len(message) <= 500
    assert character.encode("unicode_escape").decode() * 21 not in message
    assert found.count(character) in {0, 20}
    assert fault.startswith("The body cannot be read as JSON: ")


def test_white_space_around_json_is_accepted(client: FlaskClient) -> None:
    """White space around the JSON text is accepted (RFC 8259 section 2)."""
    assert send(client, b" \t\r\n" + ROSE_JSON + b"\n").status_code == 200
