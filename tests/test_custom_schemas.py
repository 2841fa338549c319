"""What a developer adds to the schemas works over HTTP."""

from json import JSONDecodeError
from typing import Any

import pytest
from flask import Flask
from marshmallow import INCLUDE, RAISE, Schema, ValidationError, decorators, fields
from marshmallow.validate import Length, OneOf

from plantstore import MemoryStore, NewPlantSchema, PlantSchema
from plantstore.schemas import Int64, Text
from tests.support.responses import check_error
from tests.support.sites import BEARER


class Other(NewPlantSchema):
    """Hooks, validators, and more fields. The id has another name in JSON."""

    class Meta:
        """Options."""

        unknown = INCLUDE

    id = Int64(required=True, data_key="number")
    name = Text(required=True, validate=Length(min=3))
    tag = Text(allow_none=True, validate=OneOf(["pot"]), error_messages={"invalid": "No tag."})
    leaves = fields.List(fields.Integer())
    pot = fields.Nested(PlantSchema)

    @decorators.pre_load
    def strip(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return data | {"name": data["name"].strip()}

    @decorators.validates_schema
    def check(self, data: dict[str, Any], **kwargs: Any) -> None:
        if data["name"] == data.get("tag"):
            raise ValidationError("The tag repeats the name.")
        if data["name"] == "Nettle":
            raise ValidationError({"name": "No."})  # A message that is not in a list.

    @decorators.post_load
    def change(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if data["name"] == "Fault":
            raise ValueError("hunter2")
        return {"id": data["id"]} if data["name"] == "Lost" else data


def send(site: Flask, monkeypatch: pytest.MonkeyPatch, schema: Schema, **changes: Any) -> Any:
    """Send a plant to a site that validates with this schema."""
    monkeypatch.setattr("plantstore.views.new_plant_schema", schema)
    new_plant = {"id": 1, "number": 1, "name": "Rose", "tag": "pot"} | changes
    return site.test_client().post("/garden/plants", json=new_plant, headers=BEARER)


@pytest.mark.parametrize(
    ("schema", "changes", "expected"),
    [
        (Other(), {"name": "  Lily ", "age": 5}, {"name": "Lily", "tag": "pot"}),
        (Other(), {"tag": None}, {"name": "Rose"}),
        (NewPlantSchema(dump_only=["tag"]), {}, {"name": "Rose"}),
        (Other(), {"name": "pot"}, "body: The tag repeats the name."),
        (Other(), {"name": "Nettle"}, "name: No."),
        (Other(), {"name": "ab"}, "name: Shorter than minimum length 3."),
        (Other(), {"tag": "indoor"}, "tag: Must be one of: pot."),
        (Other(), {"tag": 5}, "tag: No tag."),
        (Other(), {"number": "x"}, "number: Must be an integer, not a string."),
        (Other(), {"leaves": [1, "x"]}, "leaves.1: Not a valid integer."),
        (Other(), {"pot": {}}, "pot.name: Missing data for required field."),
        (Other(), {"pot": 5}, "pot.body: Must be a JSON object, not a number."),
        (NewPlantSchema(unknown=RAISE), {}, "number: Unknown field."),
        (NewPlantSchema(many=True), {}, "body: Must be a list of JSON objects, not an object."),
    ],
)
def test_hooks_and_options(
    site: Flask, monkeypatch: pytest.MonkeyPatch, schema: Schema, changes: Any, expected: Any
) -> None:
    """A hook, option or field of NewPlantSchema changes or refuses a plant also over HTTP."""
    response = send(site, monkeypatch, schema, **changes)
    if isinstance(expected, str):
        assert check_error(response, 40003) == expected
    else:
        assert (response.status_code, response.json) == (200, expected)


@pytest.mark.parametrize("name", ["Fault", "Lost"])
def test_hook_that_fails_or_loses_a_required_member(
    site: Flask, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A fault in a hook is 50001, not one of the client, and nothing is stored."""
    assert "hunter2" not in check_error(send(site, monkeypatch, Other(), name=name), 50001)
    assert len(store) == 0


@pytest.mark.parametrize("schema", [NewPlantSchema, Other])
def test_id_is_not_rounded_with_any_option(schema: type[Schema]) -> None:
    """An id is never rounded, whatever the schema and the options of loads are."""
    body = b'{"id":9007199254740993.0,"name":"Rose","number":9007199254740993.0}'
    for options in ({}, {"unknown": RAISE}, {"many": True}, {"partial": True}):
        with pytest.raises(ValidationError, match="Must be between"):
            schema().loads(b"[%s]" % body if "many" in options else body, **options)


def test_texts_that_loads_takes() -> None:
    """Loads accepts a str, bytes and a bytearray; a fault in the JSON text has its position."""
    schema, text, surrogate = NewPlantSchema(), '{"id":1,"name":"früh"}', '{"id":1,"name":"\ud800"}'
    for data in (text, text.encode(), bytearray(text.encode())):
        assert schema.loads(data) == {"id": 1, "name": "früh"}
    with pytest.raises(ValidationError, match="surrogate"):
        schema.loads(surrogate)
    with pytest.raises(JSONDecodeError, match="line 1 column 17"):
        schema.loads(bytearray(surrogate.encode(errors="surrogatepass")))
