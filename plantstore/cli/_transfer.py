"""The commands that export plants to a file, and import them."""

import os
import sys
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import wraps
from itertools import islice, takewhile
from operator import itemgetter
from typing import IO, Any

import click

from ..stores.base import Store, StoreUnavailable
from ..stores.batches import batches
from ._formats import COLUMNS, EMPTY, FORMATS, BadLine, Format, Numbered
from ._parameters import Command, examples, refuse_database, with_store
from ._replacing import naming, replacing
from ._streams import printable_line, progress

# The maximum number of plants with other values that an import reports, each with its line.
_SHOWN = 10


def _with_format(command: Command) -> Command:
    """Pass a file format to a command: the one of --format, or that of the file's name."""

    @click.option(
        "--format",
        type=click.Choice([*FORMATS]),
        help="JSON Lines or CSV. The default is csv if FILE ends with .csv, else jsonl.",
    )
    @wraps(command)
    def run(file: str, format: str | None, **arguments: Any) -> None:
        ending = "csv" if file.lower().endswith(".csv") else "jsonl"
        command(file=file, format=FORMATS[format or ending], **arguments)

    return run


@click.command(
    epilog=examples(
        "plantstore export plants.jsonl --store sqlite:///plants.db",
        "plantstore export - --format csv --store sqlite:///plants.db",
    )
)
@click.argument(
    "file", type=click.Path(dir_okay=False, writable=True, allow_dash=True), default="-"
)
@_with_format
@with_store()
def export(store: Store, file: str, format: Format) -> None:
    """Write all plants to FILE, by default to standard output (-).

    If FILE exists, it is replaced when the new file is complete. If the export fails or is
    interrupted, FILE is unchanged. A killed export leaves a file .plantstore-* beside FILE.
    """
    if not file:
        raise click.BadParameter("the name is empty.", param_hint="FILE")
    refuse_database(file)
    with _output(file) as output:
        terminal = output.isatty()
        # Counting the plants may take seconds.
        total = len(store) if sys.stderr.isatty() and not terminal else 0
        with closing(progress("Exporting", store, total)) as plants:
            lines = format.lines(plants)
            output.writelines(map(printable_line, lines) if terminal else lines)


def _output(file: str) -> AbstractContextManager[IO[bytes]]:
    # A file that standard output is redirected to must not be replaced or truncated.
    if file == "-" or (os.path.exists(file) and os.path.samestat(os.stat(file), os.fstat(1))):
        return click.open_file("-", "wb")
    return replacing(file)


@click.command(
    "import",
    help=f"""Add the plants of FILE that do not exist. - is standard input.

    If a line is wrong, nothing is added; but a pipe, such as standard input, is added as it comes.
    An import that ends early can be repeated: it adds what is missing. A plant that exists with
    other values is reported and left as it is, and the exit code is 1.

    JSON Lines: each line is a plant in JSON, with {COLUMNS}. CSV: the first line has these names,
    separated by commas. {EMPTY} Spaces after a comma are ignored.
    """,
    epilog=examples(
        "plantstore import plants.jsonl --store sqlite:///plants.db",
        "plantstore import - --format csv --store sqlite:///plants.db",
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@_with_format
@with_store(creates=True)
def import_(store: Store, file: str, format: Format) -> None:
    """Add the plants of a file that do not exist."""
    _check(file, format)
    numbers = Counter[str]()
    with _reporting_added(numbers), closing(_read(file, format, "Importing")) as lines:
        different = _add_all(store, lines, numbers)
        reported = [*islice(different, _SHOWN)]
        deque(different, maxlen=0)  # The others are only counted.
    for line, plant in reported:
        click.echo(f"line {line}: plant {plant.id} exists with other values", err=True)
    added, there, others = (numbers[name] for name in ("added", "there", "different"))
    click.echo(f"{added} added, {there} already there, {others} different")
    sys.exit(1 if others else 0)


def _check(file: str, format: Format) -> None:
    """Check all lines of a regular file before the import. A pipe can be read only once."""
    try:
        if _is_regular(file):
            deque(_read(file, format, "Checking"), maxlen=0)
    except BadLine as error:
        raise click.ClickException(f"{error} Nothing was imported.") from None


@contextmanager
def _reporting_added(numbers: Counter[str]) -> Iterator[None]:
    """Say how many plants were added, if the import ends early."""
    try:
        yield
    except BadLine as error:
        message = f"{error} {numbers['added']} plants were added before it."
        raise click.ClickException(message) from None
    except StoreUnavailable:
        if numbers["added"]:
            hint = "The same command adds the others."
            click.echo(f"At least {numbers['added']} plants were added. {hint}", err=True)
        raise


def _add_all(store: Store, lines: Iterable[Numbered], numbers: Counter[str]) -> Iterator[Numbered]:
    """Add plants, and yield those that exist with other values.

    :param numbers: counts the plants that are ``added``, ``there`` with the same values, or
        ``different``.
    """
    for batch in batches(lines, itemgetter(1)):
        others = _add(store, batch)
        numbers["added"] += len(batch) - len(others)
        different = [*_differing(store, others)]
        numbers["there"] += len(others) - len(different)
        numbers["different"] += len(different)
        yield from different


def _is_regular(file: str) -> bool:
    """Return whether this is the name of a regular file. ``-`` always means standard input."""
    return file != "-" and os.path.isfile(file)


def _read(file: str, format: Format, label: str) -> Generator[Numbered]:
    """Yield the plants of a file with their line numbers, and show the progress."""
    # If the input is a pipe, no bar is shown: the export that writes into it may show one.
    size = os.path.getsize(file) if _is_regular(file) else 0
    with (
        naming("standard input" if file == "-" else file),
        click.open_file(file, "rb") as content,
        closing(progress(label, content, size, len)) as lines,
    ):
        yield from format.read(lines)


def _add(store: Store, batch: list[Numbered]) -> list[Numbered]:
    """Add plants. Return those that were not added, because their ids exist or occur twice."""
    first = {plant.id: line for line, plant in reversed(batch)}
    existing = store.add_some([plant for line, plant in batch if first[plant.id] == line])
    return [
        (line, plant) for line, plant in batch if plant.id in existing or first[plant.id] != line
    ]


def _differing(store: Store, plants: list[Numbered]) -> Iterator[Numbered]:
    """Yield each plant whose id exists in the store with other values."""
    ids = sorted(plant.id for _, plant in plants)
    # The file is often an export. Then its ids are close together, and one page has many of them.
    near = islice(store.iterate(ids[0] - 1), 2 * len(ids)) if ids else ()
    found = {plant.id: plant for plant in takewhile(lambda plant: plant.id <= ids[-1], near)}
    for line, plant in plants:
        stored = found.get(plant.id) or store.get(plant.id)
        if stored not in {None, plant}:  # None: another client has just removed it.
            yield line, plant


#: The commands of this module.
COMMANDS = [export, import_]
