"""The tokens that the processes of one service have read last, for when their file is broken."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO

_file: IO[bytes] | None = None
_reads_last = True


def share() -> None:
    """Let all processes that this process forks later share the tokens that they read."""
    global _file
    # It has no name, and stays open until the last process ends.
    if hasattr(os, "memfd_create"):
        _file = open(os.memfd_create("plantstore-tokens"), "r+b", buffering=0)  # noqa: SIM115
    else:
        _file = TemporaryFile(buffering=0)  # pragma: no cover  # Not on Linux. # noqa: SIM115


def ignore_last() -> None:
    """Let this process share the tokens that it reads, but not use those of other processes."""
    global _reads_last
    _reads_last = False


def write_last(path: str, lines: str) -> None:
    """Share the lines that list the tokens of a file by their digests."""
    if _file is not None:
        with suppress(OSError), _locked(_file.fileno()) as file:
            # One call: the text is complete if the process is killed. A longer text may have been
            # there before, so its end is marked.
            os.pwrite(file, b"%b\0%b\0" % (os.fsencode(path), lines.encode()), 0)


def read_last(path: str) -> str | None:
    """Return the lines that were shared last, or ``None`` if there are none of this file."""
    if _file is None or not _reads_last:
        return None
    with _locked(_file.fileno()) as file:
        data = os.pread(file, os.fstat(file).st_size, 0)
    of, _, rest = data.partition(b"\0")
    return rest.partition(b"\0")[0].decode() if of == os.fsencode(path) else None


@contextmanager
def _locked(file: int) -> Iterator[int]:
    from fcntl import LOCK_EX, LOCK_UN, lockf  # Windows has no such module.

    lockf(file, LOCK_EX)
    try:
        yield file
    finally:
        lockf(file, LOCK_UN)
