"""PostgreSQL."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, Table, exc, text
from sqlalchemy.dialects import postgresql

from ..base import Plant
from ..deadline import remaining
from ..tables import values
from .backend import CONNECT_TIMEOUT, RESPONSE_TIMEOUT, Backend, convert, own_engine
from .opening import Opening

# Half a second shorter than the client's timeout, so that the client knows that the server has
# cancelled the statement.
_STATEMENT_TIMEOUT = RESPONSE_TIMEOUT - 0.5
_INTEGERS = (
    "connect_timeout",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "prepare_threshold",
    "tcp_user_timeout",
)
# The codes of errors (SQLSTATE).
_DUPLICATE = "23505"
_CONFLICTS = {"40001", "40P01"}  # A serialization failure, a deadlock.
_REFUSALS = {"42501", "P0001"}  # A missing permission, an error that a trigger raises.
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
    }

    def make_engine(self, url: URL) -> Engine:
        """Return an engine whose statements have a timeout on the server, and one here."""
        import psycopg

        class Connection(psycopg.Connection[Any]):
            """A connection that waits for each response until the deadline at most."""

            def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
                seconds = RESPONSE_TIMEOUT if timeout is None else timeout
                return super().wait(gen, interval, min(seconds, remaining()))

        engine = own_engine(url.set(drivername="postgresql+psycopg"), _options(url))
        Opening(engine, Connection.connect, Connection.fileno)
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

    def add_new(
        self,
        connection: Connection,
        table: Table,
        plants: Mapping[int, Plant],
        keys: Collection[Any],
    ) -> int:
        """Insert the plants whose ids do not exist yet, and return how many they are."""
        # After a rollback to a savepoint, psycopg may use a prepared statement that is gone.
        new = postgresql.insert(table).on_conflict_do_nothing(index_elements=["id"])
        return len(connection.execute(new.returning(table.c.id), values(plants)).all())


def _options(url: URL) -> dict[str, Any]:
    """Return the arguments of psycopg.

    :raises ValueError: if psycopg or libpq refuses an option.
    """
    from psycopg import pq

    known = {option.keyword.decode(): str for option in pq.Conninfo.get_defaults()}
    # SQLAlchemy itself converts several hosts.
    hosts = {name for name, value in url.query.items() if name == "host" or "," in value}
    options = convert(
        url.difference_update_query(hosts), {**known, **dict.fromkeys(_INTEGERS, int)}
    )
    _check_values({name: value for name, value in options.items() if name in known})
    timeout = f"-c statement_timeout={int(_STATEMENT_TIMEOUT * 1000)}"
    return {
        "connect_timeout": CONNECT_TIMEOUT,
        "client_encoding": "utf8",
        **options,
        "options": f"{timeout} {options.get('options', '')}",
    }


def _check_values(options: dict[str, Any]) -> None:
    from psycopg import pq
    from psycopg.conninfo import make_conninfo

    def problem(**options: Any) -> str:
        # libpq checks the options first, and then refuses this address. It does not connect.
        conninfo = make_conninfo(**{**options, "hostaddr": "-", "service": None, "port": None})
        attempt = pq.PGconn.connect_start(conninfo.encode())
        message = attempt.get_error_message()
        attempt.finish()
        return message

    message = problem(**options)
    if message != problem():
        raise ValueError(f"the URL has an invalid option: {' '.join(message.split())}")


def _fields(error: exc.DBAPIError) -> tuple[Any, ...]:
    """Return the SQLSTATE, the schema, the table and the constraint of an error."""
    original: Any = error.orig
    diagnostics = getattr(original, "diag", None)
    if diagnostics is None:  # pg8000 has a dict.
        fields = original.args[0] if original.args else None
        return tuple(fields.get(key) if isinstance(fields, dict) else None for key in "Cstn")
    names = ("sqlstate", "schema_name", "table_name", "constraint_name")
    return tuple(getattr(diagnostics, name) for name in names)
