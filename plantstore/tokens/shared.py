"""The tokens that the processes of one service have read last, for when their file is broken."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from threading import Lock
from typing import IO

_lock = Lock()
_file: IO[bytes] | None = None


def share() -> None:
    """Let all processes that this process forks later share the tokens that they read."""
    global _file
    # It has no name, and stays open until the last process ends.
    if hasattr(os, "memfd_create"):
        _file = open(os.memfd_create("plantstore-tokens"), "r+b", buffering=0)  # noqa: SIM115
    else:
        _file = TemporaryFile(buffering=0)  # pragma: no cover  # Not on Linux. # noqa: SIM115


def stop_sharing() -> None:
    """Let this process read tokens without those of the other processes."""
    global _file
    _file = None


@contextmanager
def last_texts() -> Iterator[dict[str, str]]:
    """Yield texts that list the last tokens, as digests, by the path of their file.

    Changes are shared at the end of the block. No other process enters the block meanwhile.
    Without :func:`share`, there are no texts, and changes have no effect.
    """
    if _file is None:
        yield {}
        return
    with _lock, _locked(_file.fileno()) as file:
        texts = _read(file)
        yield texts
        data = json.dumps(texts).encode()
        # If the process is killed between these lines, the text is complete.
        os.pwrite(file, data, 0)
        os.ftruncate(file, len(data))


@contextmanager
def _locked(file: int) -> Iterator[int]:
    from fcntl import LOCK_EX, LOCK_UN, lockf  # Windows has no such module.

    lockf(file, LOCK_EX)
    try:
        yield file
    finally:
        lockf(file, LOCK_UN)


def _read(file: int) -> dict[str, str]:
    data = os.pread(file, os.fstat(file).st_size, 0)
    if not data:
        return {}
    texts: dict[str, str]
    texts, _ = json.JSONDecoder().raw_decode(data.decode())
    return texts
