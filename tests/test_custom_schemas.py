"""What a developer adds to NewPlantSchema works over HTTP."""

from json import JSONDecodeError
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


class WithHooks(NewPlantSchema):
    """A hook that changes what the client has sent, and one that validates all fields together."""

    @pre_load
    def strip(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return data | {"name": data["name"].strip()}

    @validates_schema
    def no_twins(self, data: dict[str, Any], **kwargs: Any) -> None:
        if data["name"] == data.get("tag"):
            raise ValidationError("The tag repeats the name.")
        if data["name"] == "x":
            raise ValidationError({"name": "No."})  # A message that is not in a list.


class WithValidators(NewPlantSchema):
    """Validators of fields."""

    name = Text(required=True, validate=[Length(min=3), Length(max=9)])
    tag = Text(validate=OneOf(["garden"]), error_messages={"invalid": "Not a tag."})


class WithMoreFields(NewPlantSchema):
    """More fields, and unknown ones; the id has another name in JSON, and the tag may be null."""

    class Meta:
        """Options."""

        unknown = INCLUDE

    id = Int64(required=True, data_key="number")
    tag = Text(allow_none=True)
    depth = fields.Integer()
    leaves = fields.List(fields.Integer())
    pot = fields.Nested(PlantSchema)


class Fails(NewPlantSchema):
    """A hook that fails."""

    @pre_load
    def fail(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        raise ValueError("hunter2")


class LosesName(NewPlantSchema):
    """A hook that loses the name."""

    @post_load
    def lose(self, data: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {"id": data["id"]}


def send(site: Flask, monkeypatch: pytest.MonkeyPatch, schema: Schema, **changes: Any) -> Any:
    """Send a plant to a site that validates with this schema."""
    monkeypatch.setattr("plantstore.views.new_plant_schema", schema)
    return site.test_client().post("/garden/plants", json=NEW_PLANT | changes, headers=BEARER)


LOAD_ONLY = NewPlantSchema.from_dict({"note": fields.String(load_only=True)})
ROSE = {"name": "Rose"}


@pytest.mark.parametrize(
    ("schema", "changes", "plant"),
    [
        (NewPlantSchema(), {}, {"name": "Rose", "tag": "garden"}),
        (WithHooks(), {"name": "  Lily "}, {"name": "Lily", "tag": "garden"}),
        (NewPlantSchema(exclude=["tag"]), {}, ROSE),
        (NewPlantSchema(only=["id", "name"]), {}, ROSE),
        (NewPlantSchema(dump_only=["tag"]), {}, ROSE),
        (LOAD_ONLY(only=["id", "name"]), {}, ROSE),
        (WithMoreFields(), {"number": 7, "depth": 7, "age": 5, "tag": None}, ROSE),
    ],
)
def test_hooks_and_options_that_change_a_plant(
    site: Flask, monkeypatch: pytest.MonkeyPatch, schema: Schema, changes: Any, plant: Any
) -> None:
    """A hook, option or field of NewPlantSchema that changes plants also does so over HTTP."""
    response = send(site, monkeypatch, schema, **changes)
    assert (response.status_code, response.json) == (200, plant)


MORE = {"number": 7}


@pytest.mark.parametrize(
    ("schema", "changes", "message"),
    [
        (WithHooks(), {"tag": "Rose"}, "body: The tag repeats the name."),
        (WithHooks(), {"name": "x"}, "name: No."),
        (NewPlantSchema(unknown=RAISE), {"age": 7}, "age: Unknown field."),
        (WithValidators(), {"name": "ab"}, "name: Shorter than minimum length 3."),
        (WithValidators(), {"name": "abcdefghij"}, "name: Longer than maximum length 9."),
        (WithValidators(), {"tag": "indoor"}, "tag: Must be one of: garden."),
        (WithValidators(), {"tag": 5}, "tag: Not a tag."),
        (NewPlantSchema(many=True), {}, "body: Must be a list of JSON objects, not an object."),
        (WithMoreFields(), {}, "number: Missing data for required field."),
        (WithMoreFields(), MORE | {"depth": "x"}, "depth: Not a valid integer."),
        (WithMoreFields(), MORE | {"leaves": [1, "x"]}, "leaves.1: Not a valid integer."),
        (WithMoreFields(), MORE | {"pot": {}}, "pot.name: Missing data for required field."),
        (WithMoreFields(), MORE | {"pot": 5}, "pot.body: Must be a JSON object, not a number."),
    ],
)
def test_hooks_and_options_that_refuse_a_plant(
    site: Flask, monkeypatch: pytest.MonkeyPatch, schema: Schema, changes: Any, message: str
) -> None:
    """A hook, option or field of NewPlantSchema that refuses plants also does so over HTTP."""
    assert check_error(send(site, monkeypatch, schema, **changes), 40003) == message


@pytest.mark.parametrize("schema", [Fails(), LosesName()])
def test_hook_that_fails_or_loses_a_required_member(
    site: Flask, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, schema: Schema
) -> None:
    """A fault in a hook is 50001, not one of the client, and nothing is stored."""
    assert "hunter2" not in check_error(send(site, monkeypatch, schema), 50001)
    assert len(store) == 0


@pytest.mark.parametrize("name", ["x" * 60_000, "\x1b" * 300, "\n\x1b[31m\u202e" * 3_000])
def test_message_for_a_long_member_name(
    site: Flask, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A message that names a member is one printable line of at most 500 characters."""
    response = send(site, monkeypatch, NewPlantSchema(unknown=RAISE), **{name: 1})
    assert check_error(response, 40003).isprintable()


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


NUMBERS = b'{"id":9007199254740993.0,"name":"Rose","number":9007199254740993.0}'


@pytest.mark.parametrize("options", [{}, {"unknown": RAISE}, {"many": True}, {"partial": True}])
@pytest.mark.parametrize("schema", [NewPlantSchema, WithHooks, WithMoreFields])
def test_id_is_not_rounded_with_any_option(schema: type[Schema], options: Any) -> None:
    """An id is never rounded, whatever the schema and the options of loads are."""
    body = b"[%s]" % NUMBERS if "many" in options else NUMBERS
    with pytest.raises(ValidationError, match="Must be between"):
        schema().loads(body, **options)


@pytest.mark.parametrize("kind", [str, str.encode, lambda text: bytearray(text, "utf-8")])
def test_loads_accepts_str_and_bytes(kind: Any) -> None:
    """Loads accepts a str, bytes and a bytearray, as marshmallow does."""
    assert NewPlantSchema().loads(kind('{"id":1,"name":"früh"}')) == {"id": 1, "name": "früh"}


def test_faults_of_a_text_that_loads_refuses() -> None:
    """A fault in the JSON text has its position; a lone surrogate in a str is an invalid name."""
    surrogate = '{"id":1,"name":"\ud800"}'
    with pytest.raises(ValidationError, match="surrogate"):
        NewPlantSchema().loads(surrogate)
    with pytest.raises(JSONDecodeError, match="line 1 column 17"):
        NewPlantSchema().loads(bytearray(surrogate, "utf-8", "surrogatepass"))
    with pytest.raises(JSONDecodeError, match="line 1 column 12"):
        NewPlantSchema().loads('[{"id":1},2', many=True)


def test_number_that_no_float_can_have() -> None:
    """A number beyond the range of a float is infinite in a field that a developer adds."""
    schema = NewPlantSchema.from_dict({"depths": fields.List(fields.Float(allow_nan=True))})()
    loaded = schema.loads('{"id":1,"name":"Rose","depths":[1,1e400,1e999999999999]}')
    assert loaded["depths"] == [1, inf, inf]
