"""The files by which several processes share metrics. Each process writes to a file of its own.

A process goes on with the file of one that has ended, so there are not more files than there were
processes at a time.
"""

import os
import re
import struct
from contextlib import suppress
from typing import IO, Any

from prometheus_client import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from .processes import has_ended

# The size in bytes of a file. It is enough for every operation with every outcome.
_SIZE = 1 << 19
# How often the files are read, at most, because one was renamed meanwhile.
_ATTEMPTS = 100
#: What prometheus-client raises if a file is not one that it has written, or is damaged.
DAMAGED = (RuntimeError, ValueError, IndexError, struct.error)


def prepare_file(folder: str) -> None:
    """Prepare the file of this process, which prometheus-client maps into memory.

    That of an earlier process is replaced if it is damaged. The space on the disk is allocated:
    otherwise a disk that is full later would end the process.

    :param folder: the folder that the processes share.
    :raises OSError: if the file cannot be made.
    """
    path = os.path.join(folder, f"histogram_{os.getpid()}.db")
    found = _find(folder, ".db")
    if found is None or _is_damaged(found):
        # A process may have been killed before its file was complete.
        found = _find(folder, ".db.new") or f"{path}.new"
    with open(found, "ab") as file:
        _allocate(file)
    os.rename(found, path)  # Other processes cannot read an empty file.


def _find(folder: str, ending: str) -> str | None:
    """Return the path of the file of this process. It may have been that of an earlier one."""
    own = os.path.join(folder, f"histogram_{os.getpid()}{ending}")
    if os.path.exists(own):
        return own
    for name in os.listdir(folder):
        match = re.fullmatch(rf"histogram_([0-9]+){re.escape(ending)}", name)
        if match and has_ended(int(match[1])):
            with suppress(FileNotFoundError):  # Another new process was faster.
                os.rename(os.path.join(folder, name), own)
                return own
    return None


def _is_damaged(path: str) -> bool:
    collector: Any = MultiProcessCollector
    try:
        collector.merge([path])
    except DAMAGED:
        return True
    return False


def _allocate(file: IO[bytes]) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, _SIZE)
    else:  # macOS has no such function.
        file.write(bytes(max(_SIZE - file.tell(), 0)))


def read_files(folder: str) -> list[Metric]:
    """Return the metrics of all processes: those in the folder that they share.

    :raises OSError: if they cannot be read. If one is damaged, the exception is one of ``DAMAGED``.
    """
    shared: Any = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
    for _ in range(_ATTEMPTS):
        # A new process may rename a file before it is opened.
        with suppress(FileNotFoundError):
            return [*shared.collect()]
    raise OSError("a file cannot be found")
