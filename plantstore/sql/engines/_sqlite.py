"""SQLite files."""

import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL, Connection, Engine, Integer, Table, event, exc
from sqlalchemy.types import TypeEngine

from ...stores.base import Plant, StoreUnavailable
from ...stores.deadline import TIMEOUT, remaining
from ._backend import Backend, convert, one_of, own_engine

_log = logging.getLogger("plantstore")

# The seconds that a connection waits for a lock.
_LOCK_TIMEOUT = 4
# The seconds after which the file keeps its journal mode, because other connections use it.
_MODE_TIMEOUT = 0.5
_WAL_WARNING = (
    "SQLite %s has the WAL-reset bug, which can very rarely corrupt a file with a write-ahead log."
    " Use SQLite 3.51.3 or later, or journal_mode=truncate."
)
# The columns of an insert, and the parameters for a plant.
_COLUMNS = f"({', '.join(Plant._fields)})"
_ROW = f"({', '.join('?' for _ in Plant._fields)})"
# What usually locks the file for too long.
_LOCKED = "another connection has an open transaction in this SQLite file"
_LOCKED_BY_IMPORT = f"{_LOCKED}, such as an import"
_LOCKED_BY_SITE = (
    f"{_LOCKED}. If a hook or the token check of the site uses the file in the same request, it"
    " must commit or roll back."
)
# The codes of errors that concern the file itself.
_FILE_ERRORS = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_READONLY,
}


def has_wal_reset_bug(version: tuple[int, ...]) -> bool:
    """Return whether a version of SQLite has the WAL-reset bug.

    With it, two concurrent connections can, very rarely, corrupt a file with a write-ahead log.
    See https://sqlite.org/wal.html#walresetbug.
    """
    fixed = version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51)
    return not fixed and not (3, 44, 6) <= version < (3, 45)


@cache  # One line for each start: the workers of a server inherit that its main process has warned.
def _warn_of_wal_reset_bug() -> None:
    _log.warning(_WAL_WARNING, sqlite3.sqlite_version)


def _file(url: URL) -> str:
    """Return the path of the file. The database of a URL may be a URI."""
    database = url.database or ""
    return unquote(urlsplit(database).path) if database.startswith("file:") else database


def _folder_is_writable(file: str) -> bool:
    """Return whether this user can create files beside a file, as SQLite does to write to it."""
    folder = os.path.dirname(os.path.realpath(file))
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _why_closed(file: str) -> str:
    """Return why a file cannot be opened, as far as this can be known."""
    folder = os.path.dirname(file)
    if not os.path.isdir(folder):
        return f"the folder {folder} does not exist"
    if os.path.exists(file):
        return "check its permissions, those of its folder, and the limit of open files"
    if os.access(folder, os.W_OK):
        return "the file does not exist"
    return "the file does not exist, and this user cannot create it"


def _seconds(value: str) -> float:
    """Return a number of seconds from 0 to an hour."""
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,9})?", value) or float(value) > 3600:
        raise ValueError
    return float(value)


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "timeout": _seconds,
    "journal_mode": one_of("truncate", "wal"),
    # After a crash, a file that is open with mode=ro could not be recovered.
    "mode": one_of("rw", "rwc"),
}


