"""The schemas NewPlant, Plant and Error of the OpenAPI document: what is valid."""

import re
from decimal import Decimal
from math import isinf, isnan
from typing import TYPE_CHECKING, Any

from marshmallow import EXCLUDE, Schema, ValidationError, fields, missing
from marshmallow.exceptions import SCHEMA
from marshmallow.validate import Range

from .json_text import decode_json
from .stores.base import INT64, Plant, int64_fault, text_fault
from .text import one_line

if TYPE_CHECKING:
    _Field = fields.Field[Any]
else:
    _Field = fields.Field  # In marshmallow 3, it has no parameter.

# An integer in its canonical decimal form. 19 digits are enough for int64. Python would refuse to
# convert thousands of them.
_CANONICAL = re.compile("0|-?[1-9][0-9]{0,18}")
# The integers to which a 64-bit float rounds no other integer.
_NEVER_ROUNDED = range(-(2**53) + 1, 2**53)
# What a client has sent instead of the right type. A bool is not a number in JSON.
_KINDS: dict[type, str] = {
    bool: "a boolean",
    dict: "an object",
    list: "a list",
    str: "a string",
    type(None): "null",
    **dict.fromkeys((int, float, Decimal), "a number"),
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), type(value).__name__)


class PlantField(_Field):
    """What the fields of a plant have in common: a plant may have no value."""

    def serialize(self, attr: str, obj: Any, accessor: Any = None, **kwargs: Any) -> Any:
        """Return the value of a plant, or ``missing`` if it has none: the field is left out."""
        if type(obj) is Plant and self.attribute is None:
            value = getattr(obj, attr)  # marshmallow, which takes any object, would take longer.
        else:
            value = super().serialize(attr, obj, accessor, **kwargs)
        return missing if value is None else value

    def _validate(self, value: Any) -> None:
        if self.validators:  # Otherwise marshmallow makes an object that calls none of them.
            super()._validate(value)


class Int64(PlantField, fields.Integer):
    """A signed 64-bit integer. As in JSON Schema 2020-12, ``1.0`` is an integer.

    If it is written with a decimal point or an exponent, its absolute value must be less than
    2**53: the writer may have rounded a float of this size (RFC 7493 section 2.2).
    """

    default_error_messages: dict[str, Any] = {
        "invalid": "Must be an integer, not {kind}.",
        "null": "Must be an integer, not null.",
        "range": "Must be between -2^63 and 2^63-1. From 2^53 on, write it without a decimal point"
        " or an exponent.",
    }

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        id = value if type(value) is int else self._exact(value)
        if int64_fault(id):
            raise self.make_error("range")
        return id

    def _exact(self, value: Any) -> int:
        if type(value) not in {float, Decimal}:
            raise self.make_error("invalid", kind=_kind(value))
        if isinf(value):
            raise self.make_error("range")
        if isnan(value) or value != int(value):
            raise self.make_error("invalid", kind="a fraction")
        if int(value) not in _NEVER_ROUNDED:
            raise self.make_error("range")
        return int(value)


class Text(PlantField, fields.String):
    """A string that every store can keep: no U+0000, no lone surrogate. It may be empty."""

    default_error_messages: dict[str, Any] = {
        "invalid": "Must be a string, not {kind}.",
        "null": "Must be a string, not null.",
    }

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        if type(value) is not str:
            raise self.make_error("invalid", kind=_kind(value))
        if fault := text_fault(value):
            raise ValidationError(fault)
        return value


class PlantSchema(Schema):
    """A Plant: ``name``, and ``tag`` if the plant has one. Unknown fields are ignored."""

    class Meta:
        """Options of marshmallow."""

        unknown: str = EXCLUDE

    error_messages: dict[str, str] = {"type": "Not a JSON object."}

    name: Text = Text(required=True)
    tag: Text = Text(
        error_messages={"null": "Must be a string, not null. Without a tag, leave it out."}
    )

    def loads(self, json_data: str | bytes | bytearray, /, **kwargs: Any) -> Any:
        """Load JSON text. An id is never rounded.

        :param json_data: the JSON text; bytes are UTF-8.
        :param kwargs: options of :meth:`marshmallow.Schema.load`.
        :returns: a dict of the fields that the JSON text has.
        :raises json.JSONDecodeError: if ``json_data`` is not one JSON text (RFC 8259), or is nested
            more than 100 levels deep. Its ``pos`` is -1 if the position is unknown.
        :raises marshmallow.ValidationError: if the JSON text is not what the schema describes.
        """
        return self.load(decode_json(json_data), **kwargs)

    def handle_error(self, error: ValidationError, data: Any, **kwargs: Any) -> None:
        """Say what was sent instead of an object."""
        if error.messages == {SCHEMA: [self.error_messages["type"]]}:
            error.messages = {SCHEMA: [f"Must be a JSON object, not {_kind(data)}."]}


class NewPlantSchema(PlantSchema):
    """A NewPlant, the body of a creation: a Plant and its ``id``. Unknown fields are ignored."""

    id: Int64 = Int64(required=True)


def _parameter(integers: range, limits: str, **options: Any) -> fields.Function:
    """Return the field of a parameter: one of some integers, given once in its canonical form."""

    def read(values: list[str]) -> int:
        number = parse_integer(values[0])
        if len(values) > 1:
            raise ValidationError("Must be given only once.")
        if number is None or number not in integers:
            raise ValidationError(f"Must be an integer {limits}.")
        return number

    return fields.Function(deserialize=read, **options)


class PageSchema(Schema):
    """The parameters of a list of plants, each with all its values. An unknown one is refused."""

    error_messages: dict[str, str] = {
        "unknown": "Unknown parameter. The parameters are limit and after."
    }

    limit: fields.Function = _parameter(range(1, 1001), "from 1 to 1000", load_default=100)
    after: fields.Function = _parameter(INT64, "from -2^63 to 2^63-1", load_default=None)


class ErrorSchema(Schema):
    """An Error: ``error``, a number within int32, and ``message``."""

    error: fields.Integer = fields.Integer(
        strict=True, required=True, validate=Range(-(2**31), 2**31 - 1)
    )
    message: fields.String = fields.String(required=True)


def parse_integer(text: str) -> int | None:
    """Return an integer that is written in its canonical decimal form, or ``None``.

    The form has no plus sign, no leading zero and no white space. It is that of every int64.
    """
    return int(text) if _CANONICAL.fullmatch(text) else None


def describe_faults(error: ValidationError) -> str:
    """Return what is wrong with each invalid field, in alphabetical order.

    It is one line of at most 500 characters.
    """
    messages = error.messages_dict
    named = {"body" if name == SCHEMA else name: messages[name] for name in messages}
    faults = [f"{name}: {' '.join(named[name])}" for name in sorted(named)]
    return one_line(" ".join(faults), 500)


#: Loads the body of a create, and dumps the plants of a list.
new_plant_schema: NewPlantSchema = NewPlantSchema()
#: Loads the parameters of a list.
page_schema: PageSchema = PageSchema()
#: Loads the body of an update, and dumps the plant in a response.
plant_schema: PlantSchema = PlantSchema()
