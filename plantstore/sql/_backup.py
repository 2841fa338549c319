"""A copy of an SQLite file, also while others use it."""

import os
import sqlite3
import stat
from contextlib import closing

from sqlalchemy import MetaData, exc

from ..stores.base import StoreUnavailable
from ._tables import define_table
from .databases import database_of, driver_of, file_of, make_engine

# The codes of the errors that only the new file has.
_WRITE_ERRORS = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE}


def back_up(url: str, file: str) -> None:
    """Copy a whole SQLite file, as it is at one moment, while others read it.

    With a write-ahead log, others also write to it meanwhile. Without, they wait for the copy. The
    copy needs no other file, and is not more readable than the file. The caller must sync it.

    :param file: the path of the copy. It is an empty file.
    :raises StoreUnavailable: if the database cannot be read.
    :raises OSError: if the copy cannot be written. ``filename`` is its path.
    """
    engine = make_engine(url)
    try:
        # A tracing agent may replace sqlite3.connect. The copy needs the class of the driver.
        with engine.connect() as connection, closing(sqlite3.Connection(file)) as copy:
            allowed = os.stat(file_of(engine.url)).st_mode | stat.S_IRWXU
            os.chmod(file, stat.S_IMODE(os.stat(file).st_mode & allowed))
            # Nobody uses a copy that is not complete: it needs no journal on the disk and no syncs.
            copy.execute("PRAGMA journal_mode=MEMORY")
            copy.execute("PRAGMA synchronous=OFF")
            # With a function, a signal can end the wait for a lock.
            driver_of(connection).backup(copy, progress=lambda *_: None)
    except (exc.SQLAlchemyError, sqlite3.Error) as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code in _WRITE_ERRORS:
            raise OSError(code, str(error), file) from error
        database = database_of(engine)(engine, define_table("plants", MetaData(), engine))
        raise StoreUnavailable(database.describe(error)) from error
