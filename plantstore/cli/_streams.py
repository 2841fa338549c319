"""The standard streams of the command: closed or full ones, and text for a terminal."""

import errno
import os
import sys
from typing import IO, Any

import click

from ..text import printable

# For each standard stream, its mode, and the mode of /dev/null that replaces it if it is closed.
# Using a closed standard input or output is then an error. Standard error discards messages.
_STREAMS = {
    "stdin": ("r", os.O_WRONLY),
    "stdout": ("w", os.O_RDONLY),
    "stderr": ("w", os.O_WRONLY),
}


class Program(click.Group):
    """Commands that fail with one line if a standard stream or a file cannot be used.

    A command whose output has not been written completely never succeeds.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command, as :meth:`click.Command.main` does.

        :raises SystemExit: with exit code 1, if a stream or a file cannot be used.
        """
        _open_closed_streams()
        streams = [sys.stdout, sys.stderr]  # click replaces them if a pipe is closed.
        try:
            return super().main(*args, **extra)
        except OSError as error:
            click.echo(f"Error: {_describe(error)}", err=True)
            sys.exit(1)
        finally:
            for stream in streams:
                _discard_unwritten(stream)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and write its output completely."""
        result = super().invoke(ctx)
        sys.stdout.flush()
        return result


def _open_closed_streams() -> None:
    """Replace closed streams. Otherwise the next file, such as a database, gets a descriptor."""
    for name, (mode, flags) in _STREAMS.items():
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115


def _discard_unwritten(stream: IO[str]) -> None:
    """Discard output that cannot be written. Python would write it again at exit."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _describe(error: OSError) -> str:
    place = "standard output" if error.filename is None else str(error.filename)
    if error.errno == errno.EBADF:
        return printable(f"{place} is closed")
    return printable(f"{place}: {error.strerror or error}")


def printable_line(line: bytes) -> bytes:
    """Return a line of a file with the characters that would control a terminal escaped."""
    return printable(line.decode().rstrip("\r\n")).encode() + b"\n"
