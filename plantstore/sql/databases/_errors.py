"""What the errors of a database mean."""

import re
from abc import ABC, abstractmethod
from typing import ClassVar

from sqlalchemy import Engine, Table, exc

from ...stores.base import StoreMisconfigured, StoreUnavailable
from ...text import one_line
from .._tables import misconfigured

# The errors of a driver that refuses a statement of ours before the database has it.
_DRIVER_ERRORS = (exc.DataError, exc.NotSupportedError, exc.ProgrammingError)
# The server allows no other connection.
_FULL = re.compile("too many (clients|connections)|connection slots|max_user_connections", re.I)
_LIMIT = "the option connections, such as ?connections=6 in the URL, limits those of a worker"


class BaseDatabase(ABC):
    """A table in a database, as far as errors are concerned: what they mean for a job."""

    # How the codes of some errors begin.
    #: The job was rolled back because of a concurrent transaction, and can be repeated.
    conflicts: ClassVar[tuple[str, ...]] = ()
    #: Those conflicts after which it needs a new connection: another server may execute it.
    unready: ClassVar[tuple[str, ...]] = ()
    #: Errors that end by themselves, or with an outage.
    transient: ClassVar[tuple[str, ...]] = ()
    #: It is not known whether a transaction was committed.
    unknown: ClassVar[tuple[str, ...]] = ()
    #: The bytes of a text that is read are not text.
    undecodable: ClassVar[tuple[str, ...]] = ()
    #: A statement of ours is wrong.
    faults: ClassVar[tuple[str, ...]] = ()

    def __init__(self, engine: Engine, table: Table) -> None:
        self.engine: Engine = engine
        self.table: Table = table
        # SQLAlchemy does not wrap errors of the driver that occur outside of a statement. No driver
        # wraps the error that a certificate file is missing.
        self._database_errors = (exc.DBAPIError, engine.dialect.loaded_dbapi.Error)
        # No connection of a site's pool is free, or one was lost in a transaction.
        lost = (exc.TimeoutError, exc.PendingRollbackError)
        self._errors = (*self._database_errors, *lost, OSError, StoreUnavailable)

    @abstractmethod
    def code(self, error: Exception) -> str:
        """Return the code that the database has given an error, or an empty string."""

    def is_conflict(self, error: BaseException) -> bool:
        """Return whether a job was rolled back because of a concurrent transaction."""
        return isinstance(error, exc.DBAPIError) and self.code(error).startswith(self.conflicts)

    def is_rolled_back(self, error: Exception) -> bool:
        """Return whether a group of adds was certainly rolled back, so that each is added alone."""
        if isinstance(error, exc.DBAPIError):
            code = self.code(error)
            is_unknown = error.connection_invalidated or code.startswith(self.unknown)
            return bool(code) and not is_unknown
        return isinstance(error, StoreMisconfigured)

    def is_fault(self, error: Exception) -> bool:
        """Return whether a statement of ours is wrong. Drivers find some of these errors."""
        code = self.code(error)
        return code.startswith(self.faults) or (not code and isinstance(error, _DRIVER_ERRORS))

    def is_outdated(self, error: exc.DBAPIError) -> bool:
        """Return whether a session has an earlier state of a table, a statement or a permission."""
        return False

    def explain_row(self, error: Exception, subject: str) -> Exception:
        """Return StoreMisconfigured if a row is not a plant, or else the error itself."""
        is_text = isinstance(error, UnicodeDecodeError) or self.code(error) in self.undecodable
        if is_text or "Could not decode to UTF-8" in self.message(error):  # SQLite has no code.
            fault = "a text is not UTF-8"
        elif isinstance(error, ValueError):
            fault = str(error)
        else:
            return error
        return _caused(misconfigured(self.table, f"{subject} is not a plant: {fault}"), None)

    def is_response(self, error: BaseException) -> bool:
        """Return whether the database itself has responded with an error."""
        if isinstance(error, exc.DBAPIError):
            return not error.connection_invalidated
        return isinstance(error, StoreMisconfigured) or not isinstance(error, self._errors)

    def breaks_connection(self, error: BaseException) -> bool:
        """Return whether a connection must be replaced after an error.

        Its state may be unknown. And a server may apply a new permission only to new connections.
        """
        if isinstance(error, exc.DBAPIError) and self.is_conflict(error):
            return self.code(error).startswith(self.unready)
        return not isinstance(error, exc.IntegrityError | exc.DataError | StoreMisconfigured)

    def explain(self, error: Exception) -> Exception:
        """Return the exception that a caller gets for an error.

        A fault in a statement of ours stays what it is, so that its traceback is in the log.
        """
        if isinstance(error, StoreUnavailable):
            return _caused(type(error)(*error.args), error.__cause__)
        if not isinstance(error, self._errors):
            return error
        is_lost = getattr(error, "connection_invalidated", False)
        if isinstance(error, self._database_errors) and not is_lost:
            if self.is_fault(error):
                return error
            code = self.code(error)
            if code and not code.startswith((*self.conflicts, *self.transient)):
                refusal = f"it refuses an operation: {self.describe(error)}"
                return _caused(misconfigured(self.table, refusal), error)
        return _caused(StoreUnavailable(self.describe(error)), error)

    def explain_connecting(self, error: Exception) -> Exception:
        """Return the exception that a caller gets if no lane can connect because of an error."""
        message = self.describe(error)
        if _FULL.search(message):
            message = f"{message} ({_LIMIT})"
        return _caused(StoreUnavailable(message), error)

    def describe(self, error: Exception) -> str:
        """Return the message of an error in one line. It has no values of a plant."""
        message = self.message(error)
        if self.code(error):
            # PostgreSQL repeats them after the first line, MySQL and MariaDB in "Duplicate entry
            # '...' for key", and in "Incorrect string value: '...' for column".
            message = re.sub("(entry|value:) '.*' for ", r"\1 for ", message, flags=re.DOTALL)
            message = message.partition("\n")[0]
        return one_line(message)

    def message(self, error: Exception) -> str:
        """Return the message of the driver."""
        return str(getattr(error, "orig", None) or error)


def _caused(meaning: Exception, error: BaseException | None) -> Exception:
    meaning.__cause__ = error
    return meaning
