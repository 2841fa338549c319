"""The commands for the service itself."""

import json
import os
import sys

import click

from .. import __version__
from ..openapi.document import make_document
from ..settings import SERVED_OPERATIONS, Settings, SettingsError
from ..stores.base import StoreUnavailable
from ..stores.urls import DEFAULT_STORE, LOST, existing, open_store
from ..text import one_line
from ..tokens.new import make_token

#: Passes the URL of the store to a command. With envvar=, an empty variable would be a missing one.
with_url = click.option(
    "--store",
    "url",
    metavar="URL",
    default=lambda: os.environ.get("PLANTSTORE_STORE", DEFAULT_STORE),
    help="The URL of the database. By default, that of the environment variable PLANTSTORE_STORE.",
)


@click.command(epilog="\b\nExample:\n  plantstore serve --workers 4 -- --access-logfile -")
@click.option("--bind", metavar="HOST:PORT", help="The address, by default 127.0.0.1:8000.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes, by default 1.")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads of each: 8.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- GUNICORN OPTIONS]")
@with_url
def serve(url: str, options: tuple[str, ...], **own: object) -> None:
    """Serve plants over HTTP with gunicorn, whose options follow --. A token must be configured."""
    os.environ["PLANTSTORE_STORE"] = url
    try:
        from .. import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "gunicorn":
            raise
        missing = "gunicorn is missing: pip install 'plantstore[gunicorn]'"
        raise click.ClickException(missing) from None
    except ValueError:  # gunicorn reads it when it is imported.
        raise click.ClickException("WEB_CONCURRENCY must be a number of workers") from None
    given = [f"--{name}={value}" for name, value in own.items() if value is not None]
    server.serve([*given, *options])


@click.command(epilog="\b\nExample:\n  plantstore check --store sqlite:///plants.db")
@with_url
def check(url: str) -> None:
    """Check the settings and the store, and change nothing. If anything is wrong, exit with 1."""
    *findings, store = Settings({**os.environ, "PLANTSTORE_STORE": url}).findings()
    last = store if isinstance(store, SettingsError) else _usable(url, store)
    for finding in (f"plantstore {__version__}", *findings, last):
        click.echo(f"{'ok   ' if isinstance(finding, str) else 'error'}  {one_line(finding)}")
    sys.exit(not all(isinstance(finding, str) for finding in (*findings, last)))


def _usable(url: str, name: str) -> str | SettingsError:
    """Return the line about a store, which begins with a name, or an error if it is unusable."""
    if url.startswith("sqlite:"):
        from ..sql import is_new, make_engine

        if is_new(make_engine(url).url):
            return f"{name} can be used (the first plant creates the file)"
    try:
        # Opened with its own URL, the store could change the journal mode of an SQLite file.
        with open_store(existing(url)) as store:
            store.ping()
    except StoreUnavailable as error:
        return SettingsError(f"{name} cannot be used now: {error}")
    return f"{name} can be used" + (f" ({LOST})" if url == DEFAULT_STORE else "")


@click.command(epilog="\b\nExample:\n  plantstore openapi")
def openapi() -> None:
    """Print the OpenAPI document of PLANTSTORE_OPERATIONS as JSON."""
    try:
        operations = Settings(os.environ)[SERVED_OPERATIONS]
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    # Bytes, because the encoding of the terminal may lack a character.
    click.echo(json.dumps(make_document(operations), indent=2, ensure_ascii=False).encode())


@click.command(epilog="\b\nExample:\n  plantstore token kiosk expires=2099-01-31 >> tokens")
@click.argument("words", nargs=-1, metavar="[NAME] [expires=DATE] [operations=NAMES]")
def token(words: tuple[str, ...]) -> None:
    """Make a new access token, and print its line for a file of tokens.

    NAME is the client, DATE the time from which the token is refused (ISO 8601, UTC), NAMES what it
    has a right to, such as create,read. Without NAME, the line is a digest for PLANTSTORE_TOKENS.

    The token itself is shown once, on standard error: give it to the client.
    """
    try:
        made, line = make_token(" ".join(words))
    except ValueError as error:
        raise click.UsageError(f"{error}.".replace("line 1", "the line", 1)) from None
    click.echo(line.encode(errors="surrogateescape"))
    click.echo(made, err=True)
