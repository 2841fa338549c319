"""The ``plantstore`` command."""

import os
import re
import secrets
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial, wraps
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
from marshmallow import ValidationError

from . import __version__
from .auth import token_digest
from .check import check
from .errors import describe_faults
from .files import FORMATS, BadLine, Format, as_json
from .replacing import naming, replacing
from .schemas import new_plant_schema
from .settings import DEFAULT_STORE
from .stores import (
    BulkStore,
    Plant,
    PlantExists,
    Store,
    StoreMisconfigured,
    StoreUnavailable,
    existing,
    open_store,
)
from .streams import Program, printable, printable_line

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_T = TypeVar("_T")
# The function of a command.
_Command = Callable[..., None]

# What an error message names for the URL of the store.
_STORE = "--store or PLANTSTORE_STORE"
# Otherwise click reads a negative id as an option.
_NEGATIVE_ID = {"ignore_unknown_options": True}
# An import remembers the line numbers of this many plants, for its message about a duplicate.
_REMEMBERED = 1000


def _whole(lowest: int, highest: int, limits: str) -> Callable[[str], int]:
    """Return the type of a whole number. The messages of click.IntRange would have a formula."""

    def integer(value: str) -> int:
        number: int = click.INT(value)
        if not lowest <= number <= highest:
            raise click.BadParameter(f"{number} is not {limits}.")
        return number

    return integer


# The type of an id.
_ID = _whole(-(2**63), 2**63 - 1, "between -2^63 and 2^63-1")
# The type of a number of processes or threads.
_COUNT = _whole(1, 2**31 - 1, "at least 1")


