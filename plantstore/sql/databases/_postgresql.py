"""PostgreSQL."""

import re
from collections.abc import Sequence
from contextlib import suppress
from json import JSONEncoder
from typing import Any
from urllib.parse import unquote

from sqlalchemy import URL, Connection, Engine, exc

from ...stores.base import Plant, StoreMisconfigured, StoreUnavailable
from .._limits import Limits
from .._tables import make_columns
from ._database import COLUMNS, AddedAndExisting, Database, driver_of, lane_engine, name_of
from ._options import Converter, between, convert

# What a session needs. A statement ends on the server before the client gives up, and a wait for a
# lock much earlier: the job is then repeated. The options of the user may change both timeouts.
_TIMEOUTS = (
    f"-c statement_timeout={round(Limits.postgresql_statement * 1000)}"
    f" -c lock_timeout={round(Limits.postgresql_lock * 1000)}"
)
# An administrator or a user may have set other values of what changes the meaning of a statement,
# a text or a commit. Each has a fixed value. Without warnings, the server would not say that it has
# given up to wait for a standby. The encoding is an argument of its own.
_FIXED = (
    "-c client_min_messages=warning -c default_transaction_deferrable=off"
    r" -c default_transaction_isolation=read\ committed -c exit_on_error=off"
    " -c quote_all_identifiers=off -c standard_conforming_strings=on -c plantstore.session=own"
)
# NULL if a proxy has dropped the options. It may also let other clients use the session, in which
# the name of a prepared statement would mean another one.
_SESSION = "SELECT current_setting('plantstore.session', TRUE)"
# The key of the notices about cancelled waits in the attribute ``info`` of a connection.
_CANCELLED = "plantstore_cancelled"
# The function of the server that sends a warning if its wait for a standby was cancelled: the
# transaction is then committed on this server, and nowhere else. The text may be in any language.
_WAIT_FOR_STANDBY = "SyncRepWaitForLSN"
_NOT_REPLICATED = "the server has committed, but its wait for a standby was cancelled"
_FOR_PGBOUNCER = "for PgBouncer and similar servers, add the option pgbouncer=true to the URL"
# The kernel ends a connection about ten seconds after its host is gone.
_DEFAULTS = {
    "connect_timeout": Limits.connect,
    "client_encoding": "utf8",
    "keepalives_idle": Limits.keepalive_idle,
    "keepalives_interval": Limits.keepalive_interval,
    "keepalives_count": Limits.keepalive_count,
    "tcp_user_timeout": Limits.keepalive_end * 1000,
}
# With several servers, each has less time, and only one that can store plants is used.
_OF_SEVERAL = {"connect_timeout": Limits.connect_of_several, "target_session_attrs": "read-write"}
# A message of libpq about an option. The value may be a part of a password.
_WRONG_VALUE = re.compile(r'(connection is bad: (?!connection)(invalid "\w+")?[^"]*)".*"')
# Numbers that libpq checks only when it connects. The check of the table finds a wrong encoding.
_INTEGERS = ("connect_timeout", "prepare_threshold", "tcp_user_timeout", "keepalives")
_CONVERTERS: dict[str, Converter] = {
    "connections": between(2, 1000),
    "pgbouncer": ("true", "false"),
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    **dict.fromkeys((*_INTEGERS, *_DEFAULTS.keys() - {"client_encoding"}), int),
}
# Pgpool-II sends this query to the primary: the function is not known to read only.
_STATE = "SELECT current_setting('transaction_read_only'), pg_is_in_recovery()"
_READ_ONLY = "the server is read-only: it is a standby, or default_transaction_read_only is on"
# A prepared statement that the session no longer has, or has already: others share the session.
_OTHER_SESSION = {"26000", "42P05"}
# The function of the server that finds that a prepared statement has another result than before.
_CHECK_OF_RESULTS = "RevalidateCachedQuery"
_NEW_ONLY = " ON CONFLICT (id) DO NOTHING"
# Several plants are one parameter, in JSON: a quarter of the driver's work. For one, it is slower.
_ROWS = ", ".join(f"{column.name} {column.type}" for column in make_columns())
_OF_JSON = f"SELECT {COLUMNS} FROM json_to_recordset(%s::json) AS new ({_ROWS})"  # noqa: S608
_encode = JSONEncoder(ensure_ascii=False).encode


