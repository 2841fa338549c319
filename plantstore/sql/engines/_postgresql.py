"""PostgreSQL."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, Executable, Table, event, exc, text
from sqlalchemy.dialects import postgresql

from ...stores.deadline import remaining
from .._sockets import keep_alive
from ._backend import (
    CONNECT_TIMEOUT,
    RESPONSE_TIMEOUT,
    Backend,
    Watch,
    convert,
    one_of,
    own_engine,
    whole,
)
from ._opening import Opening

# The milliseconds after which the server cancels a statement. Half a second shorter than the
# client's timeout, so that the client knows that the server has cancelled it.
_STATEMENT_TIMEOUT = RESPONSE_TIMEOUT * 1000 - 500
# With a higher level, the server would not say that it has given up to wait for a standby.
_LEVEL = "warning"
_NO_RESPONSE = "the database server has not responded in time"
# The version 10, if a server does not say which one it has.
_LOWEST_VERSION = 10_00_00
# The values of psycopg.pq.TransactionStatus.
_ACTIVE, _IN_TRANSACTION = 1, (2, 3)
# The function of the server that sends a warning if its wait for a standby was cancelled: the
# transaction is then committed on this server, and nowhere else. The text may be in any language.
_WAIT_FOR_STANDBY = "SyncRepWaitForLSN"
_FOR_PGBOUNCER = "for PgBouncer and similar servers, add the option pgbouncer=true to the URL"
_DEFAULTS = {"connect_timeout": CONNECT_TIMEOUT, "client_encoding": "utf8"}
# With several servers, each has less time, and only one that can store plants is used.
_DEFAULTS_OF_SEVERAL = {"connect_timeout": 2, "target_session_attrs": "read-write"}
# The types of the options that libpq does not check before it connects.
_TYPES: dict[str, Callable[[str], Any]] = {
    "client_encoding": one_of("utf8", "UTF8"),
    "pgbouncer": one_of("true", "false"),
    **dict.fromkeys(
        (
            "connect_timeout",
            "keepalives",
            "keepalives_count",
            "keepalives_idle",
            "keepalives_interval",
            "prepare_threshold",
            "tcp_user_timeout",
        ),
        whole(0, 2**31 - 1),
    ),
}
# The codes of errors (SQLSTATE).
_DUPLICATE = "23505"
_CONFLICTS = {"40001", "40P01"}  # A serialization failure, a deadlock.
_REFUSALS = {"42501", "P0001"}  # A missing permission, an error that a trigger raises.
_WORKING = text("SELECT pid FROM pg_stat_activity WHERE state <> 'idle' AND pid = ANY(:sessions)")
# The primary key of the table, and those of its partitions, which are named in their errors.
_KEYS = text("""
    WITH RECURSIVE tables(oid) AS (
        SELECT pg_class.oid FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE relname = :table
        AND CASE WHEN :schema = '' THEN pg_table_is_visible(pg_class.oid) ELSE nspname = :schema END
        UNION SELECT inhrelid FROM pg_inherits JOIN tables ON inhparent = tables.oid
    )
    SELECT nspname, relname, conname
    FROM tables
    JOIN pg_constraint ON conrelid = tables.oid AND contype = 'p'
    JOIN pg_class ON pg_class.oid = tables.oid
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
""")


class PostgreSQL(Backend):
    """PostgreSQL, with psycopg. The engine of a site may have another driver."""

    table_checks: ClassVar[Mapping[str, str]] = {
        # SQL_ASCII stores the bytes of UTF-8 unchanged.
        "the encoding of the database must be UTF8": (
            "SELECT 1 WHERE current_setting('server_encoding') NOT IN ('UTF8', 'SQL_ASCII')"
        ),
        "the encoding of the connection must be UTF8": (
            "SELECT 1 WHERE current_setting('client_encoding') <> 'UTF8'"
        ),
        "it must not have a rule that replaces inserts": (
            "SELECT 1 FROM pg_rules WHERE schemaname = COALESCE(:schema, current_schema())"
            " AND tablename = :table AND definition LIKE '%ON INSERT%DO INSTEAD%'"
        ),
        # Such a role sees no table, also if there is one.
        "the role must have the right to use a schema of its search_path": (
            "SELECT 1 WHERE COALESCE(:schema, current_schema()) IS NULL"
        ),
    }

    def make_engine(self, url: URL) -> Engine:
        """Return an engine whose statements have a timeout on the server, and one here.

        With the option ``pgbouncer=true``, several clients may share a session of the server: each
        operation is a transaction with its own timeout, and no statement is prepared.
        """
        url = url.set(drivername="postgresql+psycopg")
        options = _options(url)
        is_pooled = options.pop("pgbouncer", "false") == "true"
        url = url.difference_update_query(["pgbouncer"])
        if is_pooled:
            arguments = {**options, "prepare_threshold": None}
            engine = own_engine(url, arguments, isolation_level="READ COMMITTED")
            event.listen(engine, "begin", _configure)
        else:
            timeout, level = (
                f"statement_timeout={_STATEMENT_TIMEOUT}",
                f"client_min_messages={_LEVEL}",
            )
            settings = f"-c {timeout} {options.get('options', '')} -c {level}"
            engine = own_engine(url, {**options, "options": settings})
        dialect: Any = engine.dialect
        dialect._get_server_version_info = _server_version  # noqa: SLF001
        connection_class = _connection_class(is_pooled)
        Opening(engine, connection_class.connect, connection_class.fileno)
        return engine

    def keys(self, connection: Connection, table: Table) -> Collection[Any]:
        """Return the schemas, tables and names of the primary key and those of partitions."""
        names = {"schema": connection.schema_for_object(table) or "", "table": table.name}
        return {tuple(row) for row in connection.execute(_KEYS, names)}

    def is_duplicate(
        self, error: exc.DBAPIError, keys: Collection[Any], ids: Collection[int]
    ) -> bool:
        """Return whether the error is a violation of one of the keys."""
        code, *key = _fields(error)
        return code == _DUPLICATE and tuple(key) in keys

    def is_conflict(self, error: exc.DBAPIError) -> bool:
        """Return whether the server asks to retry the transaction."""
        return _fields(error)[0] in _CONFLICTS

    def is_refusal(self, error: exc.DBAPIError) -> bool:
        """Return whether it is a violated constraint, a missing permission or a trigger."""
        return super().is_refusal(error) or _fields(error)[0] in _REFUSALS

    def describe(self, error: Exception, url: URL) -> str:
        """Return the message of an error in one line, with the option that PgBouncer needs."""
        message = super().describe(error, url)
        return f"{message} ({_FOR_PGBOUNCER})" if "startup parameter" in message else message

    def in_transaction(self, driver: Any) -> bool:
        """Return whether a connection of psycopg is in a transaction, which may have failed."""
        libpq = getattr(driver, "pgconn", None)
        return libpq is not None and libpq.transaction_status in _IN_TRANSACTION

    def working(self, connection: Connection, sessions: Collection[int]) -> Collection[int]:
        """Return which sessions of the server work on an operation."""
        return {*connection.execute(_WORKING, {"sessions": [*sessions]}).scalars()}

    def watch(self, driver: Any) -> Watch:
        """Return what the notices of the server say from now on."""
        notices = getattr(driver, "notices", None)
        if isinstance(notices, _Notices):
            return notices
        notices = _Notices()
        with suppress(AttributeError, TypeError):  # Another driver of a site.
            # psycopg2 and pg8000 append to this attribute, psycopg calls a function.
            driver.notices = notices
            driver.add_notice_handler(notices.append)
        return notices

    def insert_new(self, table: Table) -> Executable:
        """Return a statement that skips plants that exist, and returns the ids of the others."""
        new = postgresql.insert(table).on_conflict_do_nothing(index_elements=["id"])
        return new.returning(table.c.id)


def _options(url: URL) -> dict[str, Any]:
    """Return the arguments of psycopg.

    :raises ValueError: if psycopg or libpq refuses an option.
    """
    from psycopg import pq

    known = {option.keyword.decode(): str for option in pq.Conninfo.get_defaults()}
    arguments = _arguments(url)
    arguments |= convert({name: arguments[name] for name in url.query}, {**known, **_TYPES})
    _check_values({name: value for name, value in arguments.items() if name in known})
    several = "," in f"{arguments.get('hostaddr') or arguments.get('host')}"
    return {**_DEFAULTS, **(_DEFAULTS_OF_SEVERAL if several else {}), **arguments}


def _connection_class(is_pooled: bool) -> Any:
    import psycopg

    class DeadlineConnection(psycopg.Connection[Any]):
        """A connection that waits for each response until the deadline at most."""

        #: Whether the connection was in the pool.
        is_used = False

        def __init__(self, pgconn: Any, *arguments: Any, **options: Any) -> None:
            super().__init__(pgconn, *arguments, **options)
            #: The address of the server.
            self.server = (pgconn.host, pgconn.hostaddr, pgconn.port)
            #: The number of the server's process. PgBouncer has other numbers.
            self.session = None if is_pooled else pgconn.backend_pid
            #: What ends the connection, if the server has not responded in time.
            self.unanswered: _Unanswered | None = None

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            seconds = RESPONSE_TIMEOUT if timeout is None else timeout
            try:
                return super().wait(gen, interval, min(seconds, remaining()))
            except psycopg.Error as error:
                # Errors of the server have a code.
                is_timeout = error.sqlstate is None and self.pgconn.transaction_status == _ACTIVE
                if is_timeout and self.is_used and self.unanswered is None:
                    keep_alive(self.fileno())
                    self.unanswered = _Unanswered(self)
                    raise psycopg.OperationalError(_NO_RESPONSE) from None
                raise

        def close(self) -> None:
            # PgBouncer would use the server for other clients, although it still works.
            if self.unanswered is None:
                super().close()

    return DeadlineConnection


class _Unanswered:
    """A connection whose server has not responded in time."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        #: The file descriptor of its socket.
        self.fileno = connection.fileno

    def close(self) -> None:
        """End the connection."""
        self._connection.unanswered = None
        self._connection.close()


