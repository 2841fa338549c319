"""The ``plantstore`` command."""

import textwrap
from typing import Any

import click

from .. import __version__
from ..settings import SETTINGS, Setting
from . import _backup, _plants, _service, _tokens, _transfer
from ._parameters import examples
from ._streams import Program


def _described(setting: Setting[Any]) -> str:
    """Return the lines about a setting in the help."""
    start = f"  {setting.name:<22}  "
    default = f"; by default {setting.default}" if setting.default else ""
    text = setting.meaning.replace("`", "") + default
    return textwrap.fill(text, 78, initial_indent=start, subsequent_indent=" " * len(start))


# Without \b, click would join the lines.
_SETTINGS = "\n".join(["\b", "Settings in the environment:", *map(_described, SETTINGS), "", ""])

_FILES = """Exit codes: 0 for success, 1 for a failure, 2 for wrong usage.

A command that replaces a file writes a file .plantstore-* beside it first. If the command is
killed, the old file is unchanged, and this file can be removed.

"""


@click.group(
    cls=Program,
    commands=[
        *_tokens.COMMANDS,
        *_service.COMMANDS,
        *_plants.COMMANDS,
        *_transfer.COMMANDS,
        *_backup.COMMANDS,
    ],
    epilog=f"{_SETTINGS}{_FILES}"
    + examples(
        "plantstore token",
        "plantstore add 1 Monstera --tag indoor --store sqlite:///plants.db",
        "plantstore list --help",
    ),
)
@click.version_option(__version__, prog_name="plantstore", message="%(prog)s %(version)s")
def main() -> None:
    """Serve plants over HTTP, make access tokens, and manage the plants of a database."""
