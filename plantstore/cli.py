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
from .files import FORMATS, BadLine, Format, as_json
from .schemas import new_plant_schema
from .settings import DEFAULT_STORE
from .stores import (
    BulkStore,
    Plant,
    PlantExists,
    Store,
    StoreMisconfigured,
    StoreUnavailable,
    open_store,
)

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_T = TypeVar("_T")
# The function of a command.
_Command = Callable[..., None]

# The type of an id. The help shows its name.
_ID = click.IntRange(-(2**63), 2**63 - 1)
_ID.name = "integer"
# Otherwise click reads a negative id as an option.
_NEGATIVE_ID = {"ignore_unknown_options": True}
# An import remembers the line numbers of this many plants, for its message about a duplicate.
_REMEMBERED = 1000


@click.group()
@click.version_option(__version__, prog_name="plantstore", message="%(prog)s %(version)s")
@click.option(
    "--store",
    metavar="URL",
    envvar="PLANTSTORE_STORE",
    default=DEFAULT_STORE,
    help="The URL of the database. By default, that of the environment variable PLANTSTORE_STORE.",
)
def main(store: str) -> None:
    """Make access tokens, and manage the plants of a database."""


@main.command()
def token() -> None:
    """Make a new access token.

    The first line is the token: give it to the client. The second line is its digest: put it
    into PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE. The service then accepts the token without
    storing it.
    """
    made = secrets.token_urlsafe(32)
    click.echo(made)
    click.echo(f"sha256:{token_digest(made).hex()}")


def _with_store(command: _Command) -> _Command:
    """Pass the store to a command, and report its errors in one line."""

    @click.option(
        "--store",
        metavar="URL",
        help="The URL of the database. Overrides --store given before the command, and"
        " PLANTSTORE_STORE.",
    )
    @wraps(command)
    def run(store: str | None, **arguments: Any) -> None:
        given = click.get_current_context().find_root().params["store"]
        try:
            with _open(given if store is None else store) as opened:
                command(opened, **arguments)
                _flush()
        except BrokenPipeError:
            raise  # The program that reads the output has ended. click then exits silently.
        except StoreMisconfigured as error:
            raise click.ClickException(f"the store is not set up for plants: {error}") from None
        except StoreUnavailable as error:
            raise click.ClickException(f"the store is unavailable: {error}") from None
        except PlantExists as error:
            raise click.ClickException(f"plant {error} already exists.") from None
        except OSError as error:
            raise click.ClickException(str(error)) from None

    return run


def _flush() -> None:
    """Flush standard output. After an error Python must not flush it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _open(url: str) -> Store:
    try:
        store = open_store(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--store") from None
    if store.one_process:
        raise click.BadParameter(
            f"with {url.partition('://')[0]}://, only the service itself can access the plants."
            " Set PLANTSTORE_STORE or --store to the URL of a database, such as"
            " sqlite:///plants.db.",
            param_hint="--store",
        )
    return store


@main.command(context_settings=_NEGATIVE_ID)
@click.argument("id", type=_ID)
@click.argument("name")
@click.option(
    "--tag", help="The tag of the plant, such as indoor. By default, the plant has no tag."
)
@_with_store
def add(store: Store, id: int, name: str, tag: str | None) -> None:
    """Add a plant with this ID and this NAME."""
    new_plant = {"id": id, "name": name} | ({} if tag is None else {"tag": tag})
    try:
        store.add(Plant(**new_plant_schema.load(new_plant)))
    except ValidationError as error:
        raise click.UsageError(describe_faults(error)) from None


@main.command(context_settings=_NEGATIVE_ID)
@click.argument("id", type=_ID)
@_with_store
def show(store: Store, id: int) -> None:
    """Print the plant with this ID as JSON."""
    plant = store.get(id)
    if plant is None:
        raise _not_found(id)
    click.echo(_printable(as_json(plant).decode()))


@main.command("list")
@_with_store
def list_(store: Store) -> None:
    """Print all plants in the order of their ids.

    Each line is the id, the name and the tag of a plant, separated by tabs.
    """
    for plant in store:
        cells = (str(plant.id), plant.name, plant.tag or "")
        sys.stdout.buffer.write("\t".join(map(_printable, cells)).encode() + b"\n")


@main.command()
@_with_store
def count(store: Store) -> None:
    """Print the number of plants."""
    click.echo(len(store))


@main.command(context_settings=_NEGATIVE_ID)
@click.argument("id", type=_ID)
@_with_store
def remove(store: Store, id: int) -> None:
    """Remove the plant with this ID."""
    try:
        store.remove(id)
    except KeyError:
        raise _not_found(id) from None


def _with_format(command: _Command) -> _Command:
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


@main.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@_with_format
@_with_store
def export(store: Store, file: str, format: Format) -> None:
    """Write all plants to FILE, by default to standard output (-). An existing file is replaced."""
    store.ping()  # Before the file is truncated.
    _refuse_database(file)
    with click.open_file(file, "wb") as output:
        visible = sys.stderr.isatty() and not output.isatty()
        plants = len(store) if visible else 0
        with closing(_progress(store, "Exporting", plants, 1000, visible)) as counted:
            format.write(counted, output)


def _refuse_database(file: str) -> None:
    """Refuse to overwrite a file of SQLite, such as that of the store itself."""
    if os.path.isfile(file):
        with open(file, "rb") as existing:
            if existing.read(15) == b"SQLite format 3":
                raise click.UsageError(f"{file} is an SQLite database. Choose another file.")


@main.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--skip-existing", is_flag=True, help="Skip each plant whose id already exists.")
@_with_format
@_with_store
def import_(store: Store, file: str, format: Format, skip_existing: bool) -> None:
    """Add all plants of FILE, or none if one cannot be added. - is standard input.

    JSON Lines: each line is a plant, such as {"id": 1, "name": "Monstera", "tag": "indoor"}.
    CSV: the first line has the names of the columns: id, name and optionally tag. An empty tag
    is no tag. During an import into SQLite, other clients wait up to 4 seconds and then fail.
    """
    if not isinstance(store, BulkStore):
        raise click.UsageError("this store cannot import plants: it adds only one plant at a time.")
    seen = 0
    recent: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)  # Line numbers and ids.

    def plants(lines: Iterable[bytes]) -> Iterator[Plant]:
        nonlocal seen
        for line, plant in format.read(lines):
            seen += 1
            recent.append((line, plant.id))
            yield plant

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
        place = next((f"line {line}: " for line, other in reversed(recent) if other == id), "")
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


def _not_found(id: int) -> click.ClickException:
    return click.ClickException(f"there is no plant {id}.")


def _printable(text: str) -> str:
    """Escape, as JSON does, the characters that would control a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
