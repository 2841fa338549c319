"""What goes over the wire (interface section 2), and one instance of each, named by its role."""

import json
from decimal import Context, Decimal
from math import isfinite
from typing import Any

import orjson
from marshmallow import EXCLUDE, Schema, ValidationError, fields, missing
from marshmallow.validate import Range


class _Field(fields.Field[Any]):
    """A field that has its validators run where it has any."""

    def _validate(self, value: Any) -> None:
        if self.validators:  # marshmallow makes one of them all, each time, also of none.
            super()._validate(value)


class Int64(_Field, fields.Integer):
    """An integer as JSON Schema 2020-12 has it, ``1.0`` included, within 64 bits.

    With a fraction or an exponent it may go up to 2**53, where those who read such
    numbers as floats still read the same (RFC 8259 section 6).
    """

    default_error_messages = {
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


class Text(_Field, fields.String):
    """A string that every store can hold: no U+0000, no lone surrogate; it may be empty."""

    default_error_messages = {
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
    """A Plant: ``name``, and ``tag`` if there is one."""

    class Meta:
        """The interface's objects are open: other members are ignored."""

        unknown = EXCLUDE

    error_messages = {"type": "Not a JSON object."}

    name = Text(required=True)
    tag = Text()


class NewPlantSchema(PlantSchema):
    """A NewPlant, the body of a creation: a Plant and its ``id``. Other members are ignored."""

    id = Int64(required=True)

    def loads(self, text: str | bytes | bytearray, /, **kwargs: Any) -> Any:
        """Load a NewPlant from JSON text, its id exactly as it is written there.

        Raises :exc:`ValueError` for what is not one JSON text (RFC 8259), or nests too
        deeply, and :exc:`~marshmallow.ValidationError` for one that is not a NewPlant.
        """
        data = orjson.loads(text)
        if isinstance(data, dict) and isinstance(data.get("id"), float):
            data["id"] = _written(text, "id")
        return self.load(data, **kwargs)


class _PlainSchema(NewPlantSchema):
    """A NewPlant's schema that goes over a dict's members one by one, and does nothing else.

    It has no nested objects, hooks or options, and to be ready for those is most of what a
    load costs marshmallow.
    """

    def load(self, data: Any, **kwargs: Any) -> Any:
        """Load a NewPlant from a dict; raises :exc:`~marshmallow.ValidationError`."""
        if kwargs or type(data) is not dict:
            return super().load(data, **kwargs)
        loaded, faults = {}, {}
        for member, field in self.load_fields.items():
            try:
                value = field.deserialize(data.get(member, missing), member, data)
            except ValidationError as error:
                faults[member] = error.messages
            else:
                if value is not missing:
                    loaded[member] = value
        if faults:
            raise ValidationError(faults, data=data, valid_data=loaded)
        return loaded


def _written(text: str | bytes | bytearray, member: str) -> Decimal:
    """Return a member's number as it is written, which a float might have rounded."""
    try:
        numbers = json.loads(text, parse_float=str)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Without traps, what is beyond even a Decimal is NaN.
    return Decimal(numbers[member], Context(traps=[]))


class ErrorSchema(Schema):
    """An Error: ``error``, a number within int32, and ``message``."""

    error = fields.Integer(strict=True, required=True, validate=Range(-(2**31), 2**31 - 1))
    message = fields.String(required=True)


new_plant_schema = _PlainSchema()
plant_schema = PlantSchema()
error_schema = ErrorSchema()
