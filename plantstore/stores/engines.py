"""SQLAlchemy engines for a store of plants: what each driver needs, and why."""

import sqlite3
import time
from collections.abc import Callable
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, exc, make_url

CONNECT = 3  # Seconds to connect, or to wait for a pooled connection.
STATEMENT = 4  # Seconds for a statement: who asked is to have an answer within five.
LOCK = 4  # Seconds that SQLite waits for others who write; before it, SQLStore waits a TURN.
POOL = 16  # Connections that a process has at most, and keeps.


def make_engine(url: str) -> Engine:
    """Return an engine for the URL of a database, with nothing opened yet.

    Each statement is a transaction of its own, and gives up after some seconds.
    Raises :exc:`ValueError` for a URL that makes no sense, without repeating it, and
    :exc:`ImportError` when its driver is not installed.
    """
    try:
        parsed = make_url(url)
        # An @ in the host would be the end of a password.
        if parsed.database and "@" not in (parsed.host or ""):
            return _MAKERS[parsed.get_backend_name()](parsed)
    # TypeError: SQLite in memory has a pool that takes none of our arguments.
    except (exc.ArgumentError, TypeError, ValueError):
        pass
    raise ValueError(
        "not the URL of a database such as sqlite:///plants.db or postgresql://user:password@host/name,"
        " with an @ or / in the password written as %40 or %2F"
    )


def _engine(url: URL, **defaults: str) -> Engine:
    """Return an engine; what the URL's query says goes before these defaults."""
    return create_engine(
        url.set(query={**defaults, **url.query}),
        isolation_level="AUTOCOMMIT",
        execution_options={"plantstore": True},
        skip_autocommit_rollback=True,  # That would be a round trip.
        pool_size=POOL,
        max_overflow=0,
        pool_timeout=CONNECT,
    )


def _sqlite(url: URL) -> Engine:
    engine = _engine(url.set(drivername="sqlite"), timeout=str(LOCK))
    event.listen(engine, "connect", _make_durable)
    return engine


def _make_durable(connection: sqlite3.Connection, record: object) -> None:
    # Below 3.51.3 a write-ahead log can be corrupted by two connections at once. A journal
    # that is deleted, not truncated, can come back after a power failure and undo a commit.
    mode = "WAL" if sqlite3.sqlite_version_info >= (3, 51, 3) else "TRUNCATE"
    connection.execute("PRAGMA synchronous=FULL")
    until = time.monotonic() + LOCK
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode={mode}")
            break
        except sqlite3.OperationalError as error:
            # To and from WAL it doesn't wait for others by itself.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _postgresql(url: URL) -> Engine:
    import psycopg

    class Connection(psycopg.Connection[Any]):
        """A connection that gives up on a server which doesn't answer at all."""

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = STATEMENT) -> Any:
            return super().wait(gen, interval, timeout)

    # A little sooner than the client gives up, so that it is known what has become of it.
    options = f"-c statement_timeout={STATEMENT * 1000 - 500} {url.query.get('options', '')}"
    engine = _engine(
        url.set(drivername="postgresql+psycopg").update_query_dict({"options": options}),
        connect_timeout=str(CONNECT),
        client_encoding="utf8",
    )

    @event.listens_for(engine, "do_connect")
    def connect(dialect: object, record: object, args: Any, options: Any) -> Any:
        return Connection.connect(*args, **options)

    event.listen(engine, "checkout", lambda connection, *_: _refuse_stale(connection))
    return engine


def _mysql(url: URL) -> Engine:
    # Without strict mode what doesn't fit is cut. A lock is tried for again, see SQLStore.
    start = (
        "SET sql_mode=CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'),"
        " innodb_lock_wait_timeout=1, lock_wait_timeout=1"
    )
    engine = _engine(
        url.set(drivername="mysql+pymysql").update_query_dict(
            {"charset": "utf8mb4", "init_command": start}
        ),
        connect_timeout=str(CONNECT),
        read_timeout=str(STATEMENT),
        write_timeout=str(STATEMENT),
    )

    @event.listens_for(engine, "checkout")
    def check(connection: Any, *_: object) -> None:
        _refuse_stale(connection._sock)  # noqa: SLF001

    return engine


def _refuse_stale(connection: Any) -> None:
    """Have a connection replaced that the server has closed, without a round trip to ask."""
    with DefaultSelector() as selector:
        selector.register(connection, EVENT_READ)
        # A server that was not asked has nothing to say but that it is gone.
        if selector.select(0):
            raise exc.DisconnectionError


_MAKERS: dict[str, Callable[[URL], Engine]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "postgres": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}
