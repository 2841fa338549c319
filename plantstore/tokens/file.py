"""A file of tokens that is read again when it has changed."""

import logging
import os
import stat
import sys
import time
from collections.abc import Iterable
from hashlib import sha256
from threading import Thread
from weakref import WeakSet, ref

from ..auth import Client
from . import shared
from .lines import ListedToken, read_tokens

# The seconds between two looks at a file.
_INTERVAL = 1.0

_log = logging.getLogger("plantstore")


class TokenFile:
    """Accepts the tokens of a file, and reads the file again within some seconds after a change.

    Called with a token, it returns the name of the token's client, or a :class:`Client` if the
    token has only some rights, or ``None`` if the token is not accepted or has expired.

    A thread looks at the file every second, also in a process that is forked later. It uses a
    content that is the same as a second before: otherwise half of a file that is being written
    could be used. While the file is broken or missing, the earlier tokens stay in use. A process
    begins with the tokens that another process of the service has shared, if there are any.

    :param path: the path of the file. :func:`read_tokens` describes its lines.
    :raises OSError: if the file cannot be read, and no tokens are shared.
    :raises ValueError: if its text is invalid, in the same case.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._seen = self._used = ""  # What the last look saw, and what was used last.
        self._is_broken = False
        last = shared.read_last(self._path)
        self._tokens: dict[bytes, ListedToken] = {}
        self._use(read_file(self._path) if last is None else read_tokens(last))
        _files.add(self)
        _start_thread(self)

    def __call__(self, token: str) -> str | Client | None:
        """Return the token's client, or ``None`` if the token is not accepted."""
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

    def look(self) -> None:
        """Use the file if it has changed, and is the same as at the last look."""
        content, fault = b"", ""
        try:
            content = read_content(self._path)
        except Exception as error:  # noqa: BLE001  # Otherwise no change would be noticed any more.
            fault = describe_fault(error)
        # The content itself may have plain tokens, which are not kept in memory.
        seen = fault or sha256(content).hexdigest()
        is_settled, self._seen = seen == self._seen, seen
        if is_settled and seen != self._used:
            self._used = seen
            self._read(content, fault)

    def _read(self, content: bytes, fault: str) -> None:
        try:
            tokens = [] if fault else parse(content)
        except ValueError as error:
            fault = str(error)
        if fault:
            message = "The file of tokens cannot be used: %s. The earlier tokens (%d) stay in use."
            _log.error(message, fault, len(self._tokens))
        else:
            self._use(tokens)
        self._is_broken = bool(fault)

    def _use(self, tokens: list[ListedToken]) -> None:
        new = {token.digest: token for token in tokens}
        if self._is_broken or (self._tokens and new != self._tokens):
            _log.info("Tokens: now %d from the file%s", len(new), name_expired(tokens))
        self._tokens = new
        shared.write_last(self._path, "\n".join(map(str, tokens)))


# A forked process has no threads: it needs its own.
_files: WeakSet[TokenFile] = WeakSet()


def _start_thread(file: TokenFile) -> None:
    Thread(target=_look, args=[ref(file)], name="plantstore tokens", daemon=True).start()


def _look(known: "ref[TokenFile]") -> None:
    """Look at a file every second, as long as it is used."""
    while (file := known()) is not None:
        file.look()
        del file
        time.sleep(_INTERVAL)


def _after_fork() -> None:
    for file in [*_files]:
        _start_thread(file)


if sys.platform != "win32":  # pragma: no branch
    os.register_at_fork(after_in_child=_after_fork)


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
    return str(error) or type(error).__name__
