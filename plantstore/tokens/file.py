"""A file of tokens that is read again when it has changed.

Any number of threads use it, in processes that may be forked meanwhile. There is no lock: each
thread that finds the last look too old looks itself, and one assignment replaces what is known.
"""

import logging
import os
import stat
import time
from collections.abc import Iterable
from hashlib import sha256
from typing import ClassVar, NamedTuple

from ..auth import Client
from ..errors import Refused
from .lines import ListedToken, read_tokens

# The seconds between two looks at a file.
_INTERVAL = 1.0

_log = logging.getLogger("plantstore")


class _Known(NamedTuple):
    """The tokens that a look at the file has found. The look began at ``time``."""

    time: float
    identity: object  # That of the content. After a fault, it is None, and the file is read again.
    tokens: dict[bytes, ListedToken]


class TokenFile:
    """Accepts the tokens of a file, and reads the file again when it has changed.

    Called with a token, it returns the name of the token's client, or a :class:`Client` if the
    token has only some rights, or ``None`` if the token is not accepted or has expired.

    A call uses the content that the file had at most a second before: it looks at the file unless
    another call has done so since. So it needs no thread, and works in every process of every
    server. While the file is broken or missing, the earlier tokens stay in use.

    :param path: the path of the file. :func:`read_tokens` describes its lines.
    :raises OSError: if the file cannot be read, unless :attr:`was_checked`.
    :raises ValueError: if its text is invalid, unless :attr:`was_checked`.
    """

    #: Whether the main process of the server has checked the file. If it has broken since, this
    #: process starts anyway, and refuses requests until it can read the file.
    was_checked: ClassVar[bool] = False

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._known = _Known(0, None, {})
        self._fault = ""  # Why the file cannot be used.
        try:
            self._known = self._read(time.monotonic())
        except (OSError, ValueError) as error:
            if not self.was_checked:
                raise
            self._fault = describe_fault(error)

    def __call__(self, token: str) -> str | Client | None:
        """Return the token's client, or ``None`` if the token is not accepted.

        :raises Refused: 50304 if the file could never be read.
        """
        if time.monotonic() >= self._known.time + _INTERVAL:
            self._look()
        tokens = self._known.tokens
        if not tokens:
            raise Refused(50304, reason=f"The file of tokens cannot be used: {self._fault}.")
        # A client cannot choose the digest of its token, so the time of the lookup reveals nothing.
        listed = tokens.get(sha256(token.encode()).digest())
        if listed is None:
            return None
        if listed.is_expired():
            _log.info("The token of %r has expired", listed.client)
            return None
        if listed.operations is None:
            return listed.client
        return Client(listed.client, listed.operations)

    def _look(self) -> None:
        """Read the file if it has changed, and log what that means."""
        began, fault = time.monotonic(), ""
        try:
            new = self._read(began)
        except (OSError, ValueError) as error:
            new, fault = _Known(began, None, self._known.tokens), describe_fault(error)
        known, self._known = self._known, new
        earlier_fault, self._fault = self._fault, fault
        if fault not in {"", earlier_fault} and known.tokens:
            message = "The file of tokens cannot be used: %s. The earlier tokens (%d) stay in use."
            _log.error(message, fault, len(known.tokens))
        elif not fault and (earlier_fault or new.tokens != known.tokens):
            expired = name_expired(new.tokens.values())
            _log.info("Tokens: now %d from the file%s", len(new.tokens), expired)

    def _read(self, began: float) -> _Known:
        known = self._known
        if _identify(os.stat(self._path)) == known.identity:
            return known._replace(time=began)
        identity, tokens = read_file(self._path)
        return _Known(began, identity, {token.digest: token for token in tokens})


def _identify(status: os.stat_result) -> object:
    """Return what identifies the content of a file: something of it changes with the content."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_file(path: str) -> tuple[object, list[ListedToken]]:
    """Return what identifies the content of a file, and the tokens that it lists.

    :raises OSError: if it cannot be read.
    :raises ValueError: as for :func:`parse`, and if it is not a regular file.
    """
    # The opening of a pipe would wait for its other end.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("not a regular file")
    with open(path, "rb") as file:
        # Before it is read: if it changes meanwhile, the next look sees the difference.
        identity = _identify(os.fstat(file.fileno()))
        return identity, parse(file.read())


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
