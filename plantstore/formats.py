"""Plants in files: JSON Lines of NewPlant, and CSV under a header."""

import csv
import re
import sys
from codecs import BOM_UTF8, getwriter
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, NamedTuple

import orjson
from marshmallow import ValidationError

from .errors import describe_faults
from .schemas import new_plant_schema
from .stores import Plant

Numbered = tuple[int, Plant]


class BadLine(ValueError):
    """A line of a file is not a plant; ``number`` counts from 1."""

    def __init__(self, number: int, fault: str) -> None:
        self.number = number
        super().__init__(f"line {number}: {fault}")


class Format(NamedTuple):
    """How plants are read, each with the number of its line, and how they are written.

    Reading takes lines of bytes and raises :exc:`BadLine`. Plants come back as they were
    written, but for one thing: in CSV a tag that is empty can't be told from none.
    """

    read: Callable[[Iterable[bytes]], Iterator[Numbered]]
    write: Callable[[Iterable[Plant], IO[bytes]], None]


def _read_jsonl(lines: Iterable[bytes]) -> Iterator[Numbered]:
    for number, line in _without_mark(lines):
        if line.strip():
            yield number, _load(number, new_plant_schema.loads, line)


def _write_jsonl(plants: Iterable[Plant], file: IO[bytes]) -> None:
    for plant in plants:
        file.write(as_json(plant) + b"\n")


def as_json(plant: Plant) -> bytes:
    """Return a NewPlant in JSON, on one line."""
    return orjson.dumps(
        {member: value for member, value in plant._asdict().items() if value is not None}
    )


def _read_csv(lines: Iterable[bytes]) -> Iterator[Numbered]:
    csv.field_size_limit(sys.maxsize)  # It would end at 131,072 characters.
    rows = _rows(lines)
    _, cells = next(rows, (1, []))
    header = [cell.strip().lower() for cell in cells]
    if [header.count("id"), header.count("name")] != [1, 1] or header.count("tag") > 1:
        raise BadLine(1, "The header must name id and name, and may name tag, with commas between.")
    for number, row in rows:
        if len(row) != len(header):
            raise BadLine(number, f"There are {len(row)} cells under {len(header)} headings.")
        yield number, _load(number, _load_cells, dict(zip(header, row, strict=True)))


def _rows(lines: Iterable[bytes]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of CSV that are not empty, each with the number of its first line."""
    reader = csv.reader((line.decode() for _, line in _without_mark(lines)), strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadLine(number, f"Not CSV in UTF-8: {error}.") from None
        if any(row):
            yield number, row


def _load_cells(cells: dict[str, str]) -> dict[str, Any]:
    members: dict[str, Any] = {**cells}
    if re.fullmatch("-?[0-9]{1,30}", cells["id"]) is not None:
        members["id"] = int(cells["id"])
    if cells.get("tag") == "":
        del members["tag"]
    loaded: dict[str, Any] = new_plant_schema.load(members)
    return loaded


def _write_csv(plants: Iterable[Plant], file: IO[bytes]) -> None:
    writer = csv.writer(getwriter("utf-8")(file))
    writer.writerow(Plant._fields)
    writer.writerows(plants)


def _without_mark(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their numbers from 1, without the mark that may precede UTF-8."""
    for number, line in enumerate(lines, 1):
        yield number, line.removeprefix(BOM_UTF8) if number == 1 else line


def _load(number: int, load: Callable[[Any], dict[str, Any]], line: Any) -> Plant:
    try:
        return Plant(**load(line))
    except ValidationError as error:
        raise BadLine(number, describe_faults(error)) from None
    except ValueError:
        raise BadLine(number, "Not one JSON text in UTF-8.") from None


FORMATS = {"jsonl": Format(_read_jsonl, _write_jsonl), "csv": Format(_read_csv, _write_csv)}
