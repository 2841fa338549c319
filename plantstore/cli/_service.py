"""The commands for the service itself."""

import json
import os

import click

from .. import __version__
from ..openapi.document import make_document
from ..settings import SERVED_OPERATIONS, Settings, SettingsError
from ..stores.base import StoreUnavailable
from ..stores.urls import existing, open_store
from ..text import one_line
from ._parameters import COUNT, examples, with_url


@click.command(
    epilog=examples(
        "plantstore serve --bind 0.0.0.0:8000 --store sqlite:///plants.db --workers 4",
        "plantstore serve -- --access-logfile -",
    ),
)
@click.option("--bind", metavar="HOST:PORT", help="The address, by default 127.0.0.1:8000.")
@click.option(
    "--workers",
    type=COUNT,
    metavar="N",
    help="The number of processes, by default 1; memory:// allows only one.",
)
@click.option("--threads", type=COUNT, metavar="N", help="Threads of each process, by default 8.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[-- GUNICORN OPTIONS]")
@with_url
def serve(url: str, options: tuple[str, ...], **own: object) -> None:
    """Serve plants over HTTP with gunicorn.

    PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE must be set. Write options of gunicorn after --.
    """
    os.environ["PLANTSTORE_STORE"] = url
    try:
        from .. import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "gunicorn":
            raise
        raise click.ClickException(
            "gunicorn is missing: pip install 'plantstore[gunicorn]'"
        ) from None
    except ValueError:  # gunicorn reads it when it is imported.
        raise click.ClickException("WEB_CONCURRENCY must be a number of workers") from None
    given = [f"--{name}={value}" for name, value in own.items() if value is not None]
    server.serve([*given, *options])


@click.command(epilog=examples("plantstore check --store sqlite:///plants.db"))
@with_url
def check(url: str) -> None:
    """Check the settings and the store, and change nothing.

    Each line says what is right (ok) or wrong (error). The exit code is 1 if anything is wrong.
    """
    settings = Settings({**os.environ, "PLANTSTORE_STORE": url})
    *findings, store = settings.findings()
    findings = [f"plantstore {__version__}", *findings, store]
    if not isinstance(store, SettingsError):
        findings[-1] = _usable(url, store)
    wrong = [finding for finding in findings if isinstance(finding, Exception)]
    for finding in findings:
        click.echo(f"{'error' if finding in wrong else 'ok   '}  {one_line(finding)}")
    if wrong:
        click.get_current_context().exit(1)


def _usable(url: str, name: str) -> str | SettingsError:
    """Return the line of the report about a store, or the error if it cannot be used.

    :param name: the text with which the line begins.
    """
    if url.startswith("sqlite:") and _is_new(url):
        return f"{name} can be used (the first plant creates the file)"
    try:
        # Opened with its own URL, the store could change the journal mode of an SQLite file.
        with open_store(existing(url)) as store:
            store.ping()
    except StoreUnavailable as error:
        return SettingsError(f"{name} cannot be used now: {error}")
    return f"{name} can be used"


def _is_new(url: str) -> bool:
    from ..sql import is_new, make_engine

    return is_new(make_engine(url).url)


@click.command(epilog=examples("plantstore openapi"))
def openapi() -> None:
    """Print the OpenAPI document as JSON.

    It has the operations in PLANTSTORE_OPERATIONS, by default only create.
    """
    try:
        operations = Settings(os.environ)[SERVED_OPERATIONS]
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    # Bytes, because the encoding of the terminal may lack a character.
    click.echo(json.dumps(make_document(operations), indent=2, ensure_ascii=False).encode())


#: The commands of this module.
COMMANDS = [serve, check, openapi]
