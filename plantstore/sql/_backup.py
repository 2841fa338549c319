"""A copy of an SQLite file, also while others use it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from math import inf

from sqlalchemy import exc

from ..stores.base import StoreUnavailable
from .engines import backend_of, driver_of, file_of, make_engine

#: Is called after each step with the number of pages that are copied, and the number of all pages.
Progress = Callable[[int, int], None]

# The pages of a step. With the usual size, this is 4 MB.
_STEP = 1000
# How often the copy of a file without a write-ahead log begins again, because a plant was added.
_RESTARTS = 3
# The codes of the errors that only the new file has.
_WRITE_ERRORS = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE}


class _ChangedTooOften(Exception):
    """Others have changed the file during each of the attempts to copy it."""


def database_file(url: str) -> str:
    """Return the path of the SQLite file that a URL names."""
    return file_of(make_engine(url).url)


def back_up(url: str, file: str, progress: Progress) -> None:
    """Copy a whole SQLite file, as it is at one moment, while others read it and write to it.

    The copy needs no other file. The caller must sync it to the disk.

    :param url: the URL of the SQLite file.
    :param file: the path of the copy. It is an empty file.
    :param progress: is called after each step. An exception that it raises ends the copy.
    :raises StoreUnavailable: if the database cannot be read.
    :raises OSError: if the copy cannot be written. ``filename`` is its path.
    """
    engine = make_engine(url)
    try:
        with engine.connect() as connection, closing(sqlite3.connect(file)) as copy:
            _copy_all(driver_of(connection), copy, progress)
    except (exc.SQLAlchemyError, sqlite3.Error) as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code in _WRITE_ERRORS:
            raise OSError(code, str(error), file) from error
        raise StoreUnavailable(backend_of(engine).describe(error, engine.url)) from error


def _copy_all(source: sqlite3.Connection, copy: sqlite3.Connection, progress: Progress) -> None:
    # Nobody uses a copy that is not complete: it needs neither a journal on the disk nor syncs.
    copy.execute("PRAGMA journal_mode=MEMORY")
    copy.execute("PRAGMA synchronous=OFF")
    # With a write-ahead log, a transaction that reads does not block writers.
    if source.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        try:
            _copy(source, copy, progress, _RESTARTS)
            return
        except _ChangedTooOften:
            pass
    _begin_reading(source)
    _copy(source, copy, progress)


def _copy(
    source: sqlite3.Connection,
    copy: sqlite3.Connection,
    progress: Progress,
    restarts: float = inf,
) -> None:
    """Copy a file by steps. SQLite begins again when another connection has changed the file.

    :raises _ChangedTooOften: if it does so more than ``restarts`` times, or the file stays locked.
    """
    remaining = inf

    def after_step(status: int, rest: int, total: int) -> None:
        nonlocal remaining, restarts
        if rest >= remaining:
            if restarts == 0:
                raise _ChangedTooOften
            restarts -= 1
        remaining = rest
        progress(total - rest, total)

    source.backup(copy, pages=_STEP, progress=after_step)


def _begin_reading(source: sqlite3.Connection) -> None:
    """Begin a transaction that reads: the file then does not change for this connection.

    It ends when the connection is closed.
    """
    source.execute("BEGIN")
    source.execute("SELECT 1 FROM sqlite_master").fetchall()
