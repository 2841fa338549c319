"""The meaning of the errors of a database."""

import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Table, exc

from ..stores.base import StoreMisconfigured, StoreUnavailable
from ..stores.deadline import Limits
from ._statements import Run, Statements
from .databases import Database, misconfigured

#: Executes a function with a connection, the same for each call.
Session = Callable[[Run[Any]], Any]

# The errors of SQLAlchemy, not of a driver, after which a later job can succeed: no connection of a
# pool is free, or a connection was lost in a transaction.
_LOST = (exc.TimeoutError, exc.PendingRollbackError)

_T = TypeVar("_T")


class Failures:
    """What the errors of an engine mean for a job."""

    def __init__(self, engine: Engine, database: Database) -> None:
        self._url, self.database = engine.url, database
        # SQLAlchemy does not wrap errors of the driver that occur outside of a statement. No driver
        # wraps the error that a certificate file is missing.
        driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._database_errors = (exc.DBAPIError, driver_error)
        self._errors = (*self._database_errors, *_LOST, OSError, StoreUnavailable)

    def is_response(self, error: BaseException) -> bool:
        """Return whether the database itself has responded with an error."""
        if isinstance(error, exc.DBAPIError):
            return not error.connection_invalidated
        return isinstance(error, StoreMisconfigured) or not isinstance(error, self._errors)

    def breaks_connection(self, error: BaseException) -> bool:
        """Return whether a connection must be replaced after an error.

        Its state may be unknown. And a server may remember in it that a permission was missing.
        """
        if isinstance(error, exc.DBAPIError) and self.database.is_conflict(error):
            return self.database.code(error).startswith(self.database.unready)
        if isinstance(error, exc.IntegrityError | exc.DataError):
            return False
        return not isinstance(error, StoreMisconfigured)

    def explain(self, error: Exception, table: Table) -> Exception:
        """Return the exception that a caller gets for an error.

        A fault in a statement of ours stays what it is, so that its traceback is in the log.
        """
        if isinstance(error, StoreUnavailable):
            return _caused(type(error)(*error.args), error.__cause__)
        if not isinstance(error, self._errors):
            return error
        is_lost = getattr(error, "connection_invalidated", False)
        if isinstance(error, self._database_errors) and not is_lost:
            if self.database.is_fault(error):
                return error
            if not self.database.is_transient(error):
                problem = f"it refuses an operation: {self.describe(error)}"
                return _caused(misconfigured(table, problem), error)
        return _caused(StoreUnavailable(self.describe(error)), error)

    def explained(self, statements: Statements, run: Callable[[], _T]) -> _T:
        """Call a function. If it fails, raise the exception that a caller gets."""
        try:
            return run()
        except Exception as error:  # noqa: BLE001  # The caller gets it.
            # A variable for the exception would keep the connection in use: it has a traceback.
            raise self.explain(error, statements.table)  # noqa: B904  # It has a cause.

    def checked(self, connection: Connection, run: Run[_T]) -> _T:
        """Execute a function with a connection, and check that its commits are durable.

        :raises StoreUnavailable: if one is not.
        """
        try:
            return run(connection)
        finally:
            if not connection.invalidated:
                self.database.check_commits(connection)

    def step(self, statements: Statements, connection: Connection, run: Run[_T]) -> _T:
        """Execute a function as both of these do."""
        return self.explained(statements, partial(self.checked, connection, run))

    def describe(self, error: Exception) -> str:
        """Return the message of an error in one line, with what an operator needs to know."""
        return self.database.describe(error, self._url)

    def retry(self, attempt: Callable[[], _T], expires: float) -> _T:
        """Call a function, and repeat it after conflicts, as long as there is time.

        If its prepared statements are outdated, it is repeated once, on a new connection.
        """
        attempts = 0
        while True:
            attempts += 1
            try:
                return attempt()
            except exc.DBAPIError as error:
                pause = random.uniform(0, Limits.pause * attempts)  # noqa: S311
                is_late = time.monotonic() + pause + Limits.last_attempt > expires
                is_outdated = attempts == 1 and self.database.is_outdated(error)
                if is_late or not (is_outdated or self.database.is_conflict(error)):
                    raise
            time.sleep(pause)


def _caused(meaning: Exception, error: BaseException | None) -> Exception:
    meaning.__cause__ = error
    return meaning
