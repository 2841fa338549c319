"""The ``plantstore`` command."""

import sys
import textwrap
from io import StringIO
from typing import Any

import click

from .. import __version__
from ..settings import SETTINGS, Setting
from ..text import printable
from . import _service, _transfer


class Program(click.Group):
    """Commands that fail with one line if a file or a standard stream cannot be used."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command. An error of the operating system is one line, and exit code 1."""
        try:
            return super().main(*args, **extra)
        except OSError as error:
            place = "standard output" if error.filename is None else str(error.filename)
            click.echo(f"Error: {printable(f'{place}: {error.strerror or error}')}", err=True)
            sys.stdout = StringIO()  # At exit, Python would try again to write what is left.
            sys.exit(1)


def _described(setting: Setting[Any]) -> str:
    """Return the lines about a setting in the help."""
    default = f"; by default {setting.default}" if setting.default else ""
    line = f"  {setting.name:<22}  {setting.meaning}{default}".replace("`", "")
    return textwrap.fill(line, 78, subsequent_indent=" " * 26)


# Without \b, click would join the lines.
_EPILOG = "\n".join(["\b", "Settings in the environment:", *map(_described, SETTINGS)])
_EPILOG += "\n\nExit codes: 0 for success, 1 for a failure, 2 for wrong usage."


@click.group(cls=Program, commands=[*_service.COMMANDS, *_transfer.COMMANDS], epilog=_EPILOG)
@click.version_option(__version__, prog_name="plantstore", message="%(prog)s %(version)s")
def main() -> None:
    """Serve plants over HTTP, make access tokens, and move plants between databases and files."""
