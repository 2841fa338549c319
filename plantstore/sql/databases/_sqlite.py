"""SQLite files."""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

from sqlalchemy import URL, BigInteger, Connection, Dialect, Engine, Integer, event

from ...stores.base import Plant, StoreUnavailable
from .._limits import Limits
from ._database import Database, driver_of, lane_engine
from ._options import Converter, between, convert

# What a connection knows of its file, in the dict of SQLAlchemy.
_IDENTITY = "plantstore_file"
_LOST = "the SQLite file was deleted or replaced while it was in use; what was added may be lost"
# The maximum number of plants in a statement: before version 3.32, it can have 999 parameters.
_ROWS = 999 // len(Plant._fields)
_FOLDER = "it is a folder, not a file (Docker makes one if the file is missing): remove it"
# What usually locks the file for too long.
_LOCKED = (
    "another connection has an open transaction in this SQLite file. If a hook or the token check"
    " of the site uses the file in the same request, it must commit or roll back"
)
# Errors that end by themselves, or with an outage.
_TRANSIENT = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL),  # A lock.
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),  # The disk fails.
    *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_ABORT, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_SCHEMA),  # Others.
)


def file_of(url: URL) -> str:
    """Return the path of the file that a URL names. The database of the URL may be a URI."""
    database = url.database or ""
    return unquote(urlsplit(database).path) if database.startswith("file:") else database


def is_new(url: URL) -> bool:
    """Return whether the first plant creates the database: an SQLite file that does not exist."""
    file = file_of(url)
    can_create = url.query.get("mode") == "rwc" and _folder_is_writable(file)
    return can_create and not os.path.exists(file)


def is_in_memory(url: URL) -> bool:
    """Return whether a database of a site has no file."""
    return file_of(url) in {"", ":memory:"} or url.query.get("mode") == "memory"


def _identity(file: str) -> tuple[int, ...] | None:
    with suppress(OSError):
        return os.stat(file)[1:3]  # The numbers of the file and of its device.
    return None


def _folder_is_writable(file: str) -> bool:
    """Return whether this user can create files beside a file, as SQLite does to write to it."""
    folder = os.path.dirname(os.path.realpath(file))
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


_OPTIONS: dict[str, Converter] = {
    "timeout": between(0.0, 3600.0),
    "journal_mode": ("truncate", "wal"),
    # After a crash, a file that is open with mode=ro could not be recovered.
    "mode": ("rw", "rwc"),
}


