"""The schemas of the interface (section 2)."""

import json
from decimal import Context, Decimal
from math import isfinite
from typing import Any

import orjson
from marshmallow import EXCLUDE, Schema, fields, missing
from marshmallow.validate import Range


class Int64(fields.Integer):
    """A signed 64-bit integer. As in JSON Schema 2020-12, ``1.0`` is an integer.

    If it is written with a decimal point or an exponent, its absolute value must not exceed
    2**53: a reader that uses floats would round a larger value (RFC 8259 section 6).
    """

    default_error_messages: dict[str, Any] = {
        "range": "Must be between -2^63 and 2^63-1. Beyond 2^53, write it without a decimal point"
        " or an exponent.",
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
        "nul": "Must not contain U+0000.",
        "surrogate": "Must not contain a lone surrogate.",
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
        return missing if value is None else value  # Without a tag, the field is left out.


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
        """Return a NewPlant from JSON text, without rounding its id.

        :param json_data: the JSON text; bytes are UTF-8.
        :param kwargs: options of :meth:`marshmallow.Schema.load`.
        :returns: a dict of ``id``, ``name``, and ``tag`` if the plant has one.
        :raises json.JSONDecodeError: if ``json_data`` is not one JSON text (RFC 8259), or is
            nested too deeply.
        :raises marshmallow.ValidationError: if the JSON text is not a NewPlant.
        """
        data = orjson.loads(json_data)
        key = self.fields["id"].data_key or "id"
        if isinstance(data, dict) and isinstance(data.get(key), float):
            data[key] = _exact_number(json_data, key)
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
        raise json.JSONDecodeError("nested too deeply", "", 0) from None
    # Without traps, a number that Decimal cannot represent is NaN instead of an exception.
    return Decimal(numbers[field], Context(traps=[]))


#: Loads a request body.
new_plant_schema: NewPlantSchema = NewPlantSchema()
#: Dumps the body of a response.
plant_schema: PlantSchema = PlantSchema()
#: Validates the body of an error response.
error_schema: ErrorSchema = ErrorSchema()
