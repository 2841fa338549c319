"""The ``plantstore`` command."""

import sys
from io import StringIO
from typing import Any

import click

from .. import __version__
from ..settings import SETTINGS
from ..stores.base import StoreUnavailable
from ..text import one_line, printable
from ._service import check, openapi, serve, token
from ._transfer import backup, export, import_


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
        # At exit, Python would try again to write what is left. A test needs the old stream.
        self._unwritten, sys.stdout = sys.stdout, StringIO()
        sys.exit(1)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the settings and the exit codes."""
        with formatter.section("Settings in the environment"):
            for entry in SETTINGS:
                text = f"{entry.meaning}; by default {entry.default or 'none'}".replace("`", "")
                formatter.write_dl([(f"{entry.name:<22}", text)])
        formatter.write("\nExit codes: 0 for success, 1 for a failure, 2 for wrong usage.\n")


@click.group(cls=Program, commands=[serve, check, token, openapi, export, import_, backup])
@click.version_option(__version__, prog_name="plantstore", message="%(prog)s %(version)s")
def main() -> None:
    """Serve plants over HTTP, make access tokens, and move plants between databases and files."""
