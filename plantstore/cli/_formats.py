"""Files of plants: JSON Lines, and CSV with a header."""

import codecs
import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import partial
from itertools import chain
from json import JSONDecodeError
from types import SimpleNamespace
from typing import Any

import click
from marshmallow import ValidationError

from ..json_text import decode_json
from ..responses import dump_json
from ..schemas import Int64, describe_faults, new_plant_schema
from ..stores.base import Plant
from ..text import one_line

#: The number of a line, and the plant that begins there.
Numbered = tuple[int, Plant]
_fields = new_plant_schema.load_fields
_REQUIRED = {name for name in _fields if _fields[name].required}
_INTEGERS = {name for name in _fields if isinstance(_fields[name], Int64)}
# An integer in CSV, also as pandas writes it. Another form, such as 1.23E+11, may be rounded.
_INTEGER = re.compile(r"\s*-?[0-9]{1,19}(\.0)?\s*", re.ASCII)


def _read_jsonl(lines: Iterable[bytes]) -> Iterator[Numbered]:
    for number, line in enumerate(lines, 1):
        if text := line.removeprefix(codecs.BOM_UTF8).strip():
            yield number, _plant(number, decode_json, text)


def _read_csv(lines: Iterable[bytes]) -> Iterator[Numbered]:
    csv.field_size_limit(sys.maxsize)  # The default is 131,072 characters.
    rows = csv.reader(codecs.iterdecode(lines, "utf-8-sig"), skipinitialspace=True, strict=True)
    number, names = 1, list[str]()  # A csv.DictReader does not know in which line a row begins.
    try:
        for row in rows:
            if any(row) and names:
                yield number, _plant(number, partial(_members, names), row)
            elif any(row):
                names = [cell.lower() for cell in row]
                if len({*names}) < len(names) or not _REQUIRED <= {*names} <= {*_fields}:
                    known = ", ".join(Plant._fields)
                    raise _wrong(number, f"Must have the names {known}, not {_shown(row)}.")
            number = rows.line_num + 1
    except (csv.Error, UnicodeDecodeError):  # Their messages are written for programmers.
        fault = "Not CSV in UTF-8: look at the encoding, the quotation marks, and the line ends."
        raise _wrong(number, fault) from None


def _members(names: list[str], row: list[str]) -> dict[str, Any]:
    """Return the members of a row. An empty cell is none, unless it is required."""
    if len(row) != len(names):
        raise ValidationError({"cells": [f"Must be {len(names)}, not {_shown(row)}."]})
    cells = zip(names, row, strict=True)
    members: dict[str, Any] = {name: cell for name, cell in cells if cell or name in _REQUIRED}
    for name in _INTEGERS & members.keys():
        cell = members[name]
        if _INTEGER.fullmatch(cell) is None:
            fault = f"Must be an integer from -2^63 to 2^63-1, in digits, not {_shown([cell])}."
            raise ValidationError({name: [fault]})
        members[name] = Decimal(cell) if "." in cell else int(cell)
    return members


def _plant(number: int, members_of: Callable[[Any], Any], line: Any) -> Plant:
    try:
        return Plant(**new_plant_schema.load(members_of(line)))
    except ValidationError as error:
        raise _wrong(number, describe_faults(error)) from None
    except JSONDecodeError as error:
        raise _wrong(number, f"Not JSON: {error.msg.removesuffix(' at')}.") from None


def _wrong(number: int, fault: str) -> click.ClickException:
    return click.ClickException(f"line {number}: {fault} Correct it, and repeat the command.")


def _shown(cells: list[str]) -> str:
    return f"'{one_line(','.join(cells), 60)}'"


def _write_csv(plants: Iterable[Plant]) -> Iterator[bytes]:
    # writerow returns what the write method returns.
    encoder: Any = SimpleNamespace(write=str.encode)
    plain, quoted = csv.writer(encoder), csv.writer(encoder, quoting=csv.QUOTE_ALL)
    for row in chain([Plant._fields], plants):
        line = plain.writerow(row)
        # A reader ignores a space at the start of a cell, unless the cell has quotes.
        yield quoted.writerow(row) if b", " in line else line


#: What reads each format: yields the plants in the lines of a file, or raises ClickException.
READERS = {"jsonl": _read_jsonl, "csv": _read_csv}
#: What writes it: yields lines. They are read back unchanged, but for an empty tag in CSV.
WRITERS: dict[str, Callable[[Iterable[Plant]], Iterator[bytes]]] = {
    "jsonl": lambda plants: (dump_json(plant.members()) + b"\n" for plant in plants),
    "csv": _write_csv,
}
