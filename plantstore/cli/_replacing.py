"""Files that are replaced as a whole or not at all."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO

_MOUNTED = "it is mounted alone, so it cannot be replaced: mount its folder"


@contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """Yield a binary file. At the end of the block, it replaces the file at a path, on the disk.

    If the block fails, the old file is unchanged. If the process is killed, a file
    ``.plantstore-*`` remains beside it. The new file has the mode of the old one, and its owner if
    this is permitted. A symbolic link stays a link. A device or a pipe is written directly.

    :raises OSError: if the file cannot be written. ``filename`` is the path.
    """
    with naming(path):
        old = os.stat(path) if os.path.exists(path) else None
        if old is not None and not stat.S_ISREG(old.st_mode):
            with open(path, "wb") as file:
                yield file
            return
        target = os.path.realpath(path) if os.path.islink(path) else path
        folder = os.path.dirname(target) or os.curdir
        temporary = os.path.join(folder, f".plantstore-{secrets.token_hex(8)}")
        # Until the file has its owner, nobody else may open it.
        opener = partial(os.open, mode=0o666 if old is None else 0o600)
        try:
            with open(temporary, "xb", opener=opener) as file:
                if old is not None:
                    _keep_access(file.fileno(), old)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(temporary)
            if isinstance(error, OSError) and error.filename == temporary:
                reason = _MOUNTED if error.errno == errno.EBUSY else error.strerror
                raise OSError(error.errno, reason, path) from None
            raise
        _sync(folder)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Add a path to an error of the operating system that names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def _keep_access(file: int, old: os.stat_result) -> None:
    for owner, group in ((-1, old.st_gid), (old.st_uid, -1)):
        with suppress(OSError):
            os.fchown(file, owner, group)
    os.fchmod(file, stat.S_IMODE(old.st_mode))  # After the owner, whose change removes bits.


def _sync(folder: str) -> None:
    # A folder that may be written but not read cannot be synced.
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
