"""The commands for the service itself: token, serve and check."""

import os
import secrets

import click

from ..auth import token_digest
from ..check import check
from .parameters import COUNT, examples, with_url
from .streams import printable


@click.command(epilog=examples("plantstore token"))
def token() -> None:
    """Make a new access token. No setting is needed.

    The first line is the token: give it to the client. The second line is its digest: put it
    into PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE. The service then accepts the token without
    storing it.
    """
    made = secrets.token_urlsafe(32)
    click.echo(made)
    click.echo(f"sha256:{token_digest(made).hex()}")


@click.command(
    epilog=examples(
        "plantstore serve --bind 0.0.0.0:8000 --store sqlite:///plants.db --workers 4",
        "plantstore serve -- --access-logfile -",
    )
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
    given = [f"--{name}={value}" for name, value in own.items() if value is not None]
    server.serve([*given, *options])


@click.command("check", epilog=examples("plantstore check --store sqlite:///plants.db"))
@with_url
def check_(url: str) -> None:
    """Check the settings and the store, and change nothing.

    Each line says what is right (ok) or wrong (error). The exit code is 1 if anything is wrong.
    """
    findings = [*check({**os.environ, "PLANTSTORE_STORE": url})]
    for right, text in findings:
        click.echo(f"{'ok   ' if right else 'error'}  {printable(text)}")
    if not all(finding.is_right for finding in findings):
        click.get_current_context().exit(1)


#: The commands of this module.
COMMANDS = [token, serve, check_]
