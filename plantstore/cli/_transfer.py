"""The commands that export plants to a file, and import them."""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import wraps
from typing import IO, Any, TypeVar

import click

from ..stores.base import BulkStore, Plant, PlantExists, Store
from ._formats import COLUMNS, EMPTY, FORMATS, BadLine, Format
from ._parameters import Command, examples, refuse_database, with_store
from ._replacing import naming, replacing
from ._streams import printable_line, progress

_T = TypeVar("_T")
# An import remembers the line numbers of this many plants, for its message about a duplicate.
_REMEMBERED = 1000


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
        visible = sys.stderr.isatty() and not terminal
        with progress("Exporting", visible=visible) as show:
            # Counting the plants may take seconds.
            lines = format.lines(_counted(store, len(store) if visible else 0, show))
            output.writelines(map(printable_line, lines) if terminal else lines)


def _output(file: str) -> AbstractContextManager[IO[bytes]]:
    # A file that standard output is redirected to must not be replaced or truncated.
    if file == "-" or (os.path.exists(file) and os.path.samestat(os.stat(file), os.fstat(1))):
        return click.open_file("-", "wb")
    return replacing(file)


@click.command(
    "import",
    help=f"""Add all plants of FILE, or none if one cannot be added. - is standard input.

    JSON Lines: each line is a plant in JSON, with {COLUMNS}. CSV: the first line has these names,
    separated by commas. {EMPTY} Spaces after a comma are ignored. In SQLite, other clients can add
    plants again when the last step has ended.
    """,
    epilog=examples(
        "plantstore import plants.jsonl --store sqlite:///plants.db",
        "plantstore import plants.csv --skip-existing --store sqlite:///plants.db",
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--skip-existing", is_flag=True, help="Skip each plant whose id already exists.")
@_with_format
@with_store(creates=True)
def import_(store: Store, file: str, format: Format, skip_existing: bool) -> None:
    """Add all plants of a file, or none."""
    if not isinstance(store, BulkStore):
        raise click.UsageError("this store cannot import plants: it adds only one plant at a time.")
    seen = 0
    recent: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # Line numbers and ids.

    def plants(lines: Iterable[bytes]) -> Iterator[Plant]:
        nonlocal seen
        with naming("standard input" if file == "-" else file):
            for line, plant in format.read(lines):
                seen += 1
                recent.append((line, plant.id))
                yield plant

    # If the input is a pipe, no bar is shown: the export that writes into it may show one.
    size = os.path.getsize(file) if os.path.isfile(file) else 0
    try:
        with (
            click.open_file(file, "rb") as lines,
            progress("Importing", visible=size > 0) as show,
        ):
            read = plants(_counted(lines, size, show, len))
            added = store.add_all(read, skip_existing=skip_existing)
    except BadLine as error:
        raise click.ClickException(f"{error} Nothing was imported.") from None
    except PlantExists as error:
        (id,) = error.args
        place = next((f"line {line}: " for line, known in reversed(recent) if known == id), "")
        raise click.ClickException(
            f"{place}plant {id} already exists, or occurs twice in the file. Nothing was imported."
        ) from None
    click.echo(f"{added} added" + f", {seen - added} skipped" * skip_existing)


def _counted(
    items: Iterable[_T],
    total: int,
    show: Callable[[int, int], None],
    weigh: Callable[[_T], int] = lambda item: 1,
) -> Iterator[_T]:
    """Yield the items. After each one, show the weight that is done, and the total."""
    done = 0
    for item in items:
        yield item
        done += weigh(item)
        show(done, total)


#: The commands of this module.
COMMANDS = [export, import_]
