"""The ``plantstore`` command."""

import secrets

import click

from . import __version__
from .auth import token_digest


@click.group()
@click.version_option(__version__, prog_name="plantstore", message="%(prog)s %(version)s")
def main() -> None:
    """Run the plant store's chores."""


@main.command()
def token() -> None:
    """Make a new access token.

    The first line is the token, for the client alone. The second is its digest: in
    PLANTSTORE_TOKENS or PLANTSTORE_TOKENS_FILE it accepts the token and does not show it.
    """
    made = secrets.token_urlsafe(32)
    click.echo(made)
    click.echo(f"sha256:{token_digest(made).hex()}")
