"""A file of tokens that is read again when it has changed."""

import logging
import os
import stat
import time
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import ClassVar

from ..auth import Client
from ..errors import Refused
from .lines import ListedToken, read_tokens

# The seconds between two looks at a file.
_INTERVAL = 1.0
# The seconds without a change after which a file is no longer being written.
_STILL = 1.0
# The same by the time of the file. Some file systems keep it only in whole seconds.
_OLD = 2.0
# A file is used all the same if it has changed at so many looks in a row.
_MANY = 11

_log = logging.getLogger("plantstore")


class TokenFile:
    """Accepts the tokens of a file, and reads the file again when it has changed.

    Called with a token, it returns the name of the token's client, or a :class:`Client` if the
    token has only some rights, or ``None`` if the token is not accepted or has expired.

    A file is used when it has not changed for a second: until then, it may still be written. The
    start waits for this. If it has changed at eleven looks in a row, at least a second apart, it
    is used all the same, and the log warns.

    The first request that comes a second or more after the last look looks at the file. So it needs
    no thread, and works in every process of every server. While the file is broken or missing, the
    earlier tokens stay in use.

    :param path: the path of the file. :func:`read_tokens` describes its lines.
    :raises OSError: if the file cannot be read, unless :attr:`was_checked`.
    :raises ValueError: if its text is invalid, unless :attr:`was_checked`.
    """

    #: Whether the main process of the server has checked the file. If it has broken since, this
    #: process starts anyway, and refuses requests until it can read the file.
    was_checked: ClassVar[bool] = False

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._looking: dict[int, Lock] = {}  # By process: a child has no threads of its parent.
        self._next_look = 0.0
        self._used: object = None  # What identifies the content that is in use.
        self._seen: object = None  # What identified the content at the last look,
        self._seen_since = 0.0  # and when it was seen first.
        self._changes = 0  # The looks that have seen a change since the content in use.
        self._fault = ""  # Why the file cannot be used.
        self._tokens: dict[bytes, ListedToken] = {}
        try:
            while not self._try_to_read():
                time.sleep(_INTERVAL)
        except (OSError, ValueError) as error:
            if not self.was_checked:
                raise
            self._report(error)

    def __call__(self, token: str) -> str | Client | None:
        """Return the token's client, or ``None`` if the token is not accepted.

        :raises Refused: 50304 if the file could never be read.
        """
        if time.monotonic() >= self._next_look:
            self._look()
        if not self._tokens:
            raise Refused(50304, reason=f"The file of tokens cannot be used: {self._fault}.")
        # A client cannot choose the digest of its token, so the time of the lookup reveals nothing.
        listed = self._tokens.get(sha256(token.encode()).digest())
        if listed is None:
            return None
        if listed.is_expired():
            _log.info("The token of %r has expired", listed.client)
            return None
        if listed.operations is None:
            return listed.client
        return Client(listed.client, listed.operations)

    def _look(self) -> None:
        """Look at the file. While one thread looks, the others use the earlier tokens."""
        looking = self._looking.setdefault(os.getpid(), Lock())
        if looking.acquire(blocking=False):
            try:
                self._refresh()
            finally:
                looking.release()

    def _refresh(self) -> None:
        """Read the file if it has changed, and is not just being written."""
        try:
            self._try_to_read()
        except (OSError, ValueError) as error:
            self._report(error)
        self._next_look = time.monotonic() + _INTERVAL

    def _try_to_read(self) -> bool:
        """Read the file if it can be used. Return whether its content is in use."""
        status = os.stat(self._path)
        identity = _identify(status)
        is_still = self._is_still(status)
        if identity != self._used and (is_still or self._changes >= _MANY):
            self._read(identity, is_still=is_still)
        return identity == self._used

    def _is_still(self, status: os.stat_result) -> bool:
        """Return whether the file has not changed for a second: by its time, or as it was seen."""
        now = time.monotonic()
        if self._seen != _identify(status):
            self._changes = 1 if self._seen == self._used else self._changes + 1
            self._seen, self._seen_since = _identify(status), now
        return time.time() - status.st_mtime >= _OLD or now - self._seen_since >= _STILL

    def _read(self, identity: object, *, is_still: bool) -> None:
        tokens = read_file(self._path)
        if is_still and _identify(os.stat(self._path)) != identity:
            return  # It has changed while it was read.
        new = {token.digest: token for token in tokens}
        if self._fault or (self._tokens and new != self._tokens):
            _log.info("Tokens: now %d from the file%s", len(new), name_expired(tokens))
        if not is_still and new != self._tokens:
            _log.warning("The file of tokens changes all the time: it is used all the same")
        self._tokens, self._used, self._fault = new, identity, ""

    def _report(self, error: Exception) -> None:
        fault = describe_fault(error)
        if fault != self._fault and self._tokens:
            message = "The file of tokens cannot be used: %s. The earlier tokens (%d) stay in use."
            _log.error(message, fault, len(self._tokens))
        self._fault, self._used, self._seen = fault, None, None


def _identify(status: os.stat_result) -> object:
    """Return what identifies the content of a file: something of it changes with the content."""
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def read_file(path: str) -> list[ListedToken]:
    """Return the tokens that a file lists.

    :raises OSError: if it cannot be read.
    :raises ValueError: as for :func:`parse`, and if it is not a regular file.
    """
    return parse(read_content(path))


def read_content(path: str) -> bytes:
    """Return the content of a regular file.

    :raises OSError: if it cannot be read.
    :raises ValueError: if it is not a regular file.
    """
    # The opening of a pipe would wait for its other end.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("not a regular file")
    return Path(path).read_bytes()


def parse(content: bytes) -> list[ListedToken]:
    """Return the tokens that the content of a file lists.

    :raises ValueError: as for :func:`read_tokens`, and if it is not UTF-8 text.
    """
    try:
        text = content.decode("utf-8-sig")
    except ValueError:
        raise ValueError("not UTF-8 text") from None
    return read_tokens(text)


def name_expired(tokens: Iterable[ListedToken]) -> str:
    """Return the names of the clients whose tokens have expired, for the log."""
    expired = ", ".join(repr(token.client) for token in tokens if token.is_expired())
    return f" (expired: {expired})" if expired else ""


def describe_fault(error: Exception) -> str:
    """Return why a file of tokens cannot be used, without its path, which may be a token."""
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror
    return str(error) or type(error).__name__
