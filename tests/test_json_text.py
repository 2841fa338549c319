"""JSON that cannot be read: error 40002, and its message."""

import gzip
import json
import sys

import pytest
from flask.testing import FlaskClient

from tests.support.responses import check_error, send
from tests.support.sites import ROSE_JSON

# Python 3.13 and later describe a trailing comma, earlier versions what follows it.
COMMA = "Illegal trailing comma before end of object at line 2, column 7, near ,}"
if sys.version_info < (3, 13):
    COMMA = "Expecting property name enclosed in double quotes at line 2, column 8, near }"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b'{"id":1', "Expecting ',' delimiter at line 1, column 8, the end of the body"),
        (b'{"id":', "Expecting value at line 1, column 7, the end of the body"),
        (b'{"id":1}\n{}', "Extra data at line 2, column 1, near {}"),
        (b'{"id" 1}', "Expecting ':' delimiter at line 1, column 7, near 1}"),
        (b'{\n"id":1,}', COMMA),
        (b"[t\t]", r"Expecting value at line 1, column 2, near t\t]"),
        (b"\0{}", r"Expecting value at line 1, column 1, near \u0000{}"),
        (b'{"name":"a\nb"}', r'Invalid control character at line 1, column 11, near \nb"}'),
        (b'{"name":"Rose}', 'Unterminated string starting at line 1, column 9, near "Rose}'),
        ('{"früh":"'.encode() + b"\xff", "It is not UTF-8 at line 1, column 10, near \ufffd"),
        (b'"\xed\xa0\x80', "It is not UTF-8 at line 1, column 2, near \ufffd\ufffd\ufffd"),
        (b"\xef\xbb\xbf{}", r"Remove the byte order mark at line 1, column 1, near \ufeff{}"),
        # If the position of a fault is unknown, the message gives none, rather than a wrong one.
        (b'{"id":NaN}', "NaN is not a JSON value."),
        (b'{"x":[-Infinity]}', "-Infinity is not a JSON value."),
        (b'{"id":1,"name":"","x":%s}' % (b"9" * 60_000), "An integer has too many digits."),
    ],
)
def test_message_says_what_is_no_json(client: FlaskClient, body: bytes, fault: str) -> None:
    """A body that is not one JSON text in UTF-8 is 40002; the message says what is wrong, where."""
    assert check_error(send(client, body), 40002) == f"The body cannot be read as JSON: {fault}"
    assert send(client, ROSE_JSON).status_code == 200


# The body and a list in it are two levels. Brackets in strings do not count.
@pytest.mark.parametrize("text", ["", "[" * 200, '\\"[' * 200, "\\\\"])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_depth_of_a_body(client: FlaskClient, begin: str, end: str, text: str) -> None:
    """A body may have 100 levels of lists and objects, on each Python; 101 levels are 40002."""
    for levels in (10_000, 101, 100):
        nested = f'{{"x":["{text}",{begin * (levels - 2)}1{end * (levels - 2)}],'
        response = send(client, ROSE_JSON.replace(b"{", nested.encode()))
        if levels > 100:
            assert "nested more than 100 levels deep" in check_error(response, 40002)
    assert response.status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(ROSE_JSON, mtime=0),
        *(ROSE_JSON.decode().encode(encoding) for encoding in ("utf-16", "utf-16-le", "utf-32")),
        *(b"1" + character.encode() * 1000 for character in "x\0\x1b\u202e\U0001f600\x85\\"),
    ],
)
def test_message_repeats_at_most_20_characters(client: FlaskClient, body: bytes) -> None:
    """A message repeats at most 20 characters of the body, and none that is not printable."""
    message = check_error(send(client, body), 40002)
    last = body.decode(errors="replace")[-1]
    assert message.isprintable()
    assert message.partition("column 2: ")[2].count(last) in {0, 20}
    assert json.dumps(last)[1:-1] * 21 not in message


@pytest.mark.parametrize("body", [b"", b" ", b"\r\n\t " * 1000])
def test_message_for_an_empty_body(client: FlaskClient, body: bytes) -> None:
    """If there is no body, or only white space, the message says that the body is empty."""
    assert check_error(send(client, body), 40002) == "The body is empty. Send a JSON object."


def test_fault_after_the_deepest_lists(client: FlaskClient) -> None:
    """A body that is not JSON is 40002 at whatever depth its lists are nested."""
    for depth in (98, 99, 100, 20_000):
        for end in (b"]" * depth, b"", b']"', b']"\\', b'"\\"' * 10_000):
            check_error(send(client, b'{"x":%s%s,"id":tru}' % (b"[" * depth, end)), 40002)


@pytest.mark.parametrize(
    "body",
    [
        b" \t\r\n" + ROSE_JSON + b"\n",
        b'{"id":1,"name":5,"name":"Rose","tag":"a","tag":"fr\xc3\xbch"}',
        *(ROSE_JSON[:-1] + b',"x":%s}' % number for number in (b"1e999", b"-1e-99999999999999999")),
        *(ROSE_JSON[:-1] + b',"x":%s}' % number for number in (b"1" * 4000, b"0." + b"1" * 9000)),
        ROSE_JSON[:-1] + b',"x":"\\ud800"}',
        ROSE_JSON[:-1] + b',"x":%s%s}' % (b"[" * 99, b"]" * 99),
    ],
    ids=lambda body: ascii(body[:60]),
)
def test_unusual_json_is_accepted(client: FlaskClient, body: bytes) -> None:
    """White space, repeated members, and any values of members that are ignored are accepted."""
    response = send(client, body)
    assert (response.status_code, response.json) == (200, {"name": "Rose", "tag": "früh"})
