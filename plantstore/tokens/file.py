"""A file of tokens that is read again when it has changed."""

import logging
import os
import stat
import time
from collections.abc import Iterable
from hashlib import sha256
from threading import Lock

from .lines import ListedToken, read_tokens
from .shared import last_texts

# The seconds between two looks at the file.
_INTERVAL = 1.0
# The seconds for which a changed file must not change again before it is read. Otherwise half of a
# file that is being written could be read.
_PAUSE = 1.0
# The seconds after which a file that changes all the time is read anyway.
_LONGEST_DELAY = 3.0

_log = logging.getLogger("plantstore")


class TokenFile:
    """Accepts the tokens of a file, and reads the file again within some seconds after a change.

    Called with a token, it returns the name of the token's client, or ``None`` if the token is not
    accepted or has expired. It needs no thread and no signal: a call looks at the file if the last
    look was a second ago. While the file is broken or missing, the tokens that any process of the
    service has read last stay in use.

    :param path: the path of the file. :func:`read_tokens` describes its lines.
    :raises OSError: if the file cannot be read, and no process of the service has read it before.
    :raises ValueError: if its text is invalid, in the same case.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._tokens: dict[bytes, ListedToken] = {}
        self._fault = ""  # Why the file could not be used, as the log says.
        self._changed: float | None = None  # When a change was seen that has not been read.
        self._lock = Lock()
        self._read(_state(self._path))

    def __call__(self, token: str) -> str | None:
        """Return the name of the token's client, or ``None`` if the token is not accepted."""
        if time.monotonic() >= self._next_look or os.getpid() != self._process:
            self._look()
        # A client cannot choose the digest of its token, so the time of the lookup reveals nothing.
        listed = self._tokens.get(sha256(token.encode()).digest())
        if listed is None:
            return None
        if listed.is_expired():
            _log.info("The token of %r has expired", listed.client)
            return None
        return listed.client

    def _look(self) -> None:
        """Read the file if it has changed, unless another thread does this now."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            state, now = _state(self._path), time.monotonic()
            self._next_look = now + _INTERVAL
            # A forked process has the tokens of the process that has forked it.
            is_forked = os.getpid() != self._process
            if is_forked or (state != self._state and self._is_settled(state, now)):
                self._read(state)
        finally:
            self._lock.release()

    def _is_settled(self, state: tuple[int, ...], now: float) -> bool:
        if self._changed is None:
            self._changed = now
        return not _is_recent(state) or now >= self._changed + _LONGEST_DELAY

    def _read(self, state: tuple[int, ...]) -> None:
        self._process, self._changed = os.getpid(), None
        self._next_look = time.monotonic() + _INTERVAL
        self._state = None if _is_recent(state) else state
        # Inside the block, no other process can share older tokens.
        with last_texts() as last:
            try:
                tokens = read_file(self._path)
            except (OSError, ValueError) as error:
                self._keep(last.get(self._path), error)
                return
            last[self._path] = "\n".join(map(str, tokens))
        self._use(tokens)

    def _use(self, tokens: list[ListedToken]) -> None:
        new = {token.digest: token for token in tokens}
        if self._fault or (self._tokens and new != self._tokens):
            _log.info("Tokens: now %d from the file%s", len(new), name_expired(tokens))
        self._tokens, self._fault = new, ""

    def _keep(self, last: str | None, error: Exception) -> None:
        """Keep the tokens that were read last, if there are any."""
        if last is not None:
            self._tokens = {token.digest: token for token in read_tokens(last)}
        if not self._tokens:
            raise error
        if isinstance(error, OSError):
            self._state = None  # The next attempt may succeed without a change of the file.
        fault = describe_fault(error)
        if fault != self._fault:
            message = "The file of tokens cannot be used: %s. The earlier tokens (%d) stay in use."
            _log.error(message, fault, len(self._tokens))
        self._fault = fault


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
    # The opening of a pipe would wait for its other end. Windows has no such flag.
    nonblocking = getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | nonblocking)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        return file.read()


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
    return str(error)


def _state(path: str) -> tuple[int, ...]:
    """Return what changes when the file changes. Nothing, if there is no file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev, status.st_size


def _is_recent(state: tuple[int, ...]) -> bool:
    return state != () and abs(time.time() - state[0] / 1e9) < _PAUSE
