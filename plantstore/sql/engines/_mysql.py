"""MariaDB and MySQL."""

import configparser
import re
import ssl
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, ExceptionContext, Table, bindparam, event, exc, text
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.util import asbool

from ...stores.base import Plant
from ...stores.deadline import deadline, remaining
from ...text import one_line
from .._sockets import duplicate, keep_alive
from ._backend import CONNECT_TIMEOUT, RESPONSE_TIMEOUT, Backend, convert, one_of, own_engine, whole
from ._opening import Opening

# The columns of plants whose character set is not utf8mb4.
_WRONG_CHARACTER_SETS = (
    "SELECT 1 FROM information_schema.columns"  # noqa: S608
    " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
    f" AND column_name IN {Plant._fields} AND character_set_name <> 'utf8mb4'"
)
# The codes of errors.
_DUPLICATE = 1062
_PORT = "3306"
_NO_SERVER = 2003
_READ_ONLY = 1290
_NOT_READY = 1047  # A node of Galera that is not in the cluster, or not yet.
# A lock timeout, a deadlock, and a node of Galera that refuses statements. Not 1180: after a failed
# commit (1180), other nodes may have the plant.
_CONFLICTS = {1205, 1213, _NOT_READY}
# A violated CHECK constraint of MySQL or of MariaDB, a missing permission for the database, the
# table or a column, and an error that a trigger raises.
_REFUSALS = {3819, 4025, 1044, 1142, 1143, 1644}
# Without strict mode, MariaDB truncates long strings. The lock timeouts are short, because the
# operation is then retried.
_WORKING = text(
    "SELECT id FROM information_schema.processlist WHERE command <> 'Sleep' AND id IN :sessions"
).bindparams(bindparam("sessions", expanding=True))
_INIT_COMMAND = (
    "SET sql_mode=CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'),"
    " innodb_lock_wait_timeout=1, lock_wait_timeout=1"
)


def _file(path: str) -> str:
    with Path(path).open("rb"):
        return path


def _hosts(value: str) -> list[str]:
    hosts = value.split(",")
    for host in hosts:
        host.encode("idna")  # PyMySQL would raise UnicodeError later.
        if not host or host.count(":") == 1:  # An IPv6 address has more colons.
            raise ValueError
    return hosts


def _ports(value: str) -> list[int]:
    return [whole(1, 2**16 - 1)(port or _PORT) for port in value.split(",")]


_seconds = whole(1, 3600)
_OPTIONS: dict[str, Callable[[str], Any]] = {
    "bind_address": str,
    # No other character set can store every text.
    "charset": one_of("utf8mb4"),
    "connect_timeout": _seconds,
    "max_allowed_packet": whole(1, 2**30),
    "program_name": str,
    "read_default_file": _file,
    "read_default_group": str,
    "read_timeout": _seconds,
    "ssl_disabled": asbool,
    "unix_socket": str,
    "write_timeout": _seconds,
}
# Several servers in the URL become these options.
_SERVERS: dict[str, Callable[[str], Any]] = {"host": _hosts, "port": _ports}
# SQLAlchemy makes PyMySQL's argument ssl of these. With them as separate arguments, PyMySQL would
# not verify the server.
_SSL_OPTIONS: dict[str, Callable[[str], Any]] = {
    "ssl_ca": _file,
    "ssl_capath": str,
    "ssl_cert": _file,
    "ssl_check_hostname": asbool,
    "ssl_cipher": str,
    "ssl_key": _file,
}


class MySQL(Backend):
    """MariaDB and MySQL, with PyMySQL. The engine of a site may have another driver."""

    text_types: ClassVar[tuple[type[Any], ...]] = (LONGTEXT,)
    text_name: ClassVar[str] = "LONGTEXT"
    table_checks: ClassVar[Mapping[str, str]] = {
        "its storage engine must be InnoDB": (
            "SELECT 1 FROM information_schema.tables"
            " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
            " AND engine <> 'InnoDB'"
        ),
        "its character set must be utf8mb4": _WRONG_CHARACTER_SETS,
        "the character set of the connection must be utf8mb4": (
            "SELECT 1 FROM DUAL WHERE @@character_set_client <> 'utf8mb4'"
            " OR @@character_set_connection <> 'utf8mb4'"
        ),
    }

    def make_engine(self, url: URL) -> Engine:
        """Return an engine whose sessions are strict, and whose responses have a timeout."""
        options = convert(url.query, {**_OPTIONS, **_SSL_OPTIONS, **_SERVERS})
        arguments = {
            "connect_timeout": CONNECT_TIMEOUT,
            "read_timeout": RESPONSE_TIMEOUT,
            "write_timeout": RESPONSE_TIMEOUT,
            **{name: options[name] for name in options if name in _OPTIONS},
            "charset": "utf8mb4",
            "init_command": _INIT_COMMAND,
        }
        if url.password:
            arguments["password"] = url.password.encode()  # PyMySQL would encode it as Latin-1.
        servers = _servers(url, options)
        url = url.set(drivername="mysql+pymysql").difference_update_query([*_OPTIONS, *_SERVERS])
        engine = own_engine(url, arguments)
        connect = _connection_class()
        _check_files(engine, connect, arguments)
        open_connection = (
            partial(_open_first, connect, servers) if servers else partial(_open, connect)
        )
        Opening(engine, open_connection, lambda connection: connection._sock)  # noqa: SLF001
        event.listen(engine, "handle_error", _leave_unready)
        return engine

    def keys(self, connection: Connection, table: Table) -> Collection[Any]:
        """Return the name of the primary key, alone as in MariaDB, or with the table."""
        return {"PRIMARY", f"{table.name}.PRIMARY"}

    def is_duplicate(
        self, error: exc.DBAPIError, keys: Collection[Any], ids: Collection[int]
    ) -> bool:
        """Return whether the message names one of the ids and the primary key, in any language."""
        entry, *key = re.findall("'([^']*)'", str(error.orig)) or [None]
        if _code(error) != _DUPLICATE or entry not in map(str, ids):
            return False
        return len(key) == 1 and key[0] in keys

    def is_conflict(self, error: exc.DBAPIError) -> bool:
        """Return whether the server rolled back a statement that can be retried."""
        return _code(error) in _CONFLICTS

    def is_refusal(self, error: exc.DBAPIError) -> bool:
        """Return whether it is a violated constraint, a missing permission or a trigger."""
        return super().is_refusal(error) or _code(error) in _REFUSALS

    def working(self, connection: Connection, sessions: Collection[int]) -> Collection[int]:
        """Return which sessions of the server work on an operation."""
        return {*connection.execute(_WORKING, {"sessions": [*sessions]}).scalars()}

    def message(self, error: Exception) -> str:
        """Return the message of the driver without the code of the error."""
        original: Any = getattr(error, "orig", error)
        text = original.args[-1] if original.args else ""
        # A missing file is only in the whole message.
        return super().message(error) if isinstance(original, OSError) or not text else str(text)


