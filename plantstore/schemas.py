"""The schemas of the interface (section 2)."""

import re
from decimal import Decimal
from functools import cached_property
from math import isfinite
from typing import Any

from marshmallow import EXCLUDE, RAISE, Schema, ValidationError, fields, missing
from marshmallow.exceptions import SCHEMA
from marshmallow.validate import Range

from .decoding import SHALLOW, ObjectDecoder
from .stores.base import INT64
from .text import excerpt

# An integer in its canonical decimal form. 19 digits are enough for int64. Python would refuse to
# convert thousands of them.
_CANONICAL = re.compile("0|-?[1-9][0-9]{0,18}")
# The integers that a 64-bit float never rounds.
_EXACT = range(-(2**53), 2**53 + 1)
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


class Int64(fields.Integer):
    """A signed 64-bit integer. As in JSON Schema 2020-12, ``1.0`` is an integer.

    If it is written with a decimal point or an exponent, its absolute value must not exceed
    2**53: a reader that uses floats would round a larger value (RFC 8259 section 6).
    """

    default_error_messages: dict[str, Any] = {
        "invalid": "Must be an integer, not {kind}.",
        "null": "Must be an integer, not null.",
        "range": "Must be between -2^63 and 2^63-1. Beyond 2^53, write it without a decimal point"
        " or an exponent.",
    }

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> int:
        if type(value) is int:
            return self._within(value, INT64)
        if type(value) not in {float, Decimal}:
            raise self.make_error("invalid", kind=_kind(value))
        if not isfinite(value) or value != int(value):
            raise self.make_error("invalid", kind="a fraction")
        return self._within(int(value), _EXACT)

    def _within(self, value: int, integers: range) -> int:
        if value not in integers:
            raise self.make_error("range")
        return value


class Text(fields.String):
    """A string that every store can keep: no U+0000, no lone surrogate. It may be empty."""

    default_error_messages: dict[str, Any] = {
        "invalid": "Must be a string, not {kind}.",
        "null": "Must be a string, not null.",
        "nul": "Must not contain U+0000.",
        "surrogate": "Must not contain a lone surrogate.",
    }

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> str:
        if type(value) is not str:
            raise self.make_error("invalid", kind=_kind(value))
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
    tag: Text = Text(
        error_messages={"null": "Must be a string, not null. Without a tag, leave it out."}
    )

    def handle_error(self, error: ValidationError, data: Any, **kwargs: Any) -> None:
        """Say what was sent instead of an object."""
        if error.messages == {SCHEMA: [self.error_messages["type"]]}:
            expected = "a list of JSON objects" if kwargs["many"] else "a JSON object"
            error.messages = {SCHEMA: [f"Must be {expected}, not {_kind(data)}."]}


class NewPlantSchema(PlantSchema):
    """A NewPlant, the body of a creation: a Plant and its ``id``. Unknown fields are ignored."""

    id: Int64 = Int64(required=True)

    def loads(self, json_data: str | bytes | bytearray, /, **kwargs: Any) -> Any:
        """Return a NewPlant from JSON text, without rounding its id.

        Members that are not loaded are skipped. If the schema has hooks, or if its option
        ``unknown`` is not ``EXCLUDE``, all members are decoded.

        :param json_data: the JSON text; bytes are UTF-8.
        :param kwargs: options of :meth:`marshmallow.Schema.load`.
        :returns: a dict of ``id``, ``name``, and ``tag`` if the plant has one.
        :raises json.JSONDecodeError: if ``json_data`` is not one JSON text (RFC 8259), is
            nested too deeply, or has a number beyond the range of a 64-bit float in a member
            that is decoded. Its ``pos`` is -1 if the position is unknown.
        :raises marshmallow.ValidationError: if the JSON text is not a NewPlant.
        """
        unknown, many = kwargs.get("unknown") or self.unknown, kwargs.get("many")
        decoder = self._decoder if unknown == EXCLUDE else self._full_decoder
        return self.load(decoder.decode(json_data, self.many if many is None else many), **kwargs)

    @cached_property
    def _decoder(self) -> ObjectDecoder:
        if any(self._hooks.values()):  # A hook may look at everything that was sent.
            return self._full_decoder
        shallow = {Int64, Text}  # A subclass may accept lists and objects.
        types = {
            key: SHALLOW if type(self._loaded[key]) in shallow else Any for key in self._loaded
        }
        return ObjectDecoder(types, self._integers)

    @cached_property
    def _full_decoder(self) -> ObjectDecoder:
        return ObjectDecoder({}, self._integers, every=True)

    @cached_property
    def _loaded(self) -> dict[str, Any]:
        """The fields that are loaded, by their names in JSON."""
        return {
            name if field.data_key is None else field.data_key: field
            for name, field in self.load_fields.items()
        }

    @property
    def _integers(self) -> list[str]:
        return [key for key in self._loaded if isinstance(self._loaded[key], fields.Integer)]


class QueryInteger(fields.Integer):
    """An integer in a query, in its canonical decimal form. It must be given once.

    :param integers: the integers that are valid.
    :param limits: their limits in words, for the message.
    """

    default_error_messages: dict[str, Any] = {
        "invalid": "Must be an integer {limits}.",
        "repeated": "Must be given only once.",
    }

    def __init__(self, integers: range, limits: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._integers, self._limits = integers, limits

    def _deserialize(self, value: list[str], attr: str | None, data: Any, **kwargs: Any) -> int:
        if len(value) > 1:
            raise self.make_error("repeated")
        number = parse_integer(value[0])
        if number is None or number not in self._integers:
            raise self.make_error("invalid", limits=self._limits)
        return number


class PageSchema(Schema):
    """The parameters of a list of plants, each with all its values. An unknown one is refused."""

    class Meta:
        """Options of marshmallow."""

        unknown: str = RAISE

    error_messages: dict[str, str] = {"unknown": "Unknown parameter."}

    limit: QueryInteger = QueryInteger(range(1, 1001), "from 1 to 1000", load_default=100)
    after: QueryInteger = QueryInteger(INT64, "from -2^63 to 2^63-1", load_default=None)


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
    return excerpt(_describe("", {**error.messages_dict}))


def _describe(field: str, messages: Any) -> str:
    if isinstance(messages, dict):
        prefix = f"{field}." if field else ""
        named = {f"{prefix}{'body' if key == SCHEMA else key}": messages[key] for key in messages}
        return " ".join(_describe(name, named[name]) for name in sorted(named))
    texts = [messages] if isinstance(messages, str) else messages
    return f"{field}: {' '.join(map(str, texts))}"


#: Loads a request body.
new_plant_schema: NewPlantSchema = NewPlantSchema()
#: Loads the parameters of a list.
page_schema: PageSchema = PageSchema()
#: Dumps the body of a response.
plant_schema: PlantSchema = PlantSchema()
#: Validates the body of an error response.
error_schema: ErrorSchema = ErrorSchema()