class SQLite(Database):
    """SQLite, with Python's sqlite3. The engine of a site may have another driver."""

    one_writer = True
    transient = tuple(f"{code:03}" for code in _TRANSIENT)
    # Every integer has up to 64 bits. Some sites have INTEGER here for BIGINT.
    types = {**Database.types, BigInteger: (Integer,)}
    # The file that each engine has opened. After the report that it was lost, it is forgotten.
    _files: ClassVar[WeakKeyDictionary[Dialect, tuple[int, ...] | None]] = WeakKeyDictionary()

    @staticmethod
    def make_engine(url: URL) -> Engine:
        """Return an engine that syncs each commit to the disk.

        The option ``timeout`` is the number of seconds to wait for a lock. ``journal_mode`` is
        ``wal`` or ``truncate``, for a new file. The default is ``wal`` if this version of SQLite is
        safe with it. With ``mode=rw``, the file must exist. The default is ``rwc``.
        """
        if url.host is not None or url.username is not None:
            raise ValueError(
                "the URL of an SQLite file has three slashes before a relative path, such as"
                " sqlite:///plants.db, and four before an absolute path"
            )
        options = convert(url.query, _OPTIONS)
        lock_timeout: float = options.get("timeout", Limits.sqlite_lock)
        # With other versions, two connections can, very rarely, corrupt a file with a write-ahead
        # log: see https://sqlite.org/wal.html#walresetbug.
        version = sqlite3.sqlite_version_info
        is_safe = (3, 44, 6) <= version < (3, 45) or (3, 50, 7) <= version < (3, 51)
        default = "wal" if is_safe or version >= (3, 51, 3) else "truncate"
        new_mode = options.get("journal_mode", default)
        access: str = options.get("mode", "rwc")
        if access == "rw":  # Nothing may be written to an empty file before an add.
            new_mode = "truncate"
        # The time for everything else is the same as by default.
        timeout = Limits.operation + max(0, lock_timeout - Limits.sqlite_lock)
        uri = Path(os.path.abspath(url.database or "")).as_uri()
        query = {"uri": "true", "mode": access}
        url = url.set(drivername="sqlite", database=uri, query=query)
        engine = lane_engine(url, {}, None, timeout)
        event.listen(engine, "connect", partial(_set_up, lock_timeout, new_mode))
        return engine

    def watch(self, connection: Connection) -> None:
        """Note which file the connection must have: that of earlier connections of the engine."""
        file = file_of(connection.engine.url)
        if not is_in_memory(connection.engine.url) and _IDENTITY not in connection.info:
            identity = self._files.setdefault(connection.dialect, _identity(file))
            connection.info[_IDENTITY] = os.path.abspath(file), identity

    def check_commits(self, connection: Connection) -> None:
        """Check that the file has been neither deleted nor replaced: its plants would be lost."""
        file, identity = connection.info.get(_IDENTITY, (None, None))
        if file is not None and _identity(file) != identity:
            self._files.pop(connection.dialect, None)
            raise StoreUnavailable(f"{_LOST}: {file}")

    def _insert_atomically(self, connection: Connection, plants: Sequence[Plant]) -> None:
        if len(plants) == 1:
            super()._insert_all(connection, plants)
            return
        # A trigger can end a statement that is not in a transaction after some of its rows.
        with self.transaction(connection):
            self._insert_all(connection, plants)

    def _insert_all(self, connection: Connection, plants: Sequence[Plant]) -> None:
        for start in range(0, len(plants), _ROWS):
            super()._insert_all(connection, plants[start : start + _ROWS])

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """Provide a transaction that locks the file for other writers, and commit it.

        :raises StoreUnavailable: if it is unknown whether it was committed.
        """
        driver, is_complete = driver_of(connection), False
        if not connection.in_transaction():
            connection.begin()
        if not driver.in_transaction:  # An event listener of a site may have begun one before that.
            driver.execute("BEGIN IMMEDIATE").close()
        try:
            yield
            is_complete = True
            driver.execute("COMMIT").close()
        except BaseException as error:
            if driver.in_transaction:
                driver.execute("ROLLBACK").close()
            elif is_complete:
                unknown = f"it is not known whether the commit has failed: {error}"
                raise StoreUnavailable(unknown) from error
            raise

    def check_writable(self, connection: Connection) -> None:
        """Check that this user can write to the file, if it is one, its journals and its folder."""
        file = file_of(connection.engine.url)
        names = [f"{file}{suffix}" for suffix in ("", "-journal", "-wal", "-shm")]
        for name in filter(os.path.exists, names):
            can_write = os.access(name, os.W_OK) and _folder_is_writable(name)
            if not can_write and os.path.exists(name):  # Another process may delete a journal.
                raise StoreUnavailable(f"attempt to write a readonly database: {name}")

    def describe(self, error: Exception) -> str:
        message, file = super().describe(error), file_of(self.engine.url)
        if "is locked" in message:
            return f"{message}: {_LOCKED}"
        if os.path.isdir(file):
            return f"{message}: {file}: {_FOLDER}"
        if "unable to open" in message and not os.path.isdir(os.path.dirname(file) or os.curdir):
            return f"{message}: {file}: its folder is missing"
        return f"{message}: {file}" if file else message

    def code(self, error: Exception) -> str:
        code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
        return "" if code is None else f"{code & 0xFF:03}"

    def is_fault(self, error: Exception) -> bool:
        return super().is_fault(error) or "syntax error" in self.message(error)


def _set_up(
    lock_timeout: float, new_mode: str, connection: sqlite3.Connection, record: object
) -> None:
    """Set the lock timeout, the syncs, and the journal mode if the file is new."""
    try:
        connection.execute(f"PRAGMA busy_timeout={int(lock_timeout * 1000)}")
        _set_mode(connection, new_mode, time.monotonic() + lock_timeout)
        connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()  # Older versions of SQLAlchemy leave it open.
        raise


def _set_mode(connection: sqlite3.Connection, new_mode: str, end: float) -> None:
    """Set the journal mode, unless the file has a write-ahead log.

    A journal that is deleted instead of truncated can reappear after a power failure and undo a
    commit. The file does not keep the mode ``truncate``: that is one of the connection.
    """
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                is_new = connection.execute("PRAGMA page_count").fetchone() == (0,)
                mode = new_mode if is_new else "truncate"
                connection.execute(f"PRAGMA journal_mode={mode}").fetchone()
            return
        except sqlite3.OperationalError as error:
            # SQLite does not wait for a lock when it changes to a write-ahead log.
            is_locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_locked or time.monotonic() > end:
                raise
        time.sleep(0.01)
