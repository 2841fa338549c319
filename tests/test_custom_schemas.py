"""What a developer adds to NewPlantSchema works over HTTP."""

import json
from math import inf
from typing import Any

import pytest
from flask import Flask
from marshmallow import (
    INCLUDE,
    RAISE,
    Schema,
    ValidationError,
    fields,
    post_dump,
    post_load,
    pre_dump,
    pre_load,
    validates_schema,
)
from marshmallow.validate import Length, OneOf

from plantstore import MemoryStore, NewPlantSchema, PlantSchema
from plantstore.schemas import Int64, Text
from tests.support.responses import check_error
from tests.support.sites import BEARER

NEW_PLANT = {"id": 1, "name": "Rose", "tag": "garden"}


class WithPreLoad(NewPlantSchema):
    """A hook that changes what the client has sent."""

    @pre_load
    def strip(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return data | {"name": data["name"].strip()}


class WithValidatesSchema(NewPlantSchema):
    """A hook that validates all fields together."""

    @validates_schema
    def no_twins(self, data: dict[str, Any], **kwargs: Any) -> None:
        if data["name"] == data.get("tag"):
            raise ValidationError("The tag repeats the name.")


class WithValidators(NewPlantSchema):
    """Validators of fields."""

    name = Text(required=True, validate=[Length(min=3), Length(max=9)])
    tag = Text(validate=OneOf(["garden"]), error_messages={"invalid": "Not a tag."})


class WithNull(NewPlantSchema):
    """A field that may be null."""

    tag = Text(allow_none=True)


class WithMoreFields(NewPlantSchema):
    """More fields, and unknown ones."""

    class Meta:
        """Options."""

        unknown = INCLUDE

    depth = fields.Integer()
    leaves = fields.List(fields.Integer())
    pot = fields.Nested(PlantSchema)


class WithKey(NewPlantSchema):
    """A field with another name in JSON."""

    id = Int64(required=True, data_key="number")


class WithText(NewPlantSchema):
    """A hook whose message for a field is not in a list."""

    @validates_schema
    def refuse(self, data: dict[str, Any], **kwargs: Any) -> None:
        raise ValidationError({"name": "No."})


def send(site: Flask, monkeypatch: pytest.MonkeyPatch, schema: Schema, **changes: Any) -> Any:
    """Send a plant to a site that validates with this schema."""
    monkeypatch.setattr("plantstore.views.new_plant_schema", schema)
    new_plant = {name: value for name, value in (NEW_PLANT | changes).items() if value is not ...}
    return site.test_client().post("/garden/plants", json=new_plant, headers=BEARER)


@pytest.mark.parametrize(
    ("schema", "changes", "plant"),
    [
        (NewPlantSchema(), {}, {"name": "Rose", "tag": "garden"}),
        (WithPreLoad(), {"name": "  Lily "}, {"name": "Lily", "tag": "garden"}),
        (NewPlantSchema(exclude=["tag"]), {}, {"name": "Rose"}),
        (NewPlantSchema(only=["id", "name"]), {}, {"name": "Rose"}),
        (NewPlantSchema(dump_only=["tag"]), {}, {"name": "Rose"}),
        (WithNull(), {"tag": None}, {"name": "Rose"}),
        (WithKey(), {"id": ..., "number": 7}, {"name": "Rose", "tag": "garden"}),
        (WithMoreFields(), {"depth": 7, "age": 5}, {"name": "Rose", "tag": "garden"}),
        (
            NewPlantSchema.from_dict({"note": fields.String(load_only=True)})(only=["id", "name"]),
            {},
            {"name": "Rose"},
        ),
    ],
)
def test_hooks_and_options_that_change_a_plant(
    site: Flask, monkeypatch: pytest.MonkeyPatch, schema: Schema, changes: Any, plant: Any
) -> None:
    """A hook, option or field of NewPlantSchema that changes plants also does so over HTTP."""
    response = send(site, monkeypatch, schema, **changes)
    assert (response.status_code, response.json) == (200, plant)


@pytest.mark.parametrize(
    ("schema", "changes", "message"),
    [
        (WithValidatesSchema(), {"tag": "Rose"}, "body: The tag repeats the name."),
        (NewPlantSchema(unknown=RAISE), {"age": 7}, "age: Unknown field."),
        (WithValidators(), {"name": "ab"}, "name: Shorter than minimum length 3."),
        (WithValidators(), {"name": "abcdefghij"}, "name: Longer than maximum length 9."),
        (WithValidators(), {"tag": "indoor"}, "tag: Must be one of: garden."),
        (WithValidators(), {"tag": 5}, "tag: Not a tag."),
        (WithKey(), {}, "number: Missing data for required field."),
        (WithText(), {}, "name: No."),
        (NewPlantSchema(many=True), {}, "body: Must be a list of JSON objects, not an object."),
        (WithMoreFields(), {"depth": "x"}, "depth: Not a valid integer."),
        (WithMoreFields(), {"leaves": [1, "x"]}, "leaves.1: Not a valid integer."),
        (WithMoreFields(), {"pot": {}}, "pot.name: Missing data for required field."),
        (WithMoreFields(), {"pot": 5}, "pot.body: Must be a JSON object, not a number."),
    ],
)
def test_hooks_and_options_that_refuse_a_plant(
    site: Flask, monkeypatch: pytest.MonkeyPatch, schema: Schema, changes: Any, message: str
) -> None:
    """A hook, option or field of NewPlantSchema that refuses plants also does so over HTTP."""
    assert check_error(send(site, monkeypatch, schema, **changes), 40003) == message


def test_id_with_another_key_is_not_rounded(site: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id is as exact as always if its field has another name in JSON."""
    monkeypatch.setattr("plantstore.views.new_plant_schema", WithKey())
    body = b'{"number":9007199254740993.0,"name":"Rose"}'
    headers = BEARER | {"Content-Type": "application/json"}
    message = check_error(
        site.test_client().post("/garden/plants", data=body, headers=headers), 40003
    )
    assert message.startswith("number: Must be between -2^63 and 2^63-1.")


NUMBERS = b'{"id":9007199254740993.0,"name":"Rose","number":9007199254740993.0}'


@pytest.mark.parametrize("options", [{}, {"unknown": RAISE}, {"many": True}, {"partial": True}])
@pytest.mark.parametrize("schema", [NewPlantSchema, WithKey, WithPreLoad, WithMoreFields])
def test_id_is_not_rounded_with_any_option(schema: type[Schema], options: Any) -> None:
    """An id is never rounded, whatever the schema and the options of loads are."""
    body = b"[%s]" % NUMBERS if "many" in options else NUMBERS
    with pytest.raises(ValidationError, match="Must be between"):
        schema().loads(body, **options)


@pytest.mark.parametrize("kind", [str, str.encode, lambda text: bytearray(text, "utf-8")])
def test_loads_accepts_str_and_bytes(kind: Any) -> None:
    """Loads accepts a str, bytes and a bytearray, as marshmallow does."""
    assert NewPlantSchema().loads(kind('{"id":1,"name":"früh"}')) == {"id": 1, "name": "früh"}


@pytest.mark.parametrize("kind", [str, lambda text: bytearray(text, "utf-8", "surrogatepass")])
def test_loads_refuses_a_lone_surrogate(kind: Any) -> None:
    """Loads refuses a lone surrogate: in a str as an invalid name, in bytes as not UTF-8."""
    with pytest.raises((ValidationError, json.JSONDecodeError)) as refused:
        NewPlantSchema().loads(kind('{"id":1,"name":"\ud800"}'))
    if isinstance(refused.value, json.JSONDecodeError):
        assert (refused.value.lineno, refused.value.colno) == (1, 17)


def test_number_that_no_float_can_have() -> None:
    """A number beyond the range of a float is infinite in a field that a developer adds."""
    schema = NewPlantSchema.from_dict({"depths": fields.List(fields.Float(allow_nan=True))})()
    loaded = schema.loads('{"id":1,"name":"Rose","depths":[1,1e400,1e999999999999]}')
    assert loaded["depths"] == [1, inf, inf]


@pytest.mark.parametrize("name", ["x" * 60_000, "\x1b" * 300, "\n\x1b[31m\u202e" * 3_000])
def test_message_for_a_long_member_name(
    site: Flask, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A message that names a member is one printable line of at most 500 characters."""
    response = send(site, monkeypatch, NewPlantSchema(unknown=RAISE), **{name: 1})
    assert check_error(response, 40003).isprintable()


def test_value_error_of_a_hook_is_not_the_fault_of_the_client(
    site: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook that fails is 50001, not a body that is no JSON."""

    class WithFault(NewPlantSchema):
        @pre_load
        def fail(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            raise ValueError("hunter2")

    assert "hunter2" not in check_error(send(site, monkeypatch, WithFault()), 50001)


def test_hooks_of_the_response(site: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks and fields of PlantSchema change the response."""

    class WithDumpHooks(PlantSchema):
        kind = fields.Constant("plant")

        @pre_dump
        def shout(self, plant: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            return plant | {"name": plant["name"].upper()}

        @post_dump
        def mark(self, plant: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            return plant | {"marked": True}

    monkeypatch.setattr("plantstore.views.plant_schema", WithDumpHooks())
    response = site.test_client().post("/garden/plants", json=NEW_PLANT, headers=BEARER)
    assert response.json == {"name": "ROSE", "tag": "garden", "kind": "plant", "marked": True}


def test_fault_in_a_list_of_new_plants() -> None:
    """A fault in the JSON text of a list is reported with its position, or with the member."""
    with pytest.raises(json.JSONDecodeError, match="line 1 column 12"):
        NewPlantSchema().loads('[{"id":1},2', many=True)
    with pytest.raises(ValidationError, match="Must be between"):
        NewPlantSchema().loads('[{"id":1e999,"name":"Rose"}]', many=True)


class WithoutName(NewPlantSchema):
    """A hook that loses the name."""

    @post_load
    def lose(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {"id": data["id"]}


def test_hook_that_loses_a_required_member(
    site: Flask, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a hook of the schema loses the name, the response is 50001 and nothing is stored."""
    monkeypatch.setattr("plantstore.views.new_plant_schema", WithoutName())
    response = site.test_client().post("/garden/plants", json=NEW_PLANT, headers=BEARER)
    check_error(response, 50001)
    assert len(store) == 0
