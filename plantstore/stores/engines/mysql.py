"""MariaDB and MySQL."""

import configparser
import re
import ssl
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import URL, Connection, Engine, Table, exc
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.util import asbool

from ..deadline import remaining
from .backend import CONNECT_TIMEOUT, RESPONSE_TIMEOUT, Backend, convert, one_of, own_engine, whole
from .opening import Opening

# The codes of errors.
_DUPLICATE = 1062
# A lock timeout, a deadlock, and a transaction or a node that Galera did not accept.
_CONFLICTS = {1205, 1213, 1180, 1047}
# A violated CHECK constraint of MySQL or of MariaDB, a missing permission for the database, the
# table or a column, and an error that a trigger raises.
_REFUSALS = {3819, 4025, 1044, 1142, 1143, 1644}
# Without strict mode, MariaDB truncates long strings. The lock timeouts are short, because the
# operation is then retried.
_INIT_COMMAND = (
    "SET sql_mode=CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'),"
    " innodb_lock_wait_timeout=1, lock_wait_timeout=1"
)


def _file(path: str) -> str:
    with Path(path).open("rb"):
        return path


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
        "its character set must be utf8mb4": (
            "SELECT 1 FROM information_schema.columns"
            " WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
            " AND column_name IN ('name', 'tag') AND character_set_name <> 'utf8mb4'"
        ),
        "the character set of the connection must be utf8mb4": (
            "SELECT 1 FROM DUAL WHERE @@character_set_client <> 'utf8mb4'"
            " OR @@character_set_connection <> 'utf8mb4'"
        ),
    }

    def make_engine(self, url: URL) -> Engine:
        """Return an engine whose sessions are strict, and whose responses have a timeout."""
        options = convert(url.query, {**_OPTIONS, **_SSL_OPTIONS})
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
        url = url.set(drivername="mysql+pymysql").difference_update_query(_OPTIONS)
        engine = own_engine(url, arguments)
        connection_class = _connection_class()
        _check_files(engine, connection_class, arguments)
        Opening(engine, connection_class, lambda connection: connection._sock)  # noqa: SLF001
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


def _check_files(engine: Engine, connect: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Let the driver read the files that the options name. It does not connect."""
    _, options = engine.dialect.create_connect_args(engine.url)
    try:
        connect(**{**options, **arguments}, defer_connect=True)
    except (TypeError, ssl.SSLError) as error:  # Some versions do not have each option.
        reason = " ".join(str(error).split())
        raise ValueError(f"an option of the URL, such as ssl_ca, is invalid: {reason}") from None
    except configparser.Error:
        raise ValueError(
            "the option read_default_file of the URL is not the name of a valid file"
        ) from None


def _code(error: exc.DBAPIError) -> Any:
    original: Any = error.orig
    return getattr(original, "errno", None) or (original.args or [None])[0]