def _configure(connection: Connection) -> None:
    """Set for one transaction what :meth:`PostgreSQL.make_engine` otherwise sets for a session."""
    connection.exec_driver_sql(
        f"SELECT set_config('statement_timeout', '{_STATEMENT_TIMEOUT}', true),"  # noqa: S608
        f" set_config('client_min_messages', '{_LEVEL}', true)"
    )


def _server_version(connection: Connection) -> tuple[int, int]:
    """Return the version that the server names to the driver.

    Compatible servers have another result of ``version()``, which SQLAlchemy does not understand.
    """
    driver: Any = connection.connection.driver_connection
    version: int = driver.info.server_version
    return divmod(max(version, _LOWEST_VERSION), 10000)


def _arguments(url: URL) -> dict[str, Any]:
    """Return the parts of a URL. SQLAlchemy joins several hosts and their ports."""
    try:
        return dict(url.get_dialect()().create_connect_args(url)[1])
    except (exc.ArgumentError, ValueError):
        raise ValueError(
            "the URL has invalid options host and port: use host=a,b&port=1,2 or host=a:1&host=b:2"
        ) from None


def _check_values(options: Mapping[str, Any]) -> None:
    usual = _problems({})
    problems = _problems(options) - usual
    if problems:
        # The messages of libpq would show values. It reports one invalid option at a time.
        left = {name: _problems(options, name) - usual for name in sorted(options)}
        names = [name for name in left if not left[name]]
        names = names or [name for name in left if left[name] != problems]
        raise ValueError(f"the option {' or '.join(names)} of the URL has an invalid value")


