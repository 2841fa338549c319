"""The ``plantstore`` command."""

import json
import os
import secrets
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from marshmallow import ValidationError

from . import __version__
from .auth import token_digest
from .errors import describe_faults
from .formats import FORMATS, BadLine, Format, as_json
from .schemas import new_plant_schema
from .settings import Settings
from .stores import Plant, PlantExists, StoreUnavailable, open_store

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

    from .stores.sql import SQLStore

T = TypeVar("T")
Command = Callable[..., None]

OUT_OF_REACH = (
    "the plants of memory:// are in the service's own process, out of reach from here."
    " Set PLANTSTORE_STORE or --store to the URL of a database, such as sqlite:///plants.db."
)
ID = click.IntRange(-(2**63), 2**63 - 1)
ID.name = "integer"
# An id may be negative, and then looks like an option.
NEGATIVE = {"ignore_unknown_options": True}


@click.group()
@click.version_option(__version__, prog_name="plantstore", message="%(prog)s %(version)s")
@click.option(
    "--store",
    metavar="URL",
    envvar="PLANTSTORE_STORE",
    default=Settings.store_url,
    help="Where the plants are: the URL of a database. Without it PLANTSTORE_STORE says so.",
)
def main(store: str) -> None:
    """Run the plant store's chores: make tokens, look after the plants of a database."""


@main.command()
def token() -> None:
    """Make a new access token.

    The first line is the token, for the client alone. The second is its digest: in
    PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE it accepts the token and does not show it.
    """
    made = secrets.token_urlsafe(32)
    click.echo(made)
    click.echo(f"sha256:{token_digest(made).hex()}")


def _on_the_store(command: Command) -> Command:
    """Hand a command the store that is named, and say in one line what fails there."""

    @click.option(
        "--store", metavar="URL", help="The same as before the command; goes before that."
    )
    @wraps(command)
    def run(store: str | None, **arguments: Any) -> None:
        given = click.get_current_context().find_root().params["store"]
        opened = _open(given if store is None else store)
        try:
            command(opened, **arguments)
            _flush()
        except BrokenPipeError:
            raise  # Whoever read has read enough.
        except StoreUnavailable as error:
            raise click.ClickException(f"the store can't be used now: {error}") from None
        except PlantExists as error:
            raise click.ClickException(f"plant {error} is already there.") from None
        except OSError as error:
            raise click.ClickException(str(error)) from None
        finally:
            opened.close()

    return run


def _flush() -> None:
    """Flush standard output; when that fails, have nobody try again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _open(url: str) -> "SQLStore":
    try:
        store = open_store(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--store") from None
    if store.one_process:
        raise click.BadParameter(OUT_OF_REACH, param_hint="--store")
    return store  # type: ignore[return-value]


@main.command(context_settings=NEGATIVE)
@click.argument("id", type=ID)
@click.argument("name")
@click.option("--tag", help="The type of the plant, if it has one.")
@_on_the_store
def add(store: "SQLStore", id: int, name: str, tag: str | None) -> None:
    """Add the plant ID with a NAME."""
    given = {"id": id, "name": name} | ({} if tag is None else {"tag": tag})
    try:
        store.add(Plant(**new_plant_schema.load(given)))
    except ValidationError as error:
        raise click.UsageError(describe_faults(error)) from None


@main.command(context_settings=NEGATIVE)
@click.argument("id", type=ID)
@_on_the_store
def show(store: "SQLStore", id: int) -> None:
    """Print the plant ID as JSON."""
    plant = store.get(id)
    if plant is None:
        raise _missing(id)
    click.echo(_printable(as_json(plant).decode()))


@main.command("list")
@_on_the_store
def list_(store: "SQLStore") -> None:
    """Print all plants: id, name and tag, with tabs between."""
    for plant in store:
        cells = (str(plant.id), plant.name, plant.tag or "")
        sys.stdout.buffer.write("\t".join(map(_printable, cells)).encode() + b"\n")


@main.command()
@_on_the_store
def count(store: "SQLStore") -> None:
    """Print how many plants there are."""
    click.echo(len(store))


@main.command(context_settings=NEGATIVE)
@click.argument("id", type=ID)
@_on_the_store
def remove(store: "SQLStore", id: int) -> None:
    """Remove the plant ID."""
    try:
        store.remove(id)
    except KeyError:
        raise _missing(id) from None


def _with_format(command: Command) -> Command:
    """Give a command the format that is named, or else that of the file's name."""

    @click.option(
        "--format",
        type=click.Choice([*FORMATS]),
        help="JSON Lines or CSV. Without it the FILE's name decides; the default is jsonl.",
    )
    @wraps(command)
    def run(file: str, format: str | None, **arguments: Any) -> None:
        ending = "csv" if file.lower().endswith(".csv") else "jsonl"
        command(file=file, format=FORMATS[format or ending], **arguments)

    return run


