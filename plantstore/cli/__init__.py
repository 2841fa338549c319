"""The ``plantstore`` command."""

import click

from .. import __version__
from . import _plants, _service, _tokens, _transfer
from ._parameters import examples
from ._streams import Program

_SETTINGS = """\b
Settings in the environment:
  PLANTSTORE_STORE        the URL of the database, such as sqlite:///plants.db
  PLANTSTORE_TOKENS       the tokens of the service, separated by commas
  PLANTSTORE_TOKENS_FILE  a file of such tokens, one per line
  PLANTSTORE_MAX_BODY     the largest request body of the service, in bytes
  PLANTSTORE_OPERATIONS   what the service serves: create, read, list, delete
  PLANTSTORE_METRICS      1: the service has metrics for Prometheus
  PLANTSTORE_LOG          the format of the log of the service: text or json

"""


@click.group(
    cls=Program,
    commands=[*_tokens.COMMANDS, *_service.COMMANDS, *_plants.COMMANDS, *_transfer.COMMANDS],
    epilog=_SETTINGS
    + examples(
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
