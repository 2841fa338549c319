"""The files by which several processes share metrics. Each process writes to a file of its own.

A process goes on with the file of one that has ended, so there are not more files than there were
processes at a time.
"""

import os
import re
from contextlib import suppress
from typing import Any

from prometheus_client import Metric
from prometheus_client.multiprocess import MultiProcessCollector

# The size in bytes of a file. It is enough for every operation with every outcome.
_SIZE = 1 << 19
# How often the files are read, at most, because one was renamed meanwhile.
_ATTEMPTS = 10


def prepare_file(folder: str) -> None:
    """Prepare the file of this process, which prometheus-client maps into memory.

    The file has its full size: otherwise a disk that is full later would end the process.

    :param folder: the folder that the processes share.
    :raises OSError: if the file cannot be made.
    """
    own = os.path.join(folder, f"histogram_{os.getpid()}.db")
    if os.path.exists(own) or _take_over(folder, own):
        return
    try:
        with open(f"{own}.new", "wb") as file:
            file.write(bytes(_SIZE))
        os.rename(f"{own}.new", own)  # Other processes cannot read an empty file.
    except OSError:
        with suppress(OSError):
            os.unlink(f"{own}.new")
        raise


def _take_over(folder: str, own: str) -> bool:
    """Let the file of a process that has ended be that of this one, if there is one."""
    for name in os.listdir(folder):
        match = re.fullmatch(r"histogram_([0-9]+)\.db", name)
        if match and has_ended(int(match[1])):
            with suppress(FileNotFoundError):  # Another new process was faster.
                os.rename(os.path.join(folder, name), own)
                return True
    return False


def read_files(folder: str) -> list[Metric]:
    """Return the metrics of all processes: those in the folder that they share.

    If it has a file that is damaged, prometheus-client raises an exception of any kind.

    :raises OSError: if a file that is listed can never be opened.
    """
    shared: Any = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
    for _ in range(_ATTEMPTS):
        # A new process may rename a file before it is opened.
        with suppress(FileNotFoundError):
            return [*shared.collect()]
    raise OSError("a file cannot be found")


def has_ended(process: int) -> bool:
    """Return whether no process has this id. A process of another user has not ended.

    On Windows, where ``os.kill`` would interrupt it, no process seems to have ended.
    """
    if not hasattr(os, "fork"):
        return False
    try:
        os.kill(process, 0)  # It only looks for the process.
    except (ProcessLookupError, PermissionError, OverflowError) as error:
        return isinstance(error, ProcessLookupError)
    return False
