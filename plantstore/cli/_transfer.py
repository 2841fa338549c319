"""The commands that export plants to a file, and import them."""

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from functools import wraps
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from ..stores.base import BulkStore, Plant, PlantExists, Store
from ._formats import FORMATS, BadLine, Format
from ._parameters import Command, examples, with_existing_store, with_store
from ._replacing import naming, replacing
from ._streams import printable_line

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

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
@with_existing_store
def export(store: Store, file: str, format: Format) -> None:
    """Write all plants to FILE, by default to standard output (-).

    If FILE exists, it is replaced when the new file is complete. If the export fails or is
    interrupted, FILE is unchanged.
    """
    if not file:
        raise click.BadParameter("the name is empty.", param_hint="FILE")
    _refuse_database(file)
    with _output(file) as output:
        terminal = output.isatty()
        visible = sys.stderr.isatty() and not terminal
        plants = len(store) if visible else 0
        with closing(_progress(store, "Exporting", plants, 1000, visible)) as counted:
            lines = format.lines(counted)
            output.writelines(map(printable_line, lines) if terminal else lines)


def _refuse_database(file: str) -> None:
    """Refuse to replace a file of an SQLite database, such as that of the store itself."""
    target = os.path.realpath(file)
    for path in (target, re.sub("-(wal|shm|journal)$", "", target)):
        if os.path.isfile(path):
            with open(path, "rb") as existing:
                if existing.read(15) == b"SQLite format 3":
                    raise click.UsageError(
                        f"{file} belongs to an SQLite database. Choose another file."
                    )


def _output(file: str) -> AbstractContextManager[IO[bytes]]:
    # A file that standard output is redirected to must not be replaced or truncated.
    if file == "-" or _is_open_as(1, file):
        return click.open_file("-", "wb")
    return replacing(file)


def _is_open_as(descriptor: int, file: str) -> bool:
    """Return whether a name, such as /dev/stdout, is that of an open file."""
    return os.path.exists(file) and os.path.samestat(os.stat(file), os.fstat(descriptor))


@click.command(
    "import",
    epilog=examples(
        "plantstore import plants.jsonl --store sqlite:///plants.db",
        "plantstore import plants.csv --skip-existing --store sqlite:///plants.db",
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--skip-existing", is_flag=True, help="Skip each plant whose id already exists.")
@_with_format
@with_store
def import_(store: Store, file: str, format: Format, skip_existing: bool) -> None:
    """Add all plants of FILE, or none if one cannot be added. - is standard input.

    JSON Lines: each line is a plant, such as {"id": 1, "name": "Monstera", "tag": "indoor"}.
    CSV: the first line has the names of the columns: id, name and optionally tag. An empty tag
    is no tag. In SQLite, other clients can add plants again when the last step has ended.
    """
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

    if _is_open_as(0, file) and not os.path.isfile(file):
        file = "-"  # /dev/stdin may be closed.
    size = None if file == "-" else os.path.getsize(file)
    try:
        with (
            click.open_file(file, "rb") as lines,
            closing(_progress(lines, "Importing", size, 1 << 16, sys.stderr.isatty(), len)) as read,
        ):
            added = store.add_all(plants(read), skip_existing=skip_existing)
    except BadLine as error:
        raise click.ClickException(f"{error} Nothing was imported.") from None
    except PlantExists as error:
        (id,) = error.args
        place = next((f"line {line}: " for line, known in reversed(recent) if known == id), "")
        raise click.ClickException(
            f"{place}plant {id} already exists, or occurs twice in the file. Nothing was imported."
        ) from None
    click.echo(f"{added} added" + f", {seen - added} skipped" * skip_existing)


def _progress(
    items: Iterable[_T],
    label: str,
    length: int | None,
    steps: int,
    visible: bool,
    weigh: Callable[[_T], int] = lambda item: 1,
) -> Generator[_T]:
    """Yield the items, and draw a progress bar on standard error if it is to be visible.

    :param length: the weight of all items, or ``None`` if it is unknown.
    :param steps: the weight after which the bar is drawn again.
    :param weigh: returns the weight of an item.
    """
    if not visible:
        yield from items
        return
    bar: ProgressBar[_T]
    with click.progressbar(
        items, label=label, length=length, update_min_steps=steps, file=sys.stderr
    ) as bar:
        for item in items:
            bar.update(weigh(item))
            yield item
        bar.finish()
        bar.render_progress()  # Before click 8.2, the last steps are not drawn.


#: The commands of this module.
COMMANDS = [export, import_]