class PostgreSQL(Database):
    """PostgreSQL, with psycopg. The engine of a site may have another driver."""

    # A serialization failure, a deadlock, and a lock timeout.
    conflicts = ("40001", "40P01", "55P03")
    # A connection, a state of the transaction (such as that of a read-only server), a rollback,
    # resources, an operator, a system error, a snapshot, an object in use, and an internal error,
    # such as that of concurrent DDL.
    transient = ("08", "25", "40", "53", "57", "58", "72", "55006", "XX000")
    unknown = ("08", "40003")  # A proxy has lost the server.
    undecodable = ("22021",)
    faults = ("42601", "42P02")  # A syntax error, and a parameter that is missing.
    table_faults = {
        # SQL_ASCII stores the bytes of UTF-8 unchanged.
        "the encoding of the database must be UTF8": (
            "SELECT 1 WHERE current_setting('server_encoding') NOT IN ('UTF8', 'SQL_ASCII')"
        ),
        "the encoding of the connection must be UTF8": (
            "SELECT 1 WHERE current_setting('client_encoding') <> 'UTF8'"
        ),
        "it must be neither UNLOGGED nor temporary: a crash would empty it": (
            "SELECT 1 FROM pg_class WHERE relpersistence <> 'p' AND oid ="
            " to_regclass(COALESCE(quote_ident(:schema) || '.', '') || quote_ident(:table))"
        ),
        "client_min_messages must not be error: it hides that no standby has a plant": (
            "SELECT 1 WHERE current_setting('client_min_messages') = 'error'"
            " AND current_setting('synchronous_standby_names') <> ''"
        ),
        # Such a role sees no table, also if there is one.
        "the role must have the right to use a schema of its search_path": (
            "SELECT 1 WHERE COALESCE(:schema, current_schema()) IS NULL"
        ),
    }

    @staticmethod
    def make_engine(url: URL) -> Engine:
        """Return an engine whose statements have a timeout on the server.

        With the option ``pgbouncer=true``, several clients may share a session of the server: no
        statement is prepared, and nothing is set. The role must have the timeouts.
        """
        # Like libpq, decode the host: it may be the folder of a socket.
        url = url.set(drivername="postgresql+psycopg", host=unquote(url.host or "") or None)
        options = _options(url)
        connections = options.pop("connections", None)
        if options.pop("pgbouncer", "false") == "true":
            options["prepare_threshold"] = None
        else:
            options["options"] = f"{_TIMEOUTS} {options['options']} {_FIXED}"
        return lane_engine(url.set(query={}), options, connections)

    def descriptor(self, driver: Any) -> int:
        return int(driver.fileno())

    def watch(self, connection: Connection) -> None:
        """Collect the notices of the server that a wait for a standby was cancelled."""
        if _CANCELLED not in connection.info:
            cancelled = connection.info[_CANCELLED] = list[str]()

            def note(notice: Any) -> None:
                if notice.source_function == _WAIT_FOR_STANDBY:
                    cancelled.append(notice.source_function)

            with suppress(AttributeError):  # Another driver of a site.
                driver_of(connection).add_notice_handler(note)

    def check_commits(self, connection: Connection) -> None:
        """Check that no wait for a standby was cancelled. The caller closes the connection then."""
        if connection.info[_CANCELLED]:
            raise StoreUnavailable(_NOT_REPLICATED)

    def check_table_if_due(self, connection: Connection, *, to_add: bool) -> None:
        """Also check that the session has the options of :meth:`make_engine`, if it needs them."""
        if not self.is_checked and "plantstore" in self.engine.get_execution_options():
            is_prepared = driver_of(connection).prepare_threshold is not None
            if is_prepared and connection.exec_driver_sql(_SESSION).scalar() is None:
                raise StoreMisconfigured(f"the session has lost its options: {_FOR_PGBOUNCER}")
        super().check_table_if_due(connection, to_add=to_add)

    def insert(self, connection: Connection, plants: Sequence[Plant]) -> AddedAndExisting:
        """Insert those of the plants whose ids do not exist.

        The statement that inserts also says which ids exist. So no other server answers, which may
        be late: behind Pgpool-II, a query can be executed by a standby.

        Each statement is a transaction. So the first one that adds plants is the last one: the
        error of another one would be reported for them, too.
        """
        added, existing = self._insert_new(connection, plants), set[int]()
        # A plant that is neither new nor found was just removed, or added by another client. After
        # ten attempts, the database drops it each time.
        missing, attempts = plants, 10
        while missing and not added and attempts:
            for id, is_new in self._insert_or_find(connection, missing):
                (added if is_new else existing).add(id)
            missing = [plant for plant in missing if plant.id not in existing]
            attempts -= 1
        return added, existing

    def _insert_new(self, connection: Connection, plants: Sequence[Plant]) -> set[int]:
        if len(plants) == 1:
            statement = self._insertion(connection, 1, _NEW_ONLY)
            is_new = connection.exec_driver_sql(statement, tuple(plants[0])).rowcount
            return {plants[0].id} if is_new else set()
        statement = self._insertion_of_json(connection)
        result = connection.exec_driver_sql(statement, (_as_json(plants),))
        if result.rowcount < len(plants):
            return {*result.scalars()}
        result.close()  # All are new. To read their ids would take longer.
        return {plant.id for plant in plants}

    def _insert_or_find(self, connection: Connection, plants: Sequence[Plant]) -> Sequence[Any]:
        """Insert new plants; return each id that is new or exists, and whether it is new."""
        new = "added" if self.table.name != "added" else "new"  # It would hide the table.
        statement = (
            f"WITH {new} AS ({self._insertion_of_json(connection)})"  # noqa: S608
            f" SELECT id, TRUE FROM {new} UNION ALL SELECT id, FALSE"
            f" FROM {name_of(connection, self.table)} WHERE id = ANY(%s::bigint[])"
        )
        ids = [plant.id for plant in plants]
        return connection.exec_driver_sql(statement, (_as_json(plants), ids)).all()

    def _insertion_of_json(self, connection: Connection) -> str:
        """Return a statement that inserts new plants, and returns their ids."""
        table = name_of(connection, self.table)
        return f"INSERT INTO {table} ({COLUMNS}) {_OF_JSON}{_NEW_ONLY} RETURNING id"  # noqa: S608

    def check_writable(self, connection: Connection) -> None:
        if connection.exec_driver_sql(_STATE).scalar() == "on":
            raise StoreUnavailable(_READ_ONLY)

    def code(self, error: Exception) -> str:
        original: Any = getattr(error, "orig", error)
        fields = original.args[0] if original.args else None  # pg8000 has a dict.
        pg8000 = fields.get("C") if isinstance(fields, dict) else None
        psycopg2 = getattr(original, "pgcode", pg8000)
        return getattr(original, "sqlstate", psycopg2) or ""

    def is_outdated(self, error: exc.DBAPIError) -> bool:
        found_by = getattr(getattr(error.orig, "diag", None), "source_function", None)
        return found_by == _CHECK_OF_RESULTS or self.code(error) in _OTHER_SESSION

    def describe(self, error: Exception) -> str:
        """Return the message, in which the wrong value of an option is masked."""
        return _WRONG_VALUE.sub(r'\1"***"', super().describe(error))