def _connection_class() -> type[Any]:
    from pymysql.connections import Connection  # type: ignore[import-untyped]

    class DeadlineConnection(Connection):  # type: ignore[misc]
        """A connection that waits for each packet until the deadline at most."""

        #: Whether the connection was in the pool.
        is_used = False
        #: A socket of the connection, if the server has not responded in time.
        unanswered: socket | None = None

        def connect(self, sock: Any = None) -> None:
            super().connect(sock)
            #: The address of the server.
            self.server = self._sock.getpeername()
            #: The number of the connection in the server.
            self.session = self.thread_id()

        def _force_close(self) -> None:
            is_timeout = isinstance(sys.exc_info()[1], TimeoutError)
            if is_timeout and self.is_used and self.unanswered is None:
                keep_alive(self._sock.fileno())
                self.unanswered = duplicate(self._sock.fileno())
            super()._force_close()

        @property
        def _read_timeout(self) -> float:
            return min(self._read_limit, max(0.001, remaining()))

        @_read_timeout.setter
        def _read_timeout(self, seconds: float) -> None:
            self._read_limit = seconds

        @property
        def _write_timeout(self) -> float:
            return min(self._write_limit, max(0.001, remaining()))

        @_write_timeout.setter
        def _write_timeout(self, seconds: float) -> None:
            self._write_limit = seconds

    return DeadlineConnection


def _servers(url: URL, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the addresses of the servers, if there are several."""
    hosts = options.get("host", [])
    ports = options.get("port", _ports("," * (len(hosts) - 1)) if hosts else [])
    if len(hosts) != len(ports) or (hosts and url.host):
        raise ValueError("the URL has invalid options host and port: use @a:1,b:2/ in the URL")
    return [{"host": host, "port": port} for host, port in zip(hosts, ports, strict=True)]


def _open_first(connect: Any, servers: Sequence[Mapping[str, Any]], **options: Any) -> Any:
    """Open a connection to the first of several servers that can store plants.

    :raises pymysql.err.OperationalError: if there is none. The message says why.
    """
    seconds = min(options["connect_timeout"], max(1.0, CONNECT_TIMEOUT / len(servers)))
    problems = []
    for server in servers:
        try:
            with deadline(seconds):
                connection = _open(connect, **{**options, **server, "connect_timeout": seconds})
                _check_writable(connection)
                return connection
        except connect.Error as error:
            problems.append(f"{server['host']}:{server['port']}: {error.args[-1]}")
    raise connect.OperationalError(_NO_SERVER, "; ".join(problems))


def _open(connect: Any, **options: Any) -> Any:
    """Open a connection to a server.

    :raises pymysql.err.Error: if this fails.
    """
    try:
        return connect(**options)
    except (connect.Error, OSError):
        raise
    except Exception as error:
        raise connect.OperationalError(_NO_SERVER, f"not a database server: {error}") from error


def _check_writable(connection: Any) -> None:
    """Check that a server can store plants, or close the connection.

    :raises pymysql.err.Error: if it cannot.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("DO 1")  # A node of Galera that is not ready refuses it.
            cursor.execute("SELECT @@read_only")
            (read_only,) = cursor.fetchone()
        if str(read_only) not in {"0", "OFF"}:  # In newer versions of MariaDB it is a word.
            raise connection.OperationalError(_READ_ONLY, "the server is read-only")
    except connection.Error:
        connection.close()
        raise


def _leave_unready(context: ExceptionContext) -> None:
    """Let the pool replace all connections when the node of Galera is not ready."""
    error = context.sqlalchemy_exception
    if isinstance(error, exc.DBAPIError) and _code(error) == _NOT_READY:
        context.is_disconnect = True


def _check_files(engine: Engine, connect: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Let the driver read the files that the options name. It does not connect."""
    _, options = engine.dialect.create_connect_args(engine.url)
    try:
        connect(**{**options, **arguments}, defer_connect=True)
    except (TypeError, ssl.SSLError) as error:  # Some versions do not have each option.
        reason = one_line(error)
        raise ValueError(f"an option of the URL, such as ssl_ca, is invalid: {reason}") from None
    except configparser.Error:
        raise ValueError(
            "the option read_default_file of the URL is not the name of a valid file"
        ) from None


def _code(error: exc.DBAPIError) -> Any:
    original: Any = error.orig
    return getattr(original, "errno", None) or (original.args or [None])[0]