@main.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@_with_format
@_on_the_store
def export(store: "SQLStore", file: str, format: Format) -> None:
    """Write all plants to FILE, over what it had; - is standard output."""
    store.ping()  # Before the file is emptied.
    _refuse_database(file)
    with click.open_file(file, "wb") as output:
        watched = sys.stderr.isatty() and not output.isatty()
        with _progress(store, "Exporting", len(store) if watched else 0, 1000, watched) as plants:
            format.write(plants, output)


def _refuse_database(file: str) -> None:
    """Refuse to write over a file of SQLite, such as that of the store itself."""
    if os.path.isfile(file):
        with open(file, "rb") as there:
            if there.read(15) == b"SQLite format 3":
                raise click.UsageError(f"{file} is a database.")


@main.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--skip-existing", is_flag=True, help="Pass over plants whose id is there already.")
@_with_format
@_on_the_store
def import_(store: "SQLStore", file: str, format: Format, skip_existing: bool) -> None:
    """Add all plants of FILE, or none; - is standard input.

    A line is a plant in JSON, such as {"id": 1, "name": "Monstera", "tag": "indoor"}. In CSV
    the first line names the columns: id, name, and perhaps tag; an empty tag is none.
    Nobody else can add plants to SQLite meanwhile.
    """
    seen = 0
    recent: deque[tuple[int, int]] = deque(maxlen=store.PAGE)  # Numbers of lines, and ids.

    def plants(lines: Iterable[bytes]) -> Iterator[Plant]:
        nonlocal seen
        for line, plant in format.read(lines):
            seen += 1
            recent.append((line, plant.id))
            yield plant

    try:
        with closing(_lines(file)) as lines:
            added = store.add_all(plants(lines), skip_existing=skip_existing)
    except BadLine as error:
        raise click.ClickException(f"{error} Nothing was imported.") from None
    except PlantExists as error:
        (id,) = error.args
        line = next(line for line, other in reversed(recent) if other == id)
        raise click.ClickException(
            f"line {line}: plant {id} is already there, or comes twice. Nothing was imported."
        ) from None
    click.echo(f"{added} added" + f", {seen - added} already there" * skip_existing)


def _progress(
    items: Iterable[T], label: str, length: int | None, steps: int, watched: bool
) -> "ProgressBar[T]":
    """Return a bar on standard error, drawn every so many steps while a person watches."""
    return click.progressbar(
        items,
        label=label,
        length=length,
        update_min_steps=steps,
        hidden=not watched,
        file=sys.stderr,
    )


def _lines(file: str) -> Generator[bytes]:
    """Yield the lines of a file, and have a bar count their bytes."""
    size = 0 if file == "-" else os.path.getsize(file)
    with (
        click.open_file(file, "rb") as lines,
        _progress(lines, "Importing", size or None, 1 << 16, sys.stderr.isatty()) as bar,
    ):
        for line in lines:
            bar.update(len(line))
            yield line


def _missing(id: int) -> click.ClickException:
    return click.ClickException(f"there is no plant {id}.")


def _printable(text: str) -> str:
    """Escape, as JSON does, what would move a terminal's cursor instead of being seen."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
