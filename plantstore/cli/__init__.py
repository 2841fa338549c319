"""The ``plantstore`` command."""

import sys
import textwrap
from io import StringIO
from typing import Any

import click

from .. import __version__
from ..settings import SETTINGS, Setting
from ..stores.base import StoreUnavailable
from ..text import one_line, printable
from . import _service, _transfer


class Program(click.Group):
    """Commands that fail with one line if a file or the store cannot be used."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command. An error of a file or a store is one line, and exit code 1."""
        try:
            return super().main(*args, **extra)
        except StoreUnavailable as error:
            fault = f"the store cannot be used: {one_line(error)}"
        except OSError as error:
            place = "standard output" if error.filename is None else error.filename
            fault = f"{place}: {error.strerror or error}"
        click.echo(f"Error: {printable(fault)}", err=True)
        sys.stdout = StringIO()  # At exit, Python would try again to write what is left.
        sys.exit(1)


def _described(entry: Setting[Any]) -> str:
    default = f"; by default {entry.default}" if entry.default else ""
    line = f"  {entry.name:<22}  {entry.meaning}{default}".replace("`", "")
    return textwrap.fill(line, 78, subsequent_indent=" " * 26)


# Without \b, click would join the lines.
_EPILOG = "\n".join(["\b", "Settings in the environment:", *map(_described, SETTINGS)])
_EPILOG += "\n\nExit codes: 0 for success, 1 for a failure, 2 for wrong usage."


@click.group(cls=Program, commands=[*_service.COMMANDS, *_transfer.COMMANDS], epilog=_EPILOG)
@click.version_option(__version__, prog_name="plantstore", message="%(prog)s %(version)s")
def main() -> None:
    """Serve plants over HTTP, make access tokens, and move plants between databases and files."""
