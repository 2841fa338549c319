"""MariaDB and MySQL."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from sqlalchemy import URL, Connection, Engine, Text, event, exc, func
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.util import asbool

from ...stores.base import Plant
from .._limits import Limits
from ._database import Database, lane_engine
from ._options import Converter, between, convert

# The condition for the table in the tables and columns of information_schema.
_THIS = "table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
_COLUMNS = (
    f"SELECT 1 FROM information_schema.columns WHERE {_THIS}"  # noqa: S608
    f" AND column_name IN {Plant._fields} AND"
)
# The kernel tests a connection of PyMySQL. It ends about ten seconds after its host is gone.
_KEEPALIVE = {
    "TCP_KEEPIDLE": Limits.keepalive_idle,
    "TCP_KEEPINTVL": Limits.keepalive_interval,
    "TCP_KEEPCNT": Limits.keepalive_count,
    "TCP_USER_TIMEOUT": Limits.keepalive_end * 1000,
}
# Errors that end by themselves, or with an outage.
_TRANSIENT = (
    "1021 1023 1024 1026 1030 1114"  # The disk is full, or fails.
    " 1037 1038 1041 1135 1206"  # Memory, threads or locks are missing.
    " 1040 1129 1203 1226"  # Too many connections.
    " 1042 1043 1152 1156 1157 1158 1159 1160 1161 1184"  # The network.
    " 1053 1077 1079 1317 1927 1969 3024 3168 3169"  # The server or a statement ends.
    " 1290 1792 1836 1874"  # The server is read-only.
    " 1020 1412 1615 1637 3100 3101 3572"  # Concurrent transactions.
    " 1180"  # A commit has failed.
    " 8 9"  # A proxy, such as ProxySQL, has no connection to a server.
)
# What a session needs, by one statement. An administrator may have set other values for all
# sessions. Each variable that changes what a statement, a text or a commit means has a fixed value.
# The lock timeouts are short, because the job is then retried. With messages in another language,
# a value of a plant could not be removed from them. A change of autocommit ends a transaction that
# init_connect has begun. The variables in comments are those of MariaDB, and those of MySQL.
_SESSION = f"""SET NAMES utf8mb4,
    sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',
    autocommit=0, autocommit=1, completion_type=0,
    foreign_key_checks=1, unique_checks=1,
    sql_big_selects=1, sql_quote_show_create=1, sql_safe_updates=0,
    sql_select_limit=18446744073709551615,
    innodb_lock_wait_timeout={Limits.mysql_lock}, lock_wait_timeout={Limits.mysql_lock},
    lc_messages='en_US'
    /*M! , tx_isolation='READ-COMMITTED', tx_read_only=0, check_constraint_checks=1 */
    /*!80000 , transaction_isolation='READ-COMMITTED', transaction_read_only=0 */"""
_TEXTS = (
    "bind_address connect_timeout program_name read_default_group read_timeout unix_socket"
    " write_timeout ssl_ca ssl_capath ssl_cert ssl_check_hostname ssl_cipher ssl_key"
)
_OPTIONS: dict[str, Converter] = {
    **dict.fromkeys(_TEXTS.split(), str),  # The driver checks them when it connects.
    "charset": ("utf8mb4",),  # No other one can store every text.
    "connections": between(2, 1000),
    # The driver would ignore a file that is missing.
    "read_default_file": partial(os.path.realpath, strict=True),
    "ssl_disabled": asbool,
}


class MySQL(Database):
    """MariaDB and MySQL, with PyMySQL. The engine of a site may have another driver."""

    # A lock timeout, a deadlock, and a node of Galera that is not in the cluster, or not yet.
    conflicts = ("1205", "1213", "1047")
    unready = ("1047",)
    transient = tuple(_TRANSIENT.split())
    unknown = ("1180", "1047")  # Other nodes may have the plants.
    faults = ("1064",)  # A syntax error.
    types = {**Database.types, Text: (LONGTEXT,)}
    table_faults = {
        "its storage engine must be InnoDB": (
            f"SELECT 1 FROM information_schema.tables WHERE {_THIS} AND engine <> 'InnoDB'"  # noqa: S608
        ),
        # The server would replace the id 0.
        "the column id must not be AUTO_INCREMENT": f"{_COLUMNS} extra LIKE '%auto_increment%'",
        "its character set must be utf8mb4": f"{_COLUMNS} character_set_name <> 'utf8mb4'",
        "the character set of the connection must be utf8mb4": (
            "SELECT 1 FROM DUAL WHERE @@character_set_client <> 'utf8mb4'"
            " OR @@character_set_connection <> 'utf8mb4'"
        ),
        # A session of our own does not have it.
        "the sql_mode of the connection must not have EMPTY_STRING_IS_NULL": (
            "SELECT 1 FROM DUAL WHERE FIND_IN_SET('EMPTY_STRING_IS_NULL', @@sql_mode)"
        ),
    }

    @staticmethod
    def make_engine(url: URL) -> Engine:
        """Return an engine whose sessions depend on no setting of the server."""
        options = convert(url.query, _OPTIONS)
        connections = options.pop("connections", None)
        arguments: dict[str, Any] = {
            "autocommit": True,  # It is known without another statement.
            "charset": "utf8mb4",
            "init_command": _SESSION,
        }
        if "ssl_disabled" in options:  # Not each version of the driver has it.
            arguments["ssl_disabled"] = options.pop("ssl_disabled")
        if url.password:
            arguments["password"] = url.password.encode()  # PyMySQL would encode it as Latin-1.
        try:
            query = {"connect_timeout": f"{Limits.connect}", **options}
            url = url.set(drivername="mysql+pymysql", query=query)
            engine = lane_engine(url, arguments, connections)
        except ValueError:  # SQLAlchemy converts some options.
            raise ValueError("an option of the URL has an invalid value") from None
        event.listen(engine, "do_connect", _open)
        return engine

    def descriptor(self, driver: Any) -> int:
        return int(driver._sock.fileno())  # noqa: SLF001  # PyMySQL has no public name for it.

    def replace(self, connection: Connection, plant: Plant) -> bool:
        # The driver of a site may make the server count only rows that it changes. But it calls
        # LAST_INSERT_ID for each row that it finds, and the response has the result.
        name = func.if_(func.last_insert_id(1), plant.name, None)
        result = connection.execute(self._replacement(plant).values(name=name))
        return bool(result.rowcount or result.lastrowid)

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """Provide a transaction that locks only rows that exist, and commit it."""
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.exec_driver_sql("START TRANSACTION READ WRITE")
        try:
            yield
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            connection.invalidate()  # The server rolls back.
            raise

    def check_writable(self, connection: Connection) -> None:
        """Check that the server allows this user to begin a transaction that writes."""
        with self.transaction(connection):
            pass

    def code(self, error: Exception) -> str:
        original: Any = getattr(error, "orig", error)
        code = getattr(original, "errno", None) or (original.args or [None])[0]
        return str(code) if isinstance(code, int) and not 2000 <= code < 3000 and code else ""

    def is_outdated(self, error: exc.DBAPIError) -> bool:
        # A session keeps the permissions that it had when it began: on a table, and on its columns.
        return self.code(error) in {"1142", "1143"}

    def message(self, error: Exception) -> str:
        original: Any = getattr(error, "orig", error)
        if isinstance(original, OSError) and original.strerror:
            return original.strerror  # The whole message may name a file of the URL.
        return str((original.args or [""])[-1] or super().message(error))


def _open(dialect: Any, record: object, arguments: object, options: dict[str, Any]) -> Any:
    """Open a connection. Each response of the server must arrive within the timeout to connect."""
    driver = dialect.loaded_dbapi
    try:
        connection = driver.connect(**{**options, "read_timeout": options["connect_timeout"]})
    except (driver.Error, OSError):
        raise
    except Exception as error:  # A wrong option, a missing package, or another kind of server.
        reason = str(error).partition("\n")[0]  # Other lines are those of a file.
        raise driver.OperationalError(2003, f"cannot connect: {reason}") from error  # No server.
    # A thread of the store may wait for longer. PyMySQL has no public name to change the timeout.
    connection._read_timeout = options.get("read_timeout")  # noqa: SLF001
    for name, value in _KEEPALIVE.items():
        with suppress(AttributeError, OSError):  # Not each system has it, nor a Unix socket.
            option = getattr(socket, name)
            connection._sock.setsockopt(socket.IPPROTO_TCP, option, value)  # noqa: SLF001
    return connection
