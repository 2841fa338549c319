"""How commands use the standard streams: failed writes, text for a terminal, progress bars."""

import os
import sys
from collections.abc import Callable, Generator, Iterable
from typing import IO, Any, TypeVar

import click

from ..text import printable

_T = TypeVar("_T")


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


def progress(
    label: str, items: Iterable[_T], total: int, weigh: Callable[[_T], int] = lambda item: 1
) -> Generator[_T]:
    """Yield the items, and show a progress bar if standard error is a terminal.

    :param total: the sum of the weights of all items. If it is 0, no bar is shown.
    :param weigh: returns the weight of an item, by default 1.
    """
    if total == 0 or not sys.stderr.isatty():
        yield from items
        return
    with click.progressbar(
        length=total, label=label, file=sys.stderr, update_min_steps=total // 1000
    ) as bar:
        for item in items:
            yield item
            bar.update(weigh(item))
        bar.finish()
        bar.render_progress()


def printable_line(line: bytes) -> bytes:
    """Return a line of a file with the characters that would control a terminal escaped."""
    return printable(line.decode().rstrip("\r\n")).encode() + b"\n"
