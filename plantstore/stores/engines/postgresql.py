"""PostgreSQL."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, Executable, Table, exc, text
from sqlalchemy.dialects import postgresql

from ..deadline import remaining
from .backend import CONNECT_TIMEOUT, RESPONSE_TIMEOUT, Backend, convert, one_of, own_engine, whole
from .opening import Opening

# Half a second shorter than the client's timeout, so that the client knows that the server has
# cancelled the statement.
_STATEMENT_TIMEOUT = RESPONSE_TIMEOUT - 0.5
# The types of the options that libpq does not check before it connects.
_TYPES: dict[str, Callable[[str], Any]] = {
    "client_encoding": one_of("utf8", "UTF8"),
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
        """Return an engine whose statements have a timeout on the server, and one here."""
        import psycopg

        class Connection(psycopg.Connection[Any]):
            """A connection that waits for each response until the deadline at most."""

            def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
                seconds = RESPONSE_TIMEOUT if timeout is None else timeout
                return super().wait(gen, interval, min(seconds, remaining()))

        url = url.set(drivername="postgresql+psycopg")
        engine = own_engine(url, _options(url))
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
    timeout = f"-c statement_timeout={int(_STATEMENT_TIMEOUT * 1000)}"
    return {
        "connect_timeout": CONNECT_TIMEOUT,
        "client_encoding": "utf8",
        **arguments,
        "options": f"{timeout} {arguments.get('options', '')}",
    }


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
