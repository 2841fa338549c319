"""A strict decoder of JSON text (RFC 8259), which rounds no number."""

import re
from decimal import Context, Decimal
from json import JSONDecodeError, JSONDecoder
from math import isinf
from typing import Any, NoReturn

from .text import printable

# The maximum number of arrays and objects inside each other: Python's own limit depends on its
# version, and on the size of a thread's stack.
_MAX_DEPTH = 100
# A string, or the beginning or the end of an array or an object.
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{\]}]', re.DOTALL)
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
# The exponent of a Decimal is limited. Beyond the limit, this context gives NaN, not an exception.
_NO_TRAPS = Context(traps=[])


def decode_json(json_data: str | bytes | bytearray) -> Any:
    """Return the value of a JSON text, without rounding any number.

    :param json_data: the JSON text; bytes are UTF-8.
    :raises json.JSONDecodeError: if it is not one JSON text (RFC 8259), or is nested more than
        100 levels deep. Its ``pos`` is -1 if the position is unknown.
    """
    try:
        text = json_data if isinstance(json_data, str) else json_data.decode()
        _check_depth(text)
        return _decode(text)
    except UnicodeDecodeError as error:
        start = len(error.object[: error.start].decode())
        text = error.object.decode(errors="replace")
        raise JSONDecodeError("It is not UTF-8", text, start) from None
    except JSONDecodeError as error:
        if error.doc.startswith("\ufeff"):
            raise JSONDecodeError("Remove the byte order mark", error.doc, 0) from None
        raise
    except ValueError:  # Python limits the digits of an integer: sys.get_int_max_str_digits().
        raise JSONDecodeError("An integer has too many digits", text, -1) from None


def describe_json_error(error: JSONDecodeError) -> str:
    """Return why a text cannot be read as JSON, and the position if it is known.

    It is one line, with at most 20 characters of the text.
    """
    if not error.doc or error.doc.isspace():
        return "The body is empty. Send a JSON object."
    fault = error.msg.removesuffix(" at")
    if error.pos < 0:
        return f"The body cannot be read as JSON: {fault}."
    found = printable(error.doc[error.pos : error.pos + 20])
    near = f"near {found}" if found else "the end of the body"
    place = f"at line {error.lineno}, column {error.colno}, {near}"
    return f"The body cannot be read as JSON: {fault} {place}"


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= _MAX_DEPTH:
        return
    depth = 0
    for found in _STRUCTURE.finditer(text):
        depth += _STEPS.get(found[0], 0)
        if depth > _MAX_DEPTH:
            message = f"It is nested more than {_MAX_DEPTH} levels deep"
            raise JSONDecodeError(message, text, found.start())


def _number(literal: str) -> float | Decimal:
    """Return an exact Decimal, or a float if the number is zero or too large for a float."""
    number = float(literal)
    is_zero = not literal.lower().partition("e")[0].strip("-0.")
    return number if is_zero or isinf(number) else Decimal(literal, _NO_TRAPS)


def _refuse_constant(name: str) -> NoReturn:
    raise JSONDecodeError(f"{name} is not a JSON value", name, -1)


_decode = JSONDecoder(parse_float=_number, parse_constant=_refuse_constant).decode