class SQLite(Backend):
    """SQLite, with Python's sqlite3. The engine of a site may have another driver."""

    one_writer: ClassVar[bool] = True
    # Every integer has up to 64 bits. Some sites have INTEGER here for BIGINT.
    id_type: ClassVar[type[TypeEngine[Any]]] = Integer
    table_checks: ClassVar[Mapping[str, str]] = {
        "its constraints must not have ON CONFLICT": (
            "SELECT 1 FROM sqlite_master WHERE name = :table AND sql LIKE '%ON CONFLICT%'"
        ),
    }

    def make_engine(self, url: URL) -> Engine:
        """Return an engine that syncs each commit to the disk.

        The option ``timeout`` is the number of seconds to wait for a lock. ``journal_mode`` is
        ``wal`` or ``truncate``. The default is ``wal`` if this version of SQLite is safe with it.
        With ``mode=rw``, the file must exist, and keeps its journal mode. The default is ``rwc``.
        """
        buggy = has_wal_reset_bug(sqlite3.sqlite_version_info)
        if url.host is not None or url.username is not None:
            raise ValueError(
                "the URL of an SQLite file has three slashes before a relative path, such as"
                " sqlite:///plants.db, and four before an absolute path"
            )
        options = convert(url.query, _OPTIONS)
        lock_timeout: float = options.get("timeout", _LOCK_TIMEOUT)
        access: str = options.get("mode", "rwc")
        mode: str | None = None
        if access == "rwc":
            mode = options.get("journal_mode", "truncate" if buggy else "wal")
        if buggy and mode == "wal":
            _warn_of_wal_reset_bug()
        # The time for everything else is the same as by default.
        timeout = TIMEOUT + max(0, lock_timeout - _LOCK_TIMEOUT)
        uri = Path(os.path.abspath(url.database or "")).as_uri()
        query = {"uri": "true", "mode": access}
        url = url.set(drivername="sqlite", database=uri, query=query)
        engine = own_engine(url, {}, timeout)
        event.listen(engine, "connect", _Setup(lock_timeout, mode))
        return engine

    def keys(self, connection: Connection, table: Table) -> Collection[Any]:
        """Return the name of the column id in messages."""
        return {f"{table.name}.id"}

    def is_duplicate(
        self, error: exc.DBAPIError, keys: Collection[Any], ids: Collection[int]
    ) -> bool:
        """Return whether the primary key of the table is violated."""
        code = getattr(error.orig, "sqlite_errorcode", None)
        _, _, key = str(error.orig).rpartition(": ")
        return code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY and key in keys

    def is_new(self, url: URL) -> bool:
        """Return whether the file does not exist, and the URL and this user can create it."""
        file = _file(url)
        can_create = url.query.get("mode") == "rwc" and _folder_is_writable(file)
        return can_create and not os.path.exists(file)

    def check_writable(self, url: URL) -> None:
        """Check that this user can write to the file, if it exists, and to its folder."""
        file = _file(url)
        if os.path.exists(file) and not (os.access(file, os.W_OK) and _folder_is_writable(file)):
            raise StoreUnavailable(f"attempt to write a readonly database: {file}")

    def describe(self, error: Exception, url: URL) -> str:
        """Return the message of an error in one line, with the file or the cause."""
        message, file = super().describe(error, url), _file(url)
        code = getattr(getattr(error, "orig", error), "sqlite_errorcode", 0) & 0xFF
        if "is locked" in message:
            is_own = "mode" in url.query
            return f"{message}: {_LOCKED_BY_IMPORT if is_own else _LOCKED_BY_SITE}"
        if code == sqlite3.SQLITE_CANTOPEN:
            return f"{message}: {file} ({_why_closed(file)})"
        return f"{message}: {file}" if code in _FILE_ERRORS else message

    def in_transaction(self, driver: Any) -> bool:
        """Return whether a connection is in a transaction: the engine of a site may begin one."""
        return bool(driver.in_transaction)

    def insert_together(self, connection: Connection, table: Table, plants: Sequence[Plant]) -> int:
        """Insert plants by one statement, and return how many were inserted."""
        name = connection.dialect.identifier_preparer.format_table(table)
        rows = ", ".join([_ROW] * len(plants))
        statement = f"INSERT INTO {name} {_COLUMNS} VALUES {rows}"  # noqa: S608
        # After an interrupt, SQLAlchemy would close the connection.
        driver: Any = connection.connection.dbapi_connection
        added: int = driver.execute(statement, (*chain(*plants),)).rowcount
        return added

    def limit_waiting(self, connection: Connection) -> None:
        """Set the lock timeout of a connection, if the deadline is nearer than usual."""
        info = connection.info
        seconds = min(info["usual_lock_timeout"], remaining())
        if seconds != info["lock_timeout"]:
            driver: Any = connection.connection.dbapi_connection
            driver.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}")
            info["lock_timeout"] = seconds


class _Setup:
    """Sets the lock timeout, the syncs and the journal mode of every new connection."""

    def __init__(self, lock_timeout: float, mode: str | None) -> None:
        self._lock_timeout = lock_timeout
        self._mode = mode
        self._logged = ""  # The mode that the log has named last.

    def __call__(self, connection: sqlite3.Connection, record: Any) -> None:
        record.info["usual_lock_timeout"] = record.info["lock_timeout"] = self._lock_timeout
        try:
            self._log(self._set_mode(connection))
            connection.execute(f"PRAGMA busy_timeout={int(self._lock_timeout * 1000)}")
        except BaseException:
            connection.close()  # Older versions of SQLAlchemy leave it open.
            raise

    def _set_mode(self, connection: sqlite3.Connection) -> str:
        """Set the journal mode and the syncs, and return the mode in force."""
        # SQLite does not wait for a lock when it changes to or from a write-ahead log. The driver
        # would wait longer for other locks than the deadline.
        connection.execute("PRAGMA busy_timeout=0")
        started, seconds = time.monotonic(), min(self._lock_timeout, remaining())
        while True:
            waited = time.monotonic() - started
            try:
                mode = _try_mode(connection, self._mode, waited > min(_MODE_TIMEOUT, seconds / 2))
                connection.execute("PRAGMA synchronous=FULL")
                return mode
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or waited > seconds:
                    raise
            time.sleep(0.01)

    def _log(self, mode: str) -> None:
        if mode != self._logged:
            level = logging.INFO if self._mode in {mode, None} else logging.WARNING
            _log.log(level, "The journal mode of the SQLite file is %s.", mode)
            self._logged = mode


def _try_mode(connection: sqlite3.Connection, wanted: str | None, may_keep: bool) -> str:
    """Set the journal mode, or keep that of the file, and return the mode in force.

    A journal that is deleted instead of truncated can reappear after a power failure and undo a
    commit. The file does not keep the mode ``truncate``: that is one of the connection.

    :param wanted: the journal mode, or ``None`` for that of the file.
    """
    if wanted is None:
        wanted = "wal" if _journal(connection) == "wal" else "truncate"
    try:
        return _journal(connection, f"={wanted}")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY:
            return _journal(connection)  # The plants can still be read.
        if may_keep and _journal(connection) == "wal":
            return "wal"
        if may_keep and wanted == "wal":
            return _journal(connection, "=truncate")
        raise


def _journal(connection: sqlite3.Connection, change: str = "") -> str:
    mode: str = connection.execute(f"PRAGMA journal_mode{change}").fetchone()[0]
    return mode
