"""Validation of a NewPlant: error 40003."""

from itertools import product
from json import JSONDecodeError
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from marshmallow import RAISE, ValidationError, decorators
from marshmallow.validate import Length

from plantstore import MemoryStore, NewPlantSchema
from plantstore.schemas import Text, new_plant_schema
from tests.support import responses
from tests.support.responses import check_error, create
from tests.support.sites import ROSE

INT64 = (-(2**63), 2**63 - 1)
RANGE = (
    "id: Must be between -2^63 and 2^63-1. From 2^53 on, write it without a decimal point or an"
    " exponent."
)
OUT_OF_RANGE = [
    *("-9223372036854775809", "9223372036854775808", "9" * 4000, "9007199254740993.0"),
    *("9007199254740992.0", "-90071992547409920e-1", "-1e400", "1e99999999999999999999"),
]
FRACTIONS = [
    *("1.00000000000000000001", "9007199254740991.4", "1e-400", "1e-99999999999999999999"),
    f"1.{'0' * 60_000}1",
]
# JSON values, and what the message about them calls their types.
VALUES = [
    *[(literal, "a string") for literal in ('"1"', '""')],
    *[(literal, "a fraction") for literal in ("1.5", "5e-324")],
    *[("1", "an integer"), ("true", "a boolean"), ("false", "a boolean"), ("null", "null")],
    *[("[1]", "a list"), ('{"id":1}', "an object")],
]
TYPES = {"id": "an integer", "name": "a string", "tag": "a string", "body": "an object"}


def send(site: Flask, text: str) -> Any:
    """Send a body unchanged to the store of a host site."""
    return responses.send(site.test_client(), text, "/garden/plants")


@pytest.mark.parametrize(
    ("literal", "id"),
    [
        *((str(id), id) for id in (0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, *INT64)),
        *(("-0", 0), ("1.0", 1), ("-1.000", -1), ("1E+2", 100), ("1200e-2", 12), ("-0.0", 0)),
        *(("-0.00E-999999999999999999999999", 0), ("-90071992547409910e-1", -(2**53) + 1)),
    ],
)
def test_every_int64_is_an_id(site: Flask, store: MemoryStore, literal: str, id: int) -> None:
    """Every integer of int64 is stored exactly, also when written as 1.0 or 1e2 (JSON Schema)."""
    assert send(site, f'{{"id":{literal},"name":"Rose"}}').status_code == 200
    assert [(plant.id, type(plant.id)) for plant in store] == [(id, int)]


@pytest.mark.parametrize(
    ("literal", "message"),
    [
        *((literal, RANGE) for literal in OUT_OF_RANGE),
        *((literal, "id: Must be an integer, not a fraction.") for literal in FRACTIONS),
    ],
    ids=lambda text: text[:25],
)
def test_other_number(site: Flask, store: MemoryStore, literal: str, message: str) -> None:
    """An integer outside int64, one that a float may round, and any fraction are refused."""
    assert check_error(send(site, f'{{"id":{literal},"name":"Rose"}}'), 40003) == message
    assert len(store) == 0


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


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a\0b", "Must not contain U+0000."),
        *((text, "Must not contain a lone surrogate.") for text in ("\ud800", "a\udfff")),
    ],
)
@pytest.mark.parametrize("member", ["name", "tag"])
def test_text_that_no_store_keeps(client: FlaskClient, member: str, text: str, fault: str) -> None:
    """U+0000 and lone surrogates are refused in a name and in a tag, also by load in Python."""
    assert check_error(create(client, ROSE | {member: text}), 40003) == f"{member}: {fault}"
    with pytest.raises(ValidationError):
        new_plant_schema.load(ROSE | {member: text})


def test_message_names_every_fault_and_repeats_nothing(client: FlaskClient) -> None:
    """The message names every invalid member, in alphabetical order, and no part of the request."""
    message = check_error(create(client, {"tag": None, "id": "hunter2" * 99, "hunter2": 1}), 40003)
    assert message == (
        "id: Must be an integer, not a string."
        " name: Missing data for required field."
        " tag: Must be a string, not null. Without a tag, leave it out."
    )
    message = "id: Missing data for required field. name: Must be a string, not a list."
    assert check_error(create(client, {"name": ["hunter2"]}), 40003) == message


class Trimmed(NewPlantSchema):
    """A schema of a site, with a hook and a validator."""

    name = Text(required=True, validate=Length(min=3))

    @decorators.pre_load
    def strip(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return data | {"name": data["name"].strip()}


def test_loading_in_python() -> None:
    """Load and loads accept a text, bytes and a bytearray; hooks and validators of a site work."""
    schema, text, surrogate = NewPlantSchema(), '{"id":1,"name":"früh"}', '{"id":1,"name":"\ud800"}'
    for data in (text, text.encode(), bytearray(text.encode())):
        assert schema.loads(data) == {"id": 1, "name": "früh"}
    with pytest.raises(ValidationError, match="surrogate"):
        schema.loads(surrogate)
    with pytest.raises(JSONDecodeError, match="line 1 column 17"):
        schema.loads(bytearray(surrogate.encode(errors="surrogatepass")))
    assert Trimmed().loads('{"id":1,"name":" Lily "}') == {"id": 1, "name": "Lily"}
    fault = {"name": ["Shorter than minimum length 3."]}
    assert Trimmed().validate({"id": 1, "name": " ab "}) == fault


def test_id_is_not_rounded_with_any_option() -> None:
    """An id is never rounded, whatever the options of loads are."""
    body = b'{"id":9007199254740993.0,"name":"Rose"}'
    for options in ({}, {"unknown": RAISE}, {"many": True}, {"partial": True}):
        with pytest.raises(ValidationError, match="Must be between"):
            NewPlantSchema().loads(b"[%s]" % body if "many" in options else body, **options)
