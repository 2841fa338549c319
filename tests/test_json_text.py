"""JSON that cannot be read: error 40002, and its message."""

import gzip
import json
import sys

import pytest
from flask.testing import FlaskClient

from tests.support.responses import check_error, send
from tests.support.sites import ROSE_JSON


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":1,"name":"Rose"}{}',
        b'{"id":1,"name":"Rose",}',
        b'{"id":1,"name":NaN}',
        b'{"id":Infinity,"name":"Rose"}',
        b'{"id":1,"name":"\xed\xa0\x80"}',
        b'{"id":1,"name":"\xff"}',
        ROSE_JSON.decode().encode("utf-16"),
        ROSE_JSON.decode().encode("utf-16-le"),
        ROSE_JSON.decode().encode("utf-32"),
        gzip.compress(ROSE_JSON, mtime=0),
        b"[" * 30_000 + b"]" * 30_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"id":1,"name":"Rose","x":%s}' % (b"9" * 60_000),
    ],
)
def test_malformed_json_is_refused(client: FlaskClient, body: bytes) -> None:
    """A body that is not one JSON text in UTF-8 is refused with 40002.

    So is one that nests too deeply, or that has an integer of thousands of digits.
    """
    check_error(send(client, body), 40002)
    assert send(client, ROSE_JSON).status_code == 200


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (
            b'{"id":1,"name":"Rose"',
            "Expecting ',' delimiter at line 1, column 22: the end of the body",
        ),
        (b'{"id":', "Expecting value at line 1, column 7: the end of the body"),
        (b'{"id":1}\n{}', "Extra data at line 2, column 1: {}"),
        (b'{"id":1}}', "Extra data at line 1, column 9: }"),
        (b'{"id" 1}', "Expecting ':' delimiter at line 1, column 7: 1}"),
        (b'{"id":1 "name":""}', 'Expecting \',\' delimiter at line 1, column 9: "name":""}'),
        (b"[1 2]", "Expecting ',' delimiter at line 1, column 4: 2]"),
        (
            b"{'id':1}",
            "Expecting property name enclosed in double quotes at line 1, column 2: 'id':1}",
        ),
        (b'{"id": ,', "Expecting value at line 1, column 8: ,"),
        (b"id=1&name=Rose", "Expecting value at line 1, column 1: id=1&name=Rose"),
        (b'{"id":nul}', "Expecting value at line 1, column 7: nul}"),
        (b"[t\t]", r"Expecting value at line 1, column 2: t\t]"),
        (b"\0{}", r"Expecting value at line 1, column 1: \u0000{}"),
        (b'{"name":"a\nb"}', r'Invalid control character at line 1, column 11: \nb"}'),
        (b'{"name":"Rose}', 'Unterminated string starting at line 1, column 9: "Rose}'),
        (b'{"id":01}', "Expecting ',' delimiter at line 1, column 8: 1}"),
        ('{"früh":"'.encode() + b"\xff", "It is not UTF-8 at line 1, column 10: \ufffd"),
        (b"\xef\xbb\xbf{}", r"Remove the byte order mark at line 1, column 1: \ufeff{}"),
    ],
)
def test_message_says_where_the_body_is_not_json(
    client: FlaskClient, body: bytes, fault: str
) -> None:
    """The message of 40002 says what is wrong with the body, and in which line and column."""
    assert check_error(send(client, body), 40002) == f"The body cannot be read as JSON: {fault}"


def test_message_for_a_trailing_comma(client: FlaskClient) -> None:
    """The message for a trailing comma says in which line it is."""
    message = check_error(send(client, b'{\n"id":1,}'), 40002)
    # Python 3.13 and later describe the comma, earlier versions what follows it.
    place = "line 2, column 7: ,}" if sys.version_info >= (3, 13) else "line 2, column 8: }"
    assert message.endswith(place)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b'{"id":NaN}', "NaN is not a JSON value."),
        (b'{"x":[-Infinity]}', "-Infinity is not a JSON value."),
        (b"[" * 60_000, "It is nested too deeply."),
        (b"9" * 60_000, "An integer has too many digits."),
    ],
)
def test_message_without_a_position(client: FlaskClient, body: bytes, fault: str) -> None:
    """If the position of a fault is unknown, the message gives none, rather than a wrong one."""
    assert check_error(send(client, body), 40002) == f"The body cannot be read as JSON: {fault}"


def test_fault_after_the_deepest_lists(client: FlaskClient) -> None:
    """A body that is not JSON is 40002 at whatever depth its lists are nested."""
    for depth in (*range(800, 1100), 20_000):
        check_error(send(client, b'{"x":%s%s,"id":tru}' % (b"[" * depth, b"]" * depth)), 40002)


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
    assert json.dumps(character)[1:-1] * 21 not in message
    assert found.count(character) in {0, 20}
    assert fault.startswith("The body cannot be read as JSON: ")


def test_white_space_around_json_is_accepted(client: FlaskClient) -> None:
    """White space around the JSON text is accepted (RFC 8259 section 2)."""
    assert send(client, b" \t\r\n" + ROSE_JSON + b"\n").status_code == 200


@pytest.mark.parametrize(
    "number", ["1e999", "-1e-99999999999999999999", "1" * 4000, "0." + "1" * 9000]
)
def test_number_in_an_ignored_member(client: FlaskClient, number: str) -> None:
    """A member that is ignored may have a number of any size, or an integer of 4,000 digits."""
    body = f'{{"id":1,"name":"Rose","ignored":{number}}}'.encode()
    assert send(client, body).status_code == 200


def test_lone_surrogate(client: FlaskClient) -> None:
    """A lone surrogate is accepted in a member that is ignored, and 40003 in a name or a tag."""
    for body in (b'{"id":1,"name":"\\ud800"}', b'{"id":1,"name":"","tag":"\\udc00\\ud800"}'):
        assert "lone surrogate" in check_error(send(client, body), 40003)
    assert send(client, b'{"id":1,"name":"Rose","x":"\\ud800"}').status_code == 200


def test_last_one_of_repeated_members(client: FlaskClient) -> None:
    """Of several members with the same name, the last one counts."""
    response = send(client, b'{"id":1,"name":5,"name":"Rose","tag":"a","tag":"b"}')
    assert (response.status_code, response.json) == (200, {"name": "Rose", "tag": "b"})
