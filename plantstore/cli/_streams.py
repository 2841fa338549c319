"""How commands use the standard streams: failed writes, text for a terminal, progress bars."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from ..text import printable


class Program(click.Group):
    """Commands that fail with one line if a standard stream or a file cannot be used.

    A command whose output has not been written completely never succeeds.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command, as :meth:`click.Command.main` does.

        :raises SystemExit: with exit code 1, if a stream or a file cannot be used.
        """
        streams = [sys.stdout, sys.stderr]  # click replaces them if a pipe is closed.
        if None in (sys.stdin, *streams):
            sys.exit("Error: a standard stream is closed. Use /dev/null instead.")
        try:
            return super().main(*args, **extra)
        except OSError as error:
            place = "standard output" if error.filename is None else str(error.filename)
            click.echo(f"Error: {printable(f'{place}: {error.strerror or error}')}", err=True)
            sys.exit(1)
        finally:
            for stream in streams:
                _discard_unwritten(stream)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and write its output completely."""
        result = super().invoke(ctx)
        sys.stdout.flush()
        return result


def _discard_unwritten(stream: IO[str]) -> None:
    """Discard output that cannot be written. Python would write it again at exit."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def progress(label: str, *, visible: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that draws a progress bar if standard error is a terminal.

    Its arguments are what is done, and the total.
    """
    if not visible or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with click.progressbar(length=1000, label=label, file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            part = 1000 * done // max(total, 1)
            if part != bar.pos:
                bar.update(part - bar.pos)

        yield show
        bar.finish()
        bar.render_progress()


def printable_line(line: bytes) -> bytes:
    """Return a line of a file with the characters that would control a terminal escaped."""
    return printable(line.decode().rstrip("\r\n")).encode() + b"\n"
