"""Files of plants: JSON Lines, and CSV with a header."""

import csv
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from json import JSONDecodeError
from types import SimpleNamespace
from typing import Any, NamedTuple

from marshmallow import ValidationError

from ..responses import dump_json
from ..schemas import Int64, NewPlantSchema, describe_faults, new_plant_schema
from ..stores.base import Plant
from ..text import printable

# The number of a line, and its plant.
_Numbered = tuple[int, Plant]


class _CellsSchema(NewPlantSchema):
    """A NewPlant in CSV, where every cell is a string."""

    _INT64 = "Must be an integer from -2^63 to 2^63-1."

    id = Int64(required=True, error_messages={"invalid": _INT64, "range": _INT64})


class BadLine(ValueError):
    """A line of a file is wrong. The message and ``number`` say which line.

    :param number: the number of the line, from 1.
    :param fault: what is wrong with it.
    """

    def __init__(self, number: int, fault: str) -> None:
        self.number = number
        super().__init__(f"line {number}: {fault}")


class Format(NamedTuple):
    """A file format for plants. Reading returns exactly the plants that were written.

    In CSV, however, an empty tag is read as no tag.

    ``read`` yields the plants of the lines, each with the number of its line, and raises
    :exc:`BadLine`. ``lines`` yields the lines of a file of the plants: one line for each plant,
    which in CSV contains the line breaks of its name and tag.
    """

    read: Callable[[Iterable[bytes]], Iterator[_Numbered]]
    lines: Callable[[Iterable[Plant]], Iterator[bytes]]


def _read_jsonl(lines: Iterable[bytes]) -> Iterator[_Numbered]:
    for number, line in _without_bom(lines):
        if line.strip():
            yield number, _load(number, new_plant_schema.loads, line)


def _jsonl_lines(plants: Iterable[Plant]) -> Iterator[bytes]:
    for plant in plants:
        yield as_json(plant) + b"\n"


def as_json(plant: Plant) -> bytes:
    """Return a plant as one line of JSON, a NewPlant."""
    return dump_json(plant.members())


def _read_csv(lines: Iterable[bytes]) -> Iterator[_Numbered]:
    csv.field_size_limit(sys.maxsize)  # The default is 131,072 characters.
    rows = _rows(lines)
    _, cells = next(rows, (1, []))
    header = [cell.strip().lower() for cell in cells]
    if any(header.count(name) != 1 for name in _REQUIRED) or any(
        header.count(name) > 1 for name in _OPTIONAL
    ):
        raise BadLine(1, _HEADER)
    # Without this check, the cells of a mistyped column would be dropped silently.
    unknown = [cell for cell, name in zip(cells, header, strict=True) if name not in Plant._fields]
    if unknown:
        raise BadLine(1, f"The column '{printable(unknown[0])}' is unknown. {_HEADER}")
    for number, row in rows:
        if len(row) != len(header):
            raise BadLine(number, f"There are {len(row)} cells, but {len(header)} in the header.")
        yield number, _load(number, _load_cells, dict(zip(header, row, strict=True)))


def _rows(lines: Iterable[bytes]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, each with the number of its first line."""
    reader = csv.reader((line.decode() for _, line in _without_bom(lines)), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except UnicodeDecodeError:
            raise BadLine(number, "Not UTF-8.") from None
        except csv.Error as error:
            raise BadLine(number, _csv_fault(error)) from None
        if any(row):
            yield number, row


def _csv_fault(error: csv.Error) -> str:
    # The advice of Python is for programmers.
    if str(error).startswith("new-line character"):
        return "The lines must end with a line feed."
    return f"Not CSV: {error}."


def _load_cells(cells: dict[str, str]) -> dict[str, Any]:
    members: dict[str, Any] = {**cells}
    for name in _OPTIONAL:
        if cells.get(name) == "":
            del members[name]
    for name in _INTEGERS & members.keys():
        members[name] = _integer(cells[name])
    loaded: dict[str, Any] = _cells_schema.load(members)
    return loaded


def _integer(cell: str) -> int | str:
    """Return the integer in a cell, or the cell itself if it is not an integer."""
    number = re.fullmatch("(-?)0*([0-9]+)", cell)
    if number is None:
        return cell
    sign, digits = number.groups()
    # Python refuses to convert thousands of digits. 20 digits are beyond the range too.
    return int(sign + digits[:20])


def _csv_lines(plants: Iterable[Plant]) -> Iterator[bytes]:
    # writerow returns what the write method returns.
    encoder: Any = SimpleNamespace(write=str.encode)
    writer = csv.writer(encoder)
    for row in chain([Plant._fields], plants):
        yield writer.writerow(row)


def _without_bom(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers from 1, without the byte order mark of UTF-8."""
    for number, line in enumerate(lines, 1):
        yield number, line.removeprefix(BOM_UTF8) if number == 1 else line


def _load(number: int, load: Callable[[Any], dict[str, Any]], line: Any) -> Plant:
    try:
        return Plant(**load(line))
    except ValidationError as error:
        raise BadLine(number, describe_faults(error)) from None
    except JSONDecodeError as error:
        fault = error.msg.removesuffix(" at")
        place = "" if error.pos < 0 else f" at column {error.pos + 1}"
        raise BadLine(number, f"Cannot be read as JSON: {fault}{place}.") from None


_cells_schema = _CellsSchema()
_fields = _cells_schema.load_fields
_REQUIRED = [name for name in Plant._fields if _fields[name].required]
_OPTIONAL = [name for name in Plant._fields if not _fields[name].required]
_INTEGERS = {name for name in Plant._fields if isinstance(_fields[name], Int64)}
_HEADER = (
    f"The header must have the columns {' and '.join(_REQUIRED)}, and optionally"
    f" {' and '.join(_OPTIONAL)}."
)

#: The formats by name.
FORMATS = {"jsonl": Format(_read_jsonl, _jsonl_lines), "csv": Format(_read_csv, _csv_lines)}
