"""A copy of an SQLite file, also while others use it."""

import os
import sqlite3
from contextlib import closing

from sqlalchemy import exc

from ..stores.base import StoreUnavailable
from .databases import driver_of, file_of, make_engine


def back_up(url: str, file: str) -> None:
    """Copy a whole SQLite file, as it is at one moment, while others read it.

    With a write-ahead log, others also write to it meanwhile. Without, they wait for the copy. The
    copy needs no other file, and is not more readable than the file. The caller must sync it.

    :param file: the path of the copy. It is an empty file.
    :raises StoreUnavailable: if the database cannot be read, or the copy cannot be written.
    """
    engine = make_engine(url)
    source = file_of(engine.url)
    try:
        # A tracing agent may replace sqlite3.connect. The copy needs the class of the driver.
        with engine.connect() as connection, closing(sqlite3.Connection(file)) as copy:
            os.chmod(file, os.stat(file).st_mode & os.stat(source).st_mode | 0o600)
            # Nobody uses a copy that is not complete: it needs no journal and no syncs.
            copy.executescript("PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF")
            # With a function, a signal can end the wait for a lock.
            driver_of(connection).backup(copy, progress=lambda *_: None)
    except (exc.SQLAlchemyError, sqlite3.Error) as error:
        reason = getattr(error, "orig", error)
        raise StoreUnavailable(f"{source} cannot be copied: {reason}") from error