def _as_json(plants: Sequence[Plant]) -> str:
    return _encode([plant._asdict() for plant in plants])


def _options(url: URL) -> dict[str, Any]:
    """Return the arguments of psycopg. libpq checks most values when it connects.

    :raises ValueError: if an option is unknown, or if its value has the wrong type.
    """
    from psycopg import pq

    defaults = {option.keyword.decode(): option.val for option in pq.Conninfo.get_defaults()}
    try:  # SQLAlchemy joins several hosts and their ports.
        arguments = dict(url.get_dialect()().create_connect_args(url)[1])
    except (exc.ArgumentError, ValueError):
        raise ValueError(
            "the URL has invalid options host and port: use host=a,b&port=1,2"
        ) from None
    converters = {**dict.fromkeys(defaults, str), **_CONVERTERS}
    arguments |= convert({name: arguments[name] for name in url.query}, converters)
    several = "," in f"{arguments.get('hostaddr') or arguments.get('host')}"
    if "service" in arguments:
        raise ValueError("use the environment variable PGSERVICE instead of the option service")
    # The options of PGSERVICE or PGOPTIONS. libpq does not add them to others.
    inherited = {"options": (defaults["options"] or b"").decode()}
    return {**_DEFAULTS, **(_OF_SEVERAL if several else {}), **inherited, **arguments}
