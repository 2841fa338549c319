"""The SQLAlchemy engine of a store's URL: what each driver needs, and why."""

import sqlite3
import time
from collections.abc import Callable
from inspect import signature
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, exc, make_url
from sqlalchemy.engine.default import DefaultDialect

#: The timeout in seconds to connect, and to wait for a free connection of the pool.
CONNECT_TIMEOUT = 3
# The timeout of a statement in seconds.
_STATEMENT_TIMEOUT = 4
# The seconds that SQLite waits for the lock of another writer.
_LOCK_TIMEOUT = 4
#: The maximum number of connections of an engine.
POOL_SIZE = 16
# The option of SQLAlchemy 2.0.43 and later that saves the round trip of a needless rollback.
_SKIP_ROLLBACK = "skip_autocommit_rollback"


def make_engine(url: str) -> Engine:
    """Return the engine of a database. The engine opens its first connection on first use.

    Each statement is a transaction by default. On PostgreSQL and MariaDB it has a timeout, on
    SQLite the wait for a lock has one.

    :param url: the URL of the database.
    :raises ValueError: if it is not the URL of a database. The message does not show it.
    :raises ImportError: if the driver is not installed.
    """
    try:
        parsed = make_url(url)
        # An @ in the host would be the end of a password.
        if parsed.database and "@" not in (parsed.host or ""):
            return _MAKERS[parsed.get_backend_name()](parsed)
    # The pool of an SQLite database in memory raises TypeError for the arguments of _engine.
    except (exc.ArgumentError, TypeError, ValueError):
        pass
    raise ValueError(
        "not the URL of a database, such as sqlite:///plants.db or"
        " postgresql://user:password@host/name; in the password write @ as %40 and / as %2F"
    )


def _engine(url: URL, **defaults: str) -> Engine:
    """Return an engine. The query of the URL overrides the defaults."""
    known = signature(DefaultDialect).parameters
    return create_engine(
        url.set(query={**defaults, **url.query}),
        isolation_level="AUTOCOMMIT",
        execution_options={"plantstore": True, "preserve_rowcount": True},
        pool_size=POOL_SIZE,
        max_overflow=0,
        **{option: True for option in [_SKIP_ROLLBACK] if option in known},
    )


def _sqlite(url: URL) -> Engine:
    engine = _engine(url.set(drivername="sqlite"), timeout=str(_LOCK_TIMEOUT))
    event.listen(engine, "connect", _make_durable)
    return engine


def _make_durable(connection: sqlite3.Connection, record: object) -> None:
    # Before SQLite 3.51.3, two concurrent connections can corrupt a write-ahead log. A journal
    # that is deleted instead of truncated can reappear after a power failure and undo a commit.
    mode = "WAL" if sqlite3.sqlite_version_info >= (3, 51, 3) else "TRUNCATE"
    connection.execute("PRAGMA synchronous=FULL")
    until = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode={mode}")
            break
        except sqlite3.OperationalError as error:
            # SQLite does not wait for a lock when it changes to or from a write-ahead log.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                connection.close()  # Older versions of SQLAlchemy leave it open.
                raise
            time.sleep(0.01)


def _postgresql(url: URL) -> Engine:
    import psycopg

    class Connection(psycopg.Connection[Any]):
        """A connection that has a timeout for a server that does not respond."""

        def wait(
            self, gen: Any, interval: float = 0.1, timeout: float | None = _STATEMENT_TIMEOUT
        ) -> Any:
            return super().wait(gen, interval, timeout)

    # Half a second shorter than the client's timeout, so that the client knows that the server has
    # cancelled the statement.
    options = (
        f"-c statement_timeout={_STATEMENT_TIMEOUT * 1000 - 500} {url.query.get('options', '')}"
    )
    engine = _engine(
        url.set(drivername="postgresql+psycopg").update_query_dict({"options": options}),
        connect_timeout=str(CONNECT_TIMEOUT),
        client_encoding="utf8",
    )

    @event.listens_for(engine, "do_connect")
    def connect(dialect: object, record: object, args: Any, options: Any) -> Any:
        return Connection.connect(*args, **options)

    event.listen(engine, "checkout", lambda connection, *_: _refuse_stale(connection))
    return engine


def _mysql(url: URL) -> Engine:
    # Without strict mode, MariaDB truncates long strings. The lock timeouts are short, because
    # SQLStore retries after them.
    start = (
        "SET sql_mode=CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'),"
        " innodb_lock_wait_timeout=1, lock_wait_timeout=1"
    )
    engine = _engine(
        url.set(drivername="mysql+pymysql").update_query_dict(
            {"charset": "utf8mb4", "init_command": start}
        ),
        connect_timeout=str(CONNECT_TIMEOUT),
        read_timeout=str(_STATEMENT_TIMEOUT),
        write_timeout=str(_STATEMENT_TIMEOUT),
    )

    @event.listens_for(engine, "checkout")
    def check(connection: Any, *_: object) -> None:
        _refuse_stale(connection._sock)  # noqa: SLF001

    return engine


def _refuse_stale(connection: Any) -> None:
    """Raise DisconnectionError for a connection that the server has closed.

    SQLAlchemy then replaces the connection. The check needs no round trip.
    """
    with DefaultSelector() as selector:
        selector.register(connection, EVENT_READ)
        # If there is data between two statements, it is normally the end of the connection.
        if selector.select(0):
            raise exc.DisconnectionError


# The functions that create an engine, by the name of the backend in the URL.
_MAKERS: dict[str, Callable[[URL], Engine]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "postgres": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}
