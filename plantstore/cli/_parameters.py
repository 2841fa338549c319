"""The parameters that several commands have."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click

from ..stores.base import INT64, PlantExists, Store, StoreMisconfigured, StoreUnavailable
from ..stores.urls import DEFAULT_STORE, existing, open_store
from ..text import one_line, printable

#: The function of a command.
Command = Callable[..., None]
#: The settings of a command with an id. Without them, click reads a negative id as an option.
NEGATIVE_ID = {"ignore_unknown_options": True}


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    # Without \b, click would join the lines.
    return "\n  ".join(["\b\nExamples:" if len(lines) > 1 else "\b\nExample:", *lines])


#: The type of an id.
ID = click.IntRange(INT64.start, INT64.stop - 1)
#: The type of a number of processes or threads.
COUNT = click.IntRange(min=1)

#: Passes the URL of the store to a command. With envvar=, an empty variable would be a missing one.
with_url: Callable[[Command], Command] = click.option(
    "--store",
    "url",
    metavar="URL",
    default=lambda: os.environ.get("PLANTSTORE_STORE", DEFAULT_STORE),
    help="The URL of the database. By default, that of the environment variable PLANTSTORE_STORE.",
)


def with_store(*, creates: bool = False) -> Callable[[Command], Command]:
    """Pass the store to a command, and report its errors in one line.

    :param creates: whether the command creates a missing database. By default, it reports the path,
        which may be mistyped.
    """

    def decorated(command: Command) -> Command:
        @with_url
        @wraps(command)
        def run(url: str, **arguments: Any) -> None:
            with opened(url if creates else existing(url)) as store:
                command(store, **arguments)

        return run

    return decorated


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """Open a store for the block, and report its errors in one line."""
    try:
        with _open(url) as store:
            yield store
    except StoreMisconfigured as error:
        raise _failed("the store is not set up for plants", error) from None
    except StoreUnavailable as error:
        raise _failed("the store is unavailable", error) from None
    except PlantExists as error:
        raise click.ClickException(f"plant {error} already exists.") from None


def refuse_database(file: str, copied: str = "") -> None:
    """Refuse to replace an SQLite database, or a file that belongs to one.

    :param copied: the database of which the file becomes a copy. An earlier copy of it may be
        replaced. By default, there is none.
    """
    target = os.path.realpath(file)
    base = re.sub("-(wal|shm|journal)$", "", target)
    is_earlier_copy = copied != "" and base == target and not _are_same(target, copied)
    # SQLite would apply an old log or journal to the new file.
    is_used = any(os.path.lexists(f"{target}-{ending}") for ending in ("wal", "shm", "journal"))
    if is_used or (_is_database(base, copied) and not is_earlier_copy):
        raise click.UsageError(
            f"{printable(file)} belongs to a database that may be in use. Choose another file."
        )


def _are_same(file: str, other: str) -> bool:
    return os.path.exists(file) and os.path.exists(other) and os.path.samefile(file, other)


def _is_database(file: str, known: str) -> bool:
    if not os.path.isfile(file):
        return False
    with open(file, "rb") as content:
        return content.read(15) == b"SQLite format 3" or _are_same(file, known)


def wrong_url(fault: object) -> click.BadParameter:
    """Return the exception for a URL that a command cannot use.

    :param fault: what is wrong with it, without the URL.
    """
    return click.BadParameter(str(fault), param_hint="--store or PLANTSTORE_STORE")


def _failed(problem: str, error: StoreUnavailable) -> click.ClickException:
    return click.ClickException(f"{problem}: {one_line(error)}")


def _open(url: str) -> Store:
    try:
        store = open_store(url)
    except ValueError as error:
        raise wrong_url(error) from None
    if store.one_process:
        raise wrong_url(
            f"with {url.partition('://')[0]}://, only the service itself can access the plants."
            " Set PLANTSTORE_STORE or --store to the URL of a database, such as"
            " sqlite:///plants.db."
        )
    return store
