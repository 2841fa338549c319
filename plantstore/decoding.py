"""Decodes JSON, and builds only the values that are needed.

The lists in a text of 1 MiB can take 40 MiB of memory. A value that nobody needs is therefore
checked, but not built.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from json import JSONDecodeError
from typing import Any, TypedDict

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from .text import excerpt


class _Object(TypedDict):
    """An object whose members are not built."""


class _List(Struct, array_like=True):
    """A list whose items are not built."""


#: Any value, but a list or an object is empty.
SHALLOW: Any = str | int | float | bool | None | _Object | _List

_ITEMS = Decoder(list[Raw])
_SYNTAX = Decoder(Raw)
_ANY: Decoder[Any] = Decoder(Any)

# The types of members that are replaced after the decoding. A float may be rounded.
_PRELIMINARY = {Raw, _List, float}

# Reasons of the decoder whose position is one byte late, and what replaces them.
_ONE_LATE = {
    "trailing characters": "expected nothing after the value",
    "invalid character in unicode escape": "expected a hexadecimal digit",
}
# What the decoder says about a surrogate without its pair.
_SURROGATES = {"unexpected end of hex escape", "invalid utf-16 surrogate pair"}
# The reason that replaces them.
_SURROGATE = "a lone surrogate"
# The reason for a raw control character in a string.
_CONTROL = r"a control character in a string must be escaped, for example as \n"


class ObjectDecoder:
    """Decodes objects.

    :param members: the type of each member that is decoded, by its name: ``Any`` or
        :data:`SHALLOW`.
    :param exact: the names of the members whose numbers are never rounded: a number with a decimal
        point or an exponent is a Decimal.
    :param every: whether every member is decoded completely, also those that are not in
        ``members``, and a text that is not an object too. By default they are not built.
    """

    def __init__(
        self, members: Mapping[str, Any], exact: Iterable[str], every: bool = False
    ) -> None:
        raw = dict.fromkeys(exact, Raw)
        self._raw: Decoder[dict[str, Raw]] = Decoder(_object_type(raw))
        self._exact: dict[str, Decoder[Any]] = {
            name: Decoder(members.get(name, Any)) for name in raw
        }
        if every:
            self._decoder = self._whole = _ANY
        else:
            # A raw member is decoded by itself, so that its digits need no second parse.
            self._decoder = _lean_decoder({**members, **raw})
            self._whole = _lean_decoder(members)

    def decode(self, json_data: str | bytes | bytearray, many: bool = False) -> Any:
        """Return the value of a JSON text.

        :param json_data: the JSON text; bytes are UTF-8.
        :param many: whether the text is a list of objects. By default it is one object.
        :raises json.JSONDecodeError: if it is not one JSON text (RFC 8259), is nested too deeply,
            or has a number beyond the range of a 64-bit float in a member that is decoded. Its
            ``pos`` is -1 if the position is unknown.
        """
        text = _utf8(json_data)
        try:
            return self._list(text) if many else self._object(text)
        except RecursionError:  # It can also be raised by the search for the position of an error.
            raise JSONDecodeError("it is nested too deeply", text.decode(), -1) from None

    def _list(self, text: bytes) -> Any:
        try:
            items = _ITEMS.decode(text)
        except ValidationError:
            return self._object(text)
        except DecodeError as error:
            raise _syntax_error(error, text) from None
        return [self._object(bytes(item)) for item in items]

    def _object(self, text: bytes) -> Any:
        try:
            value = self._decoder.decode(text)
            if type(value) is dict:
                for name, member in value.items():
                    if type(member) in _PRELIMINARY:
                        value[name] = self._member(text, name, member)
        except DecodeError as error:
            raise self._located(error, text) from None
        return [] if type(value) is _List else value

    def _member(self, text: bytes, name: str, value: Any) -> Any:
        """Return the final value of a member of the object in ``text``."""
        raw = None
        if type(value) is Raw:
            raw, value = value, self._exact[name].decode(value)
        if type(value) is float and name in self._exact:
            return _exact_number(bytes(raw or self._raw.decode(text)[name]), value)
        return [] if type(value) is _List else value

    def _located(self, error: DecodeError, text: bytes) -> JSONDecodeError:
        """Return the error with its position in the text, which that of a raw member lacks."""
        try:
            self._whole.decode(text)
        except DecodeError as found:
            error = found
        if isinstance(error, ValidationError):
            return _range_error(error, text)
        return _syntax_error(error, text)


def describe_json_error(error: JSONDecodeError) -> str:
    """Return what is wrong with a text that cannot be read as JSON, and where if that is known.

    It is one line of at most 500 characters, with at most 20 characters of the text.
    """
    if not error.doc or error.doc.isspace():
        return "The body is empty. Send a JSON object."
    text = f"The body cannot be read as JSON: {error.msg}"
    if error.pos < 0:
        return excerpt(f"{text}.")
    place = f"at line {error.lineno}, column {error.colno}"
    found = error.doc[error.pos : error.pos + 20]
    return excerpt(f"{text}, {place}: {found}" if found else f"{text}, {place}.")


def _lean_decoder(members: Mapping[str, Any]) -> Decoder[Any]:
    """Return a decoder of objects with these members, which builds no others."""
    return Decoder(_object_type(members) | str | int | float | bool | None | _List)


def _exact_number(literal: bytes, rounded: float) -> float | Decimal:
    # A zero needs no Decimal, which does not have every exponent.
    if not literal.lower().partition(b"e")[0].strip(b"-0."):
        return rounded
    # Without traps, a number that Decimal cannot represent is NaN instead of an exception.
    return Decimal(literal.decode(), Context(traps=[]))


def _object_type(members: Mapping[str, Any]) -> Any:
    """Return the type of an object with these members. All others are skipped."""
    make: Any = TypedDict  # mypy accepts only literal names.
    return make("Members", members, total=False)


def _utf8(text: str | bytes | bytearray) -> bytes:
    """Return a text in UTF-8. The decoder does not check UTF-8 in the members that it skips."""
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise JSONDecodeError(_SURROGATE, text, error.start) from None
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise _error("it is not UTF-8", text, error.start) from None
    return bytes(text)


def _range_error(error: ValidationError, text: bytes) -> JSONDecodeError:
    """Return the error. It names the member: its position is unknown."""
    member = re.search(r"\$\.([^.`[]+)", str(error))
    place = f'in "{member[1]}" ' if member else ""
    reason = f"a number {place}is beyond the range of a 64-bit float"
    return JSONDecodeError(reason, text.decode(), -1)


def _syntax_error(error: DecodeError, text: bytes) -> JSONDecodeError:
    """Return the error with its position, and with what is expected there."""
    message = _fault(text, str(error))
    fault = re.fullmatch(r"JSON is malformed: (.*) \(byte (\d+)\)", message)
    reason, at = (fault[1], int(fault[2])) if fault else ("", len(text))
    if reason in _ONE_LATE:
        reason, at = _ONE_LATE[reason], at - 1
    if at >= len(text):
        return _error("it ends too early", text, len(text))
    if text.startswith(BOM_UTF8):
        return _error("remove the byte order mark", text, 0)
    reason, at = _expected(reason, text, at)
    return _error(reason, text, at)


def _fault(text: bytes, fault: str = "") -> str:
    """Return what the decoder says about the syntax of a text, or else ``fault``."""
    try:
        # Without white space at the end, it takes some faults there for a text that is cut short.
        _SYNTAX.decode(text + b" " * 12)
    except DecodeError as error:
        fault = str(error)
    return fault


def _expected(reason: str, text: bytes, at: int) -> tuple[str, int]:
    """Return a reason of the decoder and its position, or more helpful ones."""
    if reason == "invalid number":
        zero = text[at] in b"0123456789"
        return ("a number must not begin with 0", at - 1) if zero else ("expected a digit", at)
    if reason == "invalid character":
        # In a string, only control characters are invalid.
        if "truncated" in _fault(text[:at] + b"!"):
            return _CONTROL, at
        # The decoder reports a wrong word after its first character.
        return "expected a value", len(text[:at].rstrip(b"-tfn"))
    if reason == "invalid utf-16 surrogate pair" and "hex escape" in _fault(text[: at - 6] + b"!"):
        return _SURROGATE, at - 12  # The first escape of the two is the lone surrogate.
    return (_SURROGATE, at - 6) if reason in _SURROGATES else (reason, at)


def _error(reason: str, text: bytes | bytearray, at: int) -> JSONDecodeError:
    position = len(text[:at].decode(errors="ignore"))  # In characters.
    return JSONDecodeError(reason, text.decode(errors="replace"), position)
