"""The commands that export plants to a file, import them, and copy an SQLite file."""

import os
import re
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import click

from ..stores.base import Store
from ..stores.batches import batches
from ..stores.urls import existing, open_store
from ..text import printable
from ._formats import READERS, WRITERS, Numbered
from ._service import with_url

_FORMATS = "jsonl", "csv"
_with_format = click.option(
    "--format",
    type=click.Choice(_FORMATS),
    help="JSON Lines or CSV. The default is csv if FILE ends with .csv, else jsonl.",
    callback=lambda ctx, _, name: name or _FORMATS[ctx.params["file"].lower().endswith(".csv")],
)


@click.command(epilog="\b\nExample:\n  plantstore export plants.jsonl")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@_with_format
@with_url
def export(url: str, file: str, format: str) -> None:
    """Write all plants to FILE, by default to standard output (-).

    If FILE exists, it is replaced when the new file, .plantstore-* beside it, is complete.
    """
    if _is_database(file):
        raise click.UsageError(f"{printable(file)} belongs to a database. Choose another file.")
    is_stream = file == "-" or (os.path.exists(file) and not os.path.isfile(file))
    with (
        _open(existing(url)) as store,
        click.open_file(file, "wb") if is_stream else _replacing(file) as output,
    ):
        # Counting the plants may take seconds.
        total = len(store) if sys.stderr.isatty() and not output.isatty() else 0
        with _progress("Exporting", total) as bar:
            plants = (plant for plant in store if bar.update(1) is None)
            output.writelines(WRITERS[format](plants))
            output.flush()
            bar.update(total)


@click.command("import", epilog="\b\nExample:\n  plantstore import plants.jsonl")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@_with_format
@with_url
def import_(url: str, file: str, format: str) -> None:
    """Add the plants of FILE that do not exist. - is standard input.

    A wrong line ends the import. Repeat an import that has ended early: it adds what is missing. A
    plant that exists with other values is reported and left as it is, and the exit code is 1.
    """
    counts, shown = Counter[str](), list[Numbered]()
    # The export that writes into a pipe may show a bar.
    size = 0 if file == "-" else os.path.getsize(file)
    with _open(url) as store, click.open_file(file, "rb") as content:
        try:
            with _progress("Importing", size) as bar:
                lines = (line for line in content if bar.update(len(line)) is None)
                for batch in batches(READERS[format](lines), itemgetter(1)):
                    shown += _add(store, batch, counts)[: 10 - len(shown)]
                bar.update(size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, file) from None
        finally:
            for line, plant in shown:
                click.echo(f"line {line}: plant {plant.id} exists with other values", err=True)
            numbers = (f"{counts[kind]} {kind}" for kind in ("added", "already there", "different"))
            click.echo(", ".join(numbers))
    sys.exit(counts["different"] > 0)


def _add(store: Store, batch: list[Numbered], counts: Counter[str]) -> list[Numbered]:
    """Add and count the plants whose ids do not exist. Return those that have other values."""
    first = {plant.id: plant for _, plant in reversed(batch)}  # Of several with one id.
    stored = store.get_some(first)
    new = [plant for plant in reversed(first.values()) if plant.id not in stored]
    existing = store.add_some(new)  # Other clients have just added these.
    stored = first | stored | store.get_some(existing)  # One that was just removed is there, too.
    different = [(line, plant) for line, plant in batch if stored[plant.id] != plant]
    added = len(new) - len(existing)
    there = len(batch) - added - len(different)
    counts.update({"added": added, "already there": there, "different": len(different)})
    return different


@click.command(epilog="\b\nExample:\n  plantstore backup copy.db")
@click.argument("file", type=click.Path())
@with_url
def backup(url: str, file: str) -> None:
    """Copy an SQLite database to a new FILE.

    The service goes on. But without a write-ahead log, new plants wait until the copy is complete.
    """
    url = existing(url)
    with _open(url):
        if not url.startswith("sqlite:"):
            raise click.UsageError("not an SQLite file: use pg_dump, mariadb-dump or export.")
        # SQLite would apply an old log or journal to the copy.
        if any(os.path.lexists(f"{file}{ending}") for ending in ("", "-wal", "-shm", "-journal")):
            raise click.UsageError(f"{printable(file)} exists, or its -wal, -shm or -journal.")
        from ..sql import back_up

        with _replacing(file) as copy:
            back_up(url, copy.name)


def _open(url: str) -> Store:
    try:
        store = open_store(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--store or PLANTSTORE_STORE") from None
    if store.one_process:
        raise click.UsageError("only the service has these plants; try sqlite:///plants.db")
    return store


def _is_database(file: str) -> bool:
    """Return whether a file is an SQLite database, or the log or the journal of one."""
    database = re.sub("-(wal|shm|journal)$", "", os.path.realpath(file))
    if not os.path.isfile(database):
        return False
    with open(database, "rb") as content:
        return content.read(15) == b"SQLite format 3"


@contextmanager
def _replacing(file: str) -> Iterator[IO[bytes]]:
    """Yield a new file. It replaces the old one, and has its permissions, if the block succeeds."""
    target = Path(os.path.realpath(file))
    temporary = target.with_name(f".plantstore-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as new:
            if target.exists():
                shutil.copymode(target, temporary)
            yield new
            new.flush()
            os.fsync(new.fileno())
        temporary.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, file) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def _progress(label: str, total: int) -> Any:
    """Return a progress bar. It is shown if standard error is a terminal, and there is a total."""
    file = sys.stderr if total and sys.stderr.isatty() else StringIO()
    return click.progressbar(length=total, label=label, file=file, update_min_steps=total // 1000)
