"""When a file that somebody may be writing can be used."""

import os
import time

# The seconds without a change after which a file is no longer being written.
_STILL = 1.0
# The seconds of changes after which a file is used all the same.
_LIMIT = 10.0
# Some file systems keep a time of modification only in steps of one or two seconds.
_STEP = 2.0


def identify(status: os.stat_result) -> object:
    """Return what identifies the content of a file: something of it changes with the content."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class Changes:
    """The changes of a file since it was used. The times are those of :func:`time.monotonic`."""

    def __init__(self) -> None:
        self._identity: object = None
        self._first = self._last = self._now = 0.0
        self._is_old = False

    def see(self, status: os.stat_result) -> None:
        """Take notice of the status that the file has now."""
        self._now = time.monotonic()
        if self._identity is None:
            self._first = self._now
        if self._identity != identify(status):
            self._identity, self._last = identify(status), self._now
        self._is_old = _age(status) >= _STILL

    @property
    def are_over(self) -> bool:
        """Whether the file has not changed for a second: by its time, or because it was seen."""
        return self._is_old or self._now - self._last >= _STILL

    @property
    def are_endless(self) -> bool:
        """Whether the file has not been used for ten seconds, although it has changed."""
        return self._now - self._first >= _LIMIT


def _age(status: os.stat_result) -> float:
    """Return the seconds since the last change, at least. A time in the future is no age."""
    is_exact = status.st_mtime_ns % 1_000_000_000 != 0
    return time.time() - status.st_mtime - (0 if is_exact else _STEP)
