"""Files of plants: JSON Lines, and CSV with a header."""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from json import JSONDecodeError
from types import SimpleNamespace
from typing import Any, NamedTuple

from marshmallow import ValidationError

from ..json_text import decode_json
from ..responses import dump_json
from ..schemas import Int64, describe_faults, new_plant_schema
from ..stores.base import Plant
from ..text import printable

#: A line number, and the plant on that line.
Numbered = tuple[int, Plant]

_fields = new_plant_schema.load_fields
_REQUIRED = [name for name in Plant._fields if _fields[name].required]
_INTEGERS = {name for name in Plant._fields if isinstance(_fields[name], Int64)}
_OPTIONAL = [name for name in Plant._fields if name not in _REQUIRED]
#: The columns of CSV, for a message.
COLUMNS = f"{', '.join(_REQUIRED)} and optionally {', '.join(_OPTIONAL)}"
#: What an empty cell of CSV means.
EMPTY = " ".join(f"An empty {name} is no {name}." for name in _OPTIONAL)
# An integer in CSV. A program that has read another number, such as 1.23E+11, may have rounded it.
# But pandas writes 1.0 if the column has an empty cell.
_INTEGER = re.compile(r"\s*(-?)0*([0-9]{1,19}(?:\.0)?)\s*", re.ASCII)
# The messages of the csv module itself are written for programmers.
_NOT_CSV = "Not CSV: look at its quotation marks, and at the line ends, which must be line feeds."


class BadLine(ValueError):
    """A line of a file is wrong. The message says which line, and what is wrong with it."""

    def __init__(self, number: int, fault: str) -> None:
        super().__init__(f"line {number}: {fault}")


class Format(NamedTuple):
    """A file format for plants. Reading returns exactly the plants that were written.

    In CSV, however, an empty cell is read as no tag.

    ``read`` yields the plants of the lines, each with the number of its first line, and raises
    :exc:`BadLine`. ``lines`` yields the lines of a file of the plants: one line for each plant,
    which in CSV contains the line breaks of its name and tag.
    """

    read: Callable[[Iterable[bytes]], Iterator[Numbered]]
    lines: Callable[[Iterable[Plant]], Iterator[bytes]]


def _read_jsonl(lines: Iterable[bytes]) -> Iterator[Numbered]:
    for number, line in enumerate(_decoded(lines), 1):
        if line.strip():
            yield number, _load(number, new_plant_schema.loads, line)


def _jsonl_lines(plants: Iterable[Plant]) -> Iterator[bytes]:
    for plant in plants:
        yield as_json(plant) + b"\n"


def as_json(plant: Plant) -> bytes:
    """Return a plant as one line of JSON, a NewPlant."""
    return dump_json(plant.members())


def _read_csv(lines: Iterable[bytes]) -> Iterator[Numbered]:
    csv.field_size_limit(sys.maxsize)  # The default is 131,072 characters.
    rows = _rows(lines)
    header = _header(*next(rows, (1, [])))
    for number, row in rows:
        if len(row) != len(header):
            columns = f"{len(header)} cells, as the first line"
            raise BadLine(number, f"Must have {columns}, separated by commas, not {_shown(row)}.")
        yield number, _load(number, _load_cells, dict(zip(header, row, strict=True)))


def _rows(lines: Iterable[bytes]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, each with the number of its first line."""
    # A csv.DictReader does not know in which line a row begins.
    reader = csv.reader(_decoded(lines), skipinitialspace=True, strict=True)
    number = 1
    try:
        for row in reader:
            if any(row):
                yield number, row
            number = reader.line_num + 1
    except csv.Error:
        raise BadLine(number, _NOT_CSV) from None


def _header(number: int, cells: list[str]) -> list[str]:
    """Return the names of the columns. An unknown one is refused, so that no cell is ignored."""
    names = [cell.lower() for cell in cells]
    if len({*names}) < len(names) or not {*_REQUIRED} <= {*names} <= {*Plant._fields}:
        fault = f"Must have the names {COLUMNS}, separated by commas, not {_shown(cells)}."
        raise BadLine(number, fault)
    return names


def _shown(cells: list[str]) -> str:
    """Return the beginning of a row for a message, with invisible characters escaped."""
    text = printable(",".join(cells))
    return f"'{text[:60]}…'" if len(text) > 60 else f"'{text}'"


def _load_cells(cells: dict[str, str]) -> Any:
    members: dict[str, Any] = {
        name: cell for name, cell in cells.items() if cell or name in _REQUIRED
    }
    for name in _INTEGERS & members.keys():
        members[name] = _number(name, cells[name])
    return new_plant_schema.load(members)


def _number(name: str, cell: str) -> Any:
    """Return the number in a cell of decimal digits. Leading zeros are allowed."""
    match = _INTEGER.fullmatch(cell)
    if match is None:
        fault = f"Must be an integer from -2^63 to 2^63-1, in digits, not {_shown([cell])}."
        raise ValidationError({name: [fault]})
    return decode_json("".join(match.groups()))


def _csv_lines(plants: Iterable[Plant]) -> Iterator[bytes]:
    # writerow returns what the write method returns.
    encoder: Any = SimpleNamespace(write=str.encode)
    plain, quoted = csv.writer(encoder), csv.writer(encoder, quoting=csv.QUOTE_ALL)
    for row in chain([Plant._fields], plants):
        line = plain.writerow(row)
        # A reader ignores a space at the start of a cell, unless the cell has quotes.
        yield quoted.writerow(row) if b", " in line else line


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines as text, without a byte order mark."""
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            found = line[error.start]
            raise BadLine(number, f"Must be UTF-8, not the byte 0x{found:02x}.") from None
        yield text.removeprefix("\ufeff") if number == 1 else text


def _load(number: int, load: Callable[[Any], dict[str, Any]], line: Any) -> Plant:
    try:
        return Plant(**load(line))
    except ValidationError as error:
        raise BadLine(number, describe_faults(error)) from None
    except JSONDecodeError as error:
        fault = error.msg.removesuffix(" at")
        place = "" if error.pos < 0 else f" at column {error.pos + 1}"
        raise BadLine(number, f"Cannot be read as JSON: {fault}{place}.") from None


#: The formats by name.
FORMATS = {"jsonl": Format(_read_jsonl, _jsonl_lines), "csv": Format(_read_csv, _csv_lines)}
