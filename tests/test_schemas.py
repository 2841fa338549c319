"""Validation of a NewPlant: interface section 2, error 40003."""

from itertools import product
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from marshmallow import ValidationError

from plantstore import MemoryStore, Plant
from plantstore.schemas import new_plant_schema
from tests.support.responses import check_error, create
from tests.support.sites import BEARER, ROSE, ROSE_PLANT

INT64 = (-(2**63), 2**63 - 1)


def send(site: Flask, text: str) -> Any:
    """Send a body unchanged to the store of a host site."""
    return site.test_client().post(
        "/garden/plants", data=text, content_type="application/json", headers=BEARER
    )


@pytest.mark.parametrize(
    ("literal", "id"),
    [
        *((str(id), id) for id in (0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, *INT64)),
        ("-0", 0),
        ("1.0", 1),
        ("-1.000", -1),
        ("1e2", 100),
        ("1E+2", 100),
        ("1200e-2", 12),
        ("-0.0", 0),
        ("0e999999999999999999999999", 0),
        ("-0.00E-999999999999999999999999", 0),
        ("9007199254740992.0", 2**53),
        ("-90071992547409920e-1", -(2**53)),
        ("1.00000000000000000000000000000", 1),
    ],
)
def test_every_int64_is_an_id(site: Flask, store: MemoryStore, literal: str, id: int) -> None:
    """Every integer of int64 is stored exactly, also when written as 1.0 or 1e2 (JSON Schema)."""
    assert send(site, f'{{"id":{literal},"name":"Rose"}}').status_code == 200
    assert [(plant.id, type(plant.id)) for plant in store] == [(id, int)]


@pytest.mark.parametrize(
    "literal",
    [
        "-9223372036854775809",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "9007199254740993.0",
        "-9007199254740993.0",
        "90071992547409930e-1",
        "-9223372036854775808.0",
        "9.3e18",
        "1e300",
        "-1e400",
        "1e99999999999999999999",
        "9" * 4000,
    ],
)
def test_id_out_of_range_is_refused(site: Flask, store: MemoryStore, literal: str) -> None:
    """An integer outside int64, or one that a float cannot represent exactly, is refused."""
    message = check_error(send(site, f'{{"id":{literal},"name":"Rose"}}'), 40003)
    assert message.startswith("id: Must be between -2^63 and 2^63-1")
    assert len(store) == 0


@pytest.mark.parametrize(
    "literal",
    [
        "1.00000000000000000001",
        "2.9999999999999999999",
        "9007199254740991.4",
        "1e-400",
        "1e-99999999999999999999",
        f"1.{'0' * 60_000}1",
    ],
)
def test_fraction_is_never_rounded_to_an_id(site: Flask, literal: str) -> None:
    """A number that is not an integer is refused, however close to an integer it is."""
    message = check_error(send(site, f'{{"id":{literal},"name":"Rose"}}'), 40003)
    assert message == "id: Must be an integer, not a fraction."


@pytest.mark.parametrize("literal", ["1", "1.0"])
@pytest.mark.parametrize("depth", [900, 2000, 30_000])
def test_deep_nesting_is_refused(site: Flask, literal: str, depth: int) -> None:
    """A body that nests too deeply is refused with 40002, however its id is written."""
    response = send(site, f'{{"id":{literal},"name":"Rose","x":{"[" * depth}{"]" * depth}}}')
    if depth == 900:
        assert response.status_code == 200
    elif depth == 30_000:
        check_error(response, 40002)
    else:
        # In this range the result depends on the recursion limit of the Python version.
        assert response.status_code == 200 or check_error(response, 40002)


# JSON values, and what the message about them calls their types.
VALUES = [
    *[(literal, "a string") for literal in ('"1"', '" 5 "', '"٣"', '""')],
    *[(literal, "a fraction") for literal in ("1.5", "-0.5", "5e-324")],
    *[("1", "an integer"), ("true", "a boolean"), ("false", "a boolean"), ("null", "null")],
    *[("[]", "a list"), ("[1]", "a list"), ("{}", "an object"), ('{"id":1}', "an object")],
]
TYPES = {"id": "an integer", "name": "a string", "tag": "a string", "body": "an object"}


@pytest.mark.parametrize(
    ("member", "literal", "kind"),
    [(member, *value) for member, value in product(TYPES, VALUES) if value[1] != TYPES[member]],
)
def test_value_of_another_type_is_refused(
    site: Flask, store: MemoryStore, member: str, literal: str, kind: str
) -> None:
    """A value of another type is 40003, and the message says which type was sent."""
    members = {"id": "1", "name": '"Rose"', member: literal}
    new = ",".join(f'"{name}":{value}' for name, value in members.items())
    message = check_error(send(site, literal if member == "body" else f"{{{new}}}"), 40003)
    if member != "id":
        kind = kind.replace("an integer", "a number").replace("a fraction", "a number")
    expected = TYPES[member].replace("an object", "a JSON object")
    advice = " Without a tag, leave it out." if (member, kind) == ("tag", "null") else ""
    assert message == f"{member}: Must be {expected}, not {kind}.{advice}"
    assert len(store) == 0


@pytest.mark.parametrize("text", ["\0", "a\0b"])
@pytest.mark.parametrize("member", ["name", "tag"])
def test_nul_is_refused(client: FlaskClient, member: str, text: str) -> None:
    """U+0000 is refused in a name and in a tag."""
    message = check_error(create(client, ROSE | {member: text}), 40003)
    assert message == f"{member}: Must not contain U+0000."


def test_all_validation_errors_are_in_one_message(client: FlaskClient) -> None:
    """The message names every invalid member, in alphabetical order."""
    message = check_error(create(client, {"tag": None, "id": "x"}), 40003)
    assert message == (
        "id: Must be an integer, not a string."
        " name: Missing data for required field."
        " tag: Must be a string, not null. Without a tag, leave it out."
    )


def test_messages_never_repeat_the_request(client: FlaskClient) -> None:
    """A message never repeats any part of the request."""
    new = {"id": "hunter2" * 1000, "name": ["hunter2"], "tag": "hunter2\0", "hunter2": 1}
    assert "hunter2" not in check_error(create(client, new), 40003)


@pytest.mark.parametrize("name", [b"bytes", bytearray(b"bytes"), "\ud800", "a\udfff"])
def test_schema_load_in_python_is_strict(name: Any) -> None:
    """Loading a NewPlant in Python raises ValidationError for text that a store may refuse."""
    with pytest.raises(ValidationError):
        new_plant_schema.load({"id": 1, "name": name})
    assert Plant(**new_plant_schema.load(ROSE)) == ROSE_PLANT
