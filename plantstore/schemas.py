"""What goes over the wire (interface section 2), and one instance of each, named by its role."""

from typing import Any

from marshmallow import EXCLUDE, Schema, fields
from marshmallow.utils import get_value


class Int64(fields.Integer):
    """An integer as JSON Schema 2020-12 has it, ``1.0`` included, within 64 bits.

    A float stands for an integer only below 2**53: from there on, floats are what
    other integers were rounded to (RFC 8259 section 6).
    """

    default_error_messages = {
        "range": "Must be within -2^63 and 2^63-1, and from 2^53 on be written as digits only.",
    }

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        if type(value) is float and value.is_integer():
            if abs(value) >= 2**53:
                raise self.make_error("range")
            return int(value)
        if type(value) is not int:
            raise self.make_error("invalid")
        if not -(2**63) <= value < 2**63:
            raise self.make_error("range")
        return value


class Text(fields.String):
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


class PlantSchema(Schema):
    """A Plant: ``name``, and ``tag`` if there is one."""

    class Meta:  # noqa: D106
        unknown = EXCLUDE

    error_messages = {"type": "Not a JSON object."}

    name = Text(required=True)
    tag = Text()

    def get_attribute(self, obj: Any, attr: str, default: Any) -> Any:
        """Take ``None`` for missing, so that a plant without a tag is dumped without one."""
        value = get_value(obj, attr, default)
        return default if value is None else value


class NewPlantSchema(PlantSchema):
    """A NewPlant, the body of a creation: a Plant and its ``id``. Other members are ignored."""

    id = Int64(required=True)


class ErrorSchema(Schema):
    """An Error: ``error``, a number within int32, and ``message``."""

    error = fields.Integer(required=True)
    message = fields.String(required=True)


new_plant_schema = NewPlantSchema()
plant_schema = PlantSchema()
error_schema = ErrorSchema()
