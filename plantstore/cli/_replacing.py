"""Files that are replaced as a whole or not at all."""

import errno
import os
import secrets
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO

# The signals that ask the process to end.
_ENDING = [
    getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name)
]
# What they do by default: SIGINT raises KeyboardInterrupt, and the others end the process at once.
_DEFAULTS = {signal.SIG_DFL, signal.default_int_handler}


@contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """Yield a binary file. At the end of the block, it replaces the file at a path, on the disk.

    If the block fails, or a signal ends the process, the old file is unchanged. The new file has
    the permissions of the old one, and also its owner if this is permitted. A symbolic link stays a
    link. What is not a regular file, such as a device or a pipe, is written directly.

    :raises OSError: if the file cannot be written. ``filename`` is the path.
    """
    with naming(path):
        old = _status(path)
        target = os.path.realpath(path) if os.path.islink(path) else path
        if old is not None and not os.path.isfile(target):
            with open(path, "wb") as file:
                yield file
        else:
            with _beside(target, path) as temporary, _writing(temporary, target, old) as file:
                yield file


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Add a path to an error of the operating system that names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


@contextmanager
def _beside(target: str, path: str) -> Iterator[str]:
    """Yield the name of a new file. At the end of the block, that file replaces the target."""
    folder = os.path.dirname(target) or os.curdir
    temporary = os.path.join(folder, f".plantstore-{secrets.token_hex(8)}")
    try:
        with _ending_as_exceptions() as raised:
            yield temporary
            if raised:  # Python ignores an exception in some callbacks.
                raise raised[0]
            os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename == temporary:
            error.filename, error.filename2 = path, None  # The user knows only the path.
            if error.errno == errno.EBUSY:
                error.strerror = "it is mounted alone, so it cannot be replaced: mount its folder"
        raise
    _sync_folder(folder)


@contextmanager
def _writing(path: str, replaced: str, old: os.stat_result | None) -> Iterator[IO[bytes]]:
    """Yield a new file with the permissions of the old one. At the end, it is on the disk."""
    # Nobody else may open the file before it has its permissions.
    mode = 0o666 if old is None else 0o600
    with open(path, "xb", opener=partial(os.open, mode=mode)) as file:
        if old is not None:
            _keep_access(file.fileno(), old)
            _keep_attributes(file.fileno(), replaced)
        yield file
        file.flush()
        os.fsync(file.fileno())


def _keep_access(file: int, old: os.stat_result) -> None:
    for owner, group in ((-1, old.st_gid), (old.st_uid, -1)):
        with suppress(PermissionError):
            os.fchown(file, owner, group)
    os.fchmod(file, stat.S_IMODE(old.st_mode))  # After the owner, whose change removes bits.


def _keep_attributes(file: int, path: str) -> None:
    """Copy the extended attributes of the old file, such as its access control list."""
    with suppress(OSError, AttributeError):  # Not every system or file has such attributes.
        for name in os.listxattr(path):
            os.setxattr(file, name, os.getxattr(path, name))


def _sync_folder(folder: str) -> None:
    # A folder that may be written but not read cannot be synced.
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _ending_as_exceptions() -> Iterator[list[BaseException]]:
    """Raise an exception for a signal that asks the process to end, and yield those raised."""
    raised: list[BaseException] = []

    def end(number: int, _: object) -> None:
        ending = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
        raised.append(ending)
        raise ending

    old = {number: signal.getsignal(number) for number in _ENDING}
    old = {number: handler for number, handler in old.items() if handler in _DEFAULTS}
    for number in old:
        signal.signal(number, end)
    try:
        yield raised
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