def _problems(options: Mapping[str, Any], without: str = "") -> set[str]:
    """Return what libpq reports for the options without one of them. It does not connect."""
    from psycopg import pq
    from psycopg.conninfo import make_conninfo

    # An empty option is not replaced by the service or the environment.
    options = {"host": "", "port": "", **options}
    options = {name: value for name, value in options.items() if name != without}
    # libpq checks the other options first, and then refuses these addresses.
    hosts = options.get("hostaddr") or options.get("host") or ""
    addresses = ",".join("-" for _ in hosts.split(","))
    attempt = pq.PGconn.connect_start(make_conninfo(**{**options, "hostaddr": addresses}).encode())
    problems = {*attempt.get_error_message().splitlines()}
    attempt.finish()
    return problems


def _fields(error: exc.DBAPIError) -> tuple[Any, ...]:
    """Return the SQLSTATE, the schema, the table and the constraint of an error."""
    original: Any = error.orig
    diagnostics = getattr(original, "diag", None)
    if diagnostics is None:  # pg8000 has a dict.
        fields = original.args[0] if original.args else None
        return tuple(fields.get(key) if isinstance(fields, dict) else None for key in "Cstn")
    names = ("sqlstate", "schema_name", "table_name", "constraint_name")
    return tuple(getattr(diagnostics, name) for name in names)


class _Notices(Watch):
    """The notices of a server, which each driver represents in another way."""

    def append(self, notice: Any) -> None:
        """Note whether a notice is that of a cancelled wait for a standby."""
        if isinstance(notice, str):  # psycopg2 has only the text, which may be in any language.
            is_cancelled = "wait for synchronous replication" in notice
        elif isinstance(notice, dict):  # pg8000
            is_cancelled = notice.get(b"R") == _WAIT_FOR_STANDBY.encode()
        else:
            is_cancelled = notice.source_function == _WAIT_FOR_STANDBY
        self.is_replicated &= not is_cancelled
