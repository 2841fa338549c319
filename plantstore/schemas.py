"""The objects of the interface (section 2), and one instance of each schema, named by its role."""

import json
from decimal import Context, Decimal
from math import isfinite
from typing import Any

import orjson
from marshmallow import EXCLUDE, Schema, fields, missing
from marshmallow.validate import Range


class Int64(fields.Integer):
    """An integer of 64 bits, as JSON Schema 2020-12 defines integers: ``1.0`` is one.

    With a fraction or an exponent it may go up to 2**53: up to there, a reader that uses
    floats reads the same integer (RFC 8259 section 6).
    """

    default_error_messages: dict[str, Any] = {
        "range": "Must be within -2^63 and 2^63-1, and beyond 2^53 be written as digits only.",
    }

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        if type(value) is int:
            return self._within(value, -(2**63), 2**63 - 1)
        if type(value) not in {float, Decimal} or not isfinite(value) or value != int(value):
            raise self.make_error("invalid")
        return self._within(int(value), -(2**53), 2**53)

    def _within(self, value: int, lowest: int, highest: int) -> int:
        if not lowest <= value <= highest:
            raise self.make_error("range")
        return value


class Text(fields.String):
    """A string that every store can keep: no U+0000, no lone surrogate. It may be empty."""

    default_error_messages: dict[str, Any] = {
        "nul": "May not contain U+0000.",
        "surrogate": "May not contain a lone surrogate.",
    }

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        if type(value) is not str:
            raise self.make_error("invalid")
        if "\0" in value:
            raise self.make_error("nul")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.make_error("surrogate") from None
        return value

    def _serialize(self, value: Any, attr: str | None, obj: Any, **kwargs: Any) -> Any:
        return missing if value is None else value  # A plant without a tag.


class PlantSchema(Schema):
    """A Plant: ``name``, and ``tag`` if the plant has one. Unknown fields are ignored."""

    class Meta:
        """Options of marshmallow."""

        unknown: str = EXCLUDE

    error_messages: dict[str, str] = {"type": "Not a JSON object."}

    name: Text = Text(required=True)
    tag: Text = Text()


class NewPlantSchema(PlantSchema):
    """A NewPlant, the body of a creation: a Plant and its ``id``. Unknown fields are ignored."""

    id: Int64 = Int64(required=True)

    def loads(self, json_data: str | bytes | bytearray, /, **kwargs: Any) -> Any:
        """Return a NewPlant from JSON text, its id exactly as it is written there.

        :param json_data: the JSON text; bytes are UTF-8.
        :param kwargs: options of :meth:`marshmallow.Schema.load`.
        :returns: a dict of ``id``, ``name``, and ``tag`` if the plant has one.
        :raises ValueError: if it is not one JSON text (RFC 8259), or is nested too deeply.
        :raises marshmallow.ValidationError: if it is not a NewPlant.
        """
        data = orjson.loads(json_data)
        if isinstance(data, dict) and isinstance(data.get("id"), float):
            data["id"] = _exact_number(json_data, "id")
        return self.load(data, **kwargs)


class ErrorSchema(Schema):
    """An Error: ``error``, a number within int32, and ``message``."""

    error: fields.Integer = fields.Integer(
        strict=True, required=True, validate=Range(-(2**31), 2**31 - 1)
    )
    message: fields.String = fields.String(required=True)


def _exact_number(text: str | bytes | bytearray, field: str) -> Decimal:
    """Return a field's number as it is written. A float would be rounded."""
    try:
        numbers = json.loads(text, parse_float=str)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Without traps, what is beyond even a Decimal is NaN.
    return Decimal(numbers[field], Context(traps=[]))


new_plant_schema: NewPlantSchema = NewPlantSchema()
plant_schema: PlantSchema = PlantSchema()
error_schema: ErrorSchema = ErrorSchema()
