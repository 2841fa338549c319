"""The interface of an engine: everything in which one engine differs from another."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, ClassVar

from sqlalchemy import (
    URL,
    VARCHAR,
    BigInteger,
    Connection,
    Engine,
    Executable,
    Table,
    Text,
    create_engine,
    exc,
)
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.types import TypeEngine

from ...stores.base import Plant
from ...stores.deadline import TIMEOUT
from ...text import one_line

#: The maximum number of connections of an engine of our own.
POOL_SIZE = 16
#: The timeout in seconds to connect to one host of a server.
CONNECT_TIMEOUT = 3
#: The timeout in seconds of one response of a server.
RESPONSE_TIMEOUT = 4
# The option of SQLAlchemy 2.0.43 and later that saves the round trip of a needless rollback.
_SKIP_ROLLBACK = "skip_autocommit_rollback"


class Watch:
    """What a server says about the commits of one operation."""

    #: Whether the server has not given up to wait for its standby.
    is_replicated: bool = True


class Backend(ABC):
    """What the stores need to know of an engine. There is one object for each engine."""

    #: Whether only one connection at a time can write. A transaction then locks the database.
    one_writer: ClassVar[bool] = False
    #: The type of the column id.
    id_type: ClassVar[type[TypeEngine[Any]]] = BigInteger
    #: The types of the columns name and tag.
    text_types: ClassVar[tuple[type[TypeEngine[Any]], ...]] = (Text, VARCHAR)
    #: The name of the type of the columns name and tag.
    text_name: ClassVar[str] = "TEXT"
    #: What else can be wrong with a table, with a query that returns a row if it is wrong. They
    #: are executed also if the table is missing.
    table_checks: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def make_engine(self, url: URL) -> Engine:
        """Return an engine that commits each statement, and whose connections have timeouts.

        :raises ValueError: if an option of the URL is unknown or invalid. The message names it.
        """

    @abstractmethod
    def keys(self, connection: Connection, table: Table) -> Collection[Any]:
        """Return what the error of a duplicate can name: the primary key of the table."""

    @abstractmethod
    def is_duplicate(
        self, error: exc.DBAPIError, keys: Collection[Any], ids: Collection[int]
    ) -> bool:
        """Return whether an insert failed because a plant exists.

        :param keys: what :meth:`keys` has returned.
        :param ids: the ids of the plants.
        """

    def is_conflict(self, error: exc.DBAPIError) -> bool:
        """Return whether an operation was rolled back because of a concurrent transaction."""
        return False

    def is_refusal(self, error: exc.DBAPIError) -> bool:
        """Return whether an operation fails until an operator has corrected something."""
        return isinstance(error, exc.IntegrityError | exc.DataError)

    def is_new(self, url: URL) -> bool:
        """Return whether the first connection would create the database. Only SQLite does that."""
        return False

    def check_writable(self, url: URL) -> None:  # noqa: B027  # Only SQLite has a file.
        """Check the permission to write, as far as this is possible without a change.

        :raises StoreUnavailable: if it is missing.
        """

    def describe(self, error: Exception, url: URL) -> str:
        """Return the message of an error in one line, with what an operator needs to know."""
        return one_line(self.message(error))

    def message(self, error: Exception) -> str:
        """Return the message of the driver."""
        return str(getattr(error, "orig", error))

    def limit_waiting(  # noqa: B027  # Only SQLite needs it.
        self, connection: Connection
    ) -> None:
        """Let the connection wait for locks until the deadline at most."""

    def in_transaction(self, driver: Any) -> bool:
        """Return whether a connection of the driver has begun a transaction.

        Only engines need it that do not commit each statement.
        """
        return False

    def working(self, connection: Connection, sessions: Collection[int]) -> Collection[int]:
        """Return which sessions of the server work on an operation.

        Only the engines whose connections have sessions need it.
        """
        raise NotImplementedError

    def watch(self, driver: Any) -> Watch:
        """Return what the server says from now on about the commits of a driver's connection."""
        return Watch()

    def insert_new(self, table: Table) -> Executable | None:
        """Return a statement that skips plants that exist, and returns the ids of the others.

        Or return ``None``, if the engine has none that skips only violations of the primary key.
        """
        return None

    def insert_together(self, connection: Connection, table: Table, plants: Sequence[Plant]) -> int:
        """Insert plants by one statement, and return how many were inserted.

        Only an engine with one writer has group commit, which calls this method.
        """
        raise NotImplementedError


def own_engine(
    url: URL,
    connect_args: Mapping[str, Any],
    timeout: float = TIMEOUT,
    isolation_level: Any = "AUTOCOMMIT",
) -> Engine:
    """Return an engine of our own.

    :param url: the URL. SQLAlchemy converts its options.
    :param connect_args: arguments of the driver, which override these options.
    :param timeout: the seconds that an operation of the engine may wait.
    :param isolation_level: by default, each statement is a transaction.
    """
    known = signature(DefaultDialect).parameters
    return create_engine(
        url,
        connect_args=connect_args,
        isolation_level=isolation_level,
        execution_options={"plantstore": timeout, "preserve_rowcount": True},
        pool_size=POOL_SIZE,
        max_overflow=0,
        **{option: True for option in [_SKIP_ROLLBACK] if option in known},
    )


def whole(lowest: int, highest: int) -> Callable[[str], int]:
    """Return a function that converts an option to a whole number."""

    def convert_number(value: str) -> int:
        if not re.fullmatch("[0-9]{1,10}", value) or not lowest <= int(value) <= highest:
            raise ValueError
        return int(value)

    return convert_number


def one_of(*values: str) -> Callable[[str], str]:
    """Return a function that refuses all other values of an option."""

    def check(value: str) -> str:
        if value not in values:
            raise ValueError
        return value

    return check


def convert(
    options: Mapping[str, str | Sequence[str]], types: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    """Return the options of a URL, converted to their types.

    :param types: for each option, a function that raises ValueError for an invalid value.
    :raises ValueError: if an option is unknown, invalid, or occurs twice. The message names it.
    """
    unknown = sorted(options.keys() - types.keys())
    if unknown:
        raise ValueError(f"the URL has an unknown option: {shown(unknown[0], options)}")
    return {name: _converted(name, value, types[name]) for name, value in options.items()}


def shown(name: str, options: Iterable[str]) -> str:
    """Return the name of an option, unless it may be a part of a password with a raw &."""
    if any("passw" in option for option in options):
        return "in a password write & as %26"
    return repr(name)


def _converted(name: str, value: str | Sequence[str], convert_one: Callable[[str], Any]) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"the URL has the option {name} more than once")
    try:
        return convert_one(value)
    except (OSError, ValueError):
        raise ValueError(f"the option {name} of the URL has an invalid value") from None
