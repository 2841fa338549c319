"""Decodes JSON, and builds only the values that are needed.

The lists in a text of 1 MiB can take 40 MiB of memory. A value that nobody needs is therefore
checked, but not built.
"""

import re
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from json import JSONDecodeError
from typing import Any, TypedDict

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

_Text = bytes | bytearray | Raw


class _Object(TypedDict):
    """An object whose members are not built."""


class _List(Struct, array_like=True):
    """A list whose items are not built."""


#: Any value, but a list or an object is empty.
SHALLOW: Any = str | int | float | bool | None | _Object | _List

_ITEMS = Decoder(list[Raw])
_SYNTAX = Decoder(Raw)


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
        lean: Any = _object_type(members) | str | int | float | bool | None | _List
        self._decoder: Decoder[Any] = Decoder(Any if every else lean)
        self._exact: Decoder[dict[str, Raw]] = Decoder(_object_type(dict.fromkeys(exact, Raw)))

    def decode(self, json_data: str | bytes | bytearray, many: bool = False) -> Any:
        """Return the value of a JSON text.

        :param json_data: the JSON text; bytes are UTF-8.
        :param many: whether the text is a list of objects. By default it is one object.
        :raises json.JSONDecodeError: if it is not one JSON text (RFC 8259), is nested too deeply,
            or has a number beyond the range of a 64-bit float in a member that is decoded.
        """
        text = _utf8(json_data)
        try:
            return self._list(text) if many else self._object(text)
        except ValidationError as error:
            raise _range_error(error, text) from None
        except DecodeError as error:
            raise _syntax_error(error, text) from None
        except RecursionError:
            raise _error("it is nested too deeply", text, 0) from None

    def _list(self, text: _Text) -> Any:
        try:
            items = _ITEMS.decode(text)
        except ValidationError:
            return self._decoder.decode(text)
        return [self._object(item) for item in items]

    def _object(self, text: _Text) -> Any:
        value = self._decoder.decode(text)
        if type(value) is dict:
            for name, member in value.items():
                if type(member) is float:
                    value[name] = self._number(text, name, member)
                elif type(member) is _List:
                    value[name] = []
        return [] if type(value) is _List else value

    def _number(self, text: _Text, name: str, rounded: float) -> float | Decimal:
        raw = self._exact.decode(text).get(name)
        # Without traps, a number that Decimal cannot represent is NaN instead of an exception.
        return rounded if raw is None else Decimal(bytes(raw).decode(), Context(traps=[]))


def _object_type(members: Mapping[str, Any]) -> Any:
    """Return the type of an object with these members. All others are skipped."""
    make: Any = TypedDict  # mypy accepts only literal names.
    return make("Members", members, total=False)


def _utf8(text: str | bytes | bytearray) -> bytes | bytearray:
    """Return a text in UTF-8. The decoder does not check UTF-8 in the members that it skips."""
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise JSONDecodeError("a lone surrogate", text, error.start) from None
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise _error("it is not UTF-8", text, error.start) from None
    return text


def _range_error(error: ValidationError, text: bytes | bytearray) -> JSONDecodeError:
    """Return the error, with the position of the member."""
    name = str(error).rpartition("$.")[2].strip("`")
    at = text.rfind(f'"{name}"'.encode())
    return _error("a number is beyond the range of a 64-bit float", text, max(at, 0))


def _syntax_error(error: DecodeError, text: bytes | bytearray) -> JSONDecodeError:
    """Return the error with its position."""
    try:
        # At the end of a text, the decoder takes a lone surrogate for a text that is cut short.
        _SYNTAX.decode(text + b" " * 12)
    except DecodeError as precise:
        error = precise
    fault = re.fullmatch(r"JSON is malformed: (.*) \(byte (\d+)\)", str(error))
    if fault is None or int(fault[2]) >= len(text):
        return _error("it ends too early", text, len(text))
    reason, at = fault[1], int(fault[2])
    if reason in {"unexpected end of hex escape", "invalid utf-16 surrogate pair"}:
        return _error("a lone surrogate", text, at - len(r"\ud800"))
    if reason == "trailing characters":
        at -= 1
    # In a string, only control characters are invalid.
    if reason == "invalid character" and text[at] >= 32 and text[:at].rstrip()[-1:] in b"[,:":
        reason = "expected a value"
    return _error(reason, text, at)


def _error(reason: str, text: bytes | bytearray, at: int) -> JSONDecodeError:
    position = len(text[:at].decode(errors="ignore"))  # In characters.
    return JSONDecodeError(reason, text.decode(errors="replace"), position)