def _utf8(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """Return an argument if it is UTF-8. Python makes lone surrogates of other bytes."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise click.BadParameter("Must be UTF-8.") from None
    return text


def _examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    # Without \b, click would join the lines.
    return "\n  ".join(["\b\nExamples:" if len(lines) > 1 else "\b\nExample:", *lines])


_SETTINGS = """\b
Settings in the environment:
  PLANTSTORE_STORE        the URL of the database, such as sqlite:///plants.db
  PLANTSTORE_TOKENS       the tokens of the service, separated by commas
  PLANTSTORE_TOKENS_FILE  a file of such tokens, one per line
  PLANTSTORE_MAX_BODY     the largest request body of the service, in bytes

"""


@click.group(
    cls=Program,
    epilog=_SETTINGS
    + _examples(
        "plantstore token",
        "plantstore add 1 Monstera --tag indoor --store sqlite:///plants.db",
        "plantstore list --help",
    ),
)
@click.version_option(__version__, prog_name="plantstore", message="%(prog)s %(version)s")
@click.option(
    "--store",
    metavar="URL",
    help="The URL of the database. By default, that of the environment variable PLANTSTORE_STORE.",
)
def main(store: str | None) -> None:
    """Serve plants over HTTP, make access tokens, and manage the plants of a database."""


@main.command(epilog=_examples("plantstore token"))
def token() -> None:
    """Make a new access token. No setting is needed.

    The first line is the token: give it to the client. The second line is its digest: put it
    into PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE. The service then accepts the token without
    storing it.
    """
    made = secrets.token_urlsafe(32)
    click.echo(made)
    click.echo(f"sha256:{token_digest(made).hex()}")


def _with_url(command: _Command) -> _Command:
    """Pass the URL of the store to a command."""

    @click.option(
        "--store",
        metavar="URL",
        help="The URL of the database. Overrides --store given before the command, and"
        " PLANTSTORE_STORE.",
    )
    @wraps(command)
    def run(store: str | None, **arguments: Any) -> None:
        before: str | None = click.get_current_context().find_root().params["store"]
        # click would take an empty variable for a missing one.
        usual = os.environ.get("PLANTSTORE_STORE", DEFAULT_STORE)
        command(next(url for url in (store, before, usual) if url is not None), **arguments)

    return run


@main.command(
    epilog=_examples(
        "plantstore serve --bind 0.0.0.0:8000 --store sqlite:///plants.db --workers 4",
        "plantstore serve -- --access-logfile -",
    )
)
@click.option("--bind", metavar="HOST:PORT", help="The address, by default 127.0.0.1:8000.")
@click.option(
    "--workers",
    type=_COUNT,
    metavar="N",
    help="The number of processes, by default 1; memory:// allows only one.",
)
@click.option("--threads", type=_COUNT, metavar="N", help="Threads of each process, by default 8.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- GUNICORN OPTIONS]")
@_with_url
def serve(url: str, options: tuple[str, ...], **own: object) -> None:
    """Serve plants over HTTP with gunicorn.

    PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE must be set. Write options of gunicorn after --.
    """
    os.environ["PLANTSTORE_STORE"] = url
    try:
        from . import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "gunicorn":
            raise
        raise click.ClickException(
            "gunicorn is missing: pip install 'plantstore[gunicorn]'"
        ) from None
    given = [f"--{name}={value}" for name, value in own.items() if value is not None]
    server.serve([*given, *options])


@main.command("check", epilog=_examples("plantstore check --store sqlite:///plants.db"))
@_with_url
def check_(url: str) -> None:
    """Check the settings and the store, and change nothing.

    Each line says what is right (ok) or wrong (error). The exit code is 1 if anything is wrong.
    """
    findings = [*check({**os.environ, "PLANTSTORE_STORE": url})]
    for right, text in findings:
        click.echo(f"{'ok   ' if right else 'error'}  {printable(text)}")
    if not all(finding.is_right for finding in findings):
        click.get_current_context().exit(1)


def _with_store(command: _Command, url_to_open: Callable[[str], str] = str) -> _Command:
    """Pass the store to a command, and report its errors in one line."""

    @_with_url
    @wraps(command)
    def run(url: str, **arguments: Any) -> None:
        try:
            with _open(url_to_open(url)) as opened:
                command(opened, **arguments)
        except StoreMisconfigured as error:
            raise _failed("the store is not set up for plants", error) from None
        except StoreUnavailable as error:
            raise _failed("the store is unavailable", error) from None
        except PlantExists as error:
            raise click.ClickException(f"plant {error} already exists.") from None

    return run


# A command that only reads or removes plants must not create a database at a mistyped path.
_with_existing_store = partial(_with_store, url_to_open=existing)


def _failed(problem: str, error: StoreUnavailable) -> click.ClickException:
    return click.ClickException(f"{problem}: {printable(' '.join(str(error).split()))}")


def _open(url: str) -> Store:
    try:
        store = open_store(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=_STORE) from None
    if store.one_process:
        raise click.BadParameter(
            f"with {url.partition('://')[0]}://, only the service itself can access the plants."
            " Set PLANTSTORE_STORE or --store to the URL of a database, such as"
            " sqlite:///plants.db.",
            param_hint=_STORE,
        )
    return store


@main.command(
    context_settings=_NEGATIVE_ID,
    epilog=_examples("plantstore add 1 Monstera --tag indoor --store sqlite:///plants.db"),
)
@click.argument("id", type=_ID)
@click.argument("name", callback=_utf8)
@click.option(
    "--tag",
    callback=_utf8,
    help="The tag of the plant, such as indoor. By default, the plant has no tag.",
)
@_with_store
def add(store: Store, id: int, name: str, tag: str | None) -> None:
    """Add a plant with this ID and this NAME.

    If an SQLite file is missing, it is created.
    """
    new_plant = {"id": id, "name": name} | ({} if tag is None else {"tag": tag})
    try:
        store.add(Plant(**new_plant_schema.load(new_plant)))
    except ValidationError as error:
        raise click.UsageError(describe_faults(error)) from None


@main.command(
    context_settings=_NEGATIVE_ID, epilog=_examples("plantstore show 1 --store sqlite:///plants.db")
)
@click.argument("id", type=_ID)
@_with_existing_store
def show(store: Store, id: int) -> None:
    """Print the plant with this ID as JSON."""
    plant = store.get(id)
    if plant is None:
        raise _not_found(id)
    # Bytes, because the encoding of the terminal may lack a character.
    click.echo(printable(as_json(plant).decode()).encode())


@main.command("list", epilog=_examples("plantstore list --store sqlite:///plants.db"))
@_with_existing_store
def list_(store: Store) -> None:
    """Print all plants in the order of their ids.

    Each line is the id, the name and the tag of a plant, separated by tabs. Control characters,
    such as line breaks, are escaped.
    """
    for plant in store:
        cells = (str(plant.id), plant.name, plant.tag or "")
        sys.stdout.buffer.write("\t".join(map(printable, cells)).encode() + b"\n")


@main.command(epilog=_examples("plantstore count --store sqlite:///plants.db"))
@_with_existing_store
def count(store: Store) -> None:
    """Print the number of plants in the database."""
    click.echo(len(store))


@main.command(
    context_settings=_NEGATIVE_ID,
    epilog=_examples("plantstore remove 1 --store sqlite:///plants.db"),
)
@click.argument("id", type=_ID)
@_with_existing_store
def remove(store: Store, id: int) -> None:
    """Remove the plant with this ID from the database."""
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


@main.command(
    epilog=_examples(
        "plantstore export plants.jsonl --store sqlite:///plants.db",
        "plantstore export - --format csv --store sqlite:///plants.db",
    )
)
@click.argument(
    "file", type=click.Path(dir_okay=False, writable=True, allow_dash=True), default="-"
)
@_with_format
@_with_existing_store
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


@main.command(
    "import",
    epilog=_examples(
        "plantstore import plants.jsonl --store sqlite:///plants.db",
        "plantstore import plants.csv --skip-existing --store sqlite:///plants.db",
    ),
)
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
