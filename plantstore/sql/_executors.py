"""Chooses who executes the jobs of an engine: the lanes of a store, or the threads of a site."""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import TypeVar, cast
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Connection, Engine, event

from ..stores.base import Plant, StoreUnavailable
from ..stores.deadline import Limits, remaining
from ._failures import Failures, Session
from ._jobs import Add, Job
from ._lane import note_socket
from ._lanes import Lanes
from ._site import SiteConnections
from ._statements import Run, Statements
from .databases import Database, copy_engine, database_of

# The number of lanes that read an SQLite file at a time.
_READING_FILE = 4
_NO_TIME = "the request has waited too long for a thread of the server"
_CONNECTION_LOST = "the connection was lost"

_T = TypeVar("_T")


class OwnConnections:
    """The connections of an engine of our own. Lanes hold them.

    :param timeout: the seconds that a job may take.
    :param connections: the maximum number of connections to a server.
    """

    def __init__(
        self, engine: Engine, database: Database, timeout: float, connections: int
    ) -> None:
        self.engine = self._latest = engine
        self.database = database
        self.timeout = timeout
        self._connections = connections
        self._failures = Failures(engine, database)
        event.listen(engine, "connect", partial(note_socket, database), insert=True)
        self.after_fork()

    def add(self, statements: Statements, plant: Plant) -> None:
        """Insert a plant, and return when the database has committed it.

        :raises PlantExists: if a plant with its id exists.
        :raises StoreUnavailable: for every error of the database, and after the deadline.
        """
        self._writing.call(Add(statements, self._expires(), plant))

    def call(self, statements: Statements, run: Run[_T], *, writes: bool = False) -> _T:
        """Execute a function with a connection, and return its result.

        :param writes: whether it changes the database.
        :raises StoreUnavailable: for every error of the database, and after the deadline.
        """
        lanes = self._writing if writes else self._reading
        return cast(_T, lanes.call(Job(statements, self._expires(), run)))

    @contextmanager
    def session(self, statements: Statements) -> Iterator[Session]:
        """Provide a function that executes functions with one connection, each of them once.

        :raises StoreUnavailable: for every error of the database, and after the deadline.
        """
        if self.database.one_writer:  # SQLite runs in this process: no lane is needed.
            with self._failures.explained(statements, self.engine.connect) as connection:
                self.database.watch(connection)
                yield partial(self._failures.step, statements, connection)
            return
        lanes, used = self._lanes(1, 1, math.inf), list[Connection]()

        def once(run: Run[_T], connection: Connection) -> _T:
            used.append(connection)
            if connection is not used[0]:
                raise StoreUnavailable(_CONNECTION_LOST)
            # An exception that has been explained is not taken for a conflict, and not repeated.
            return self._failures.explained(statements, partial(run, connection))

        try:
            yield lambda run: lanes.call(Job(statements, self._expires(), partial(once, run)))
        finally:
            lanes.close()

    def close(self) -> None:
        """Close the connections, as :meth:`Lanes.close` does."""
        self._writing.close()
        self._reading.close()

    def after_fork(self) -> None:
        """Start without lanes: the threads of the parent process do not exist in this one."""
        # Python keeps the stacks of those threads, and so their connections: none is closed here.
        if self.database.one_writer:
            # A file that is locked is not one that has failed. And another lane would not help.
            silence = self.timeout - Limits.look
            self._writing = self._lanes(1, 1, silence)
            self._reading = self._lanes(_READING_FILE, _READING_FILE, silence)
        else:
            # By default, four write and eight read, and twelve of each kind while some are stuck.
            most = self._connections // 2
            self._writing = self._lanes(max(1, most // 3), most, Limits.silence)
            self._reading = self._lanes(max(1, 2 * most // 3), most, Limits.silence)
            self._writing.others, self._reading.others = self._reading, self._writing

    def _lanes(self, usual: int, most: int, silence: float) -> Lanes:
        return Lanes(self._engine_for, self._failures, usual, most, silence)

    def _engine_for(self, others_are_stuck: bool) -> Engine:
        """Return the engine for a new lane.

        With SQLAlchemy, each thread waits until the first connection of an engine is complete. If
        it hangs, other lanes use another engine.
        """
        if others_are_stuck and self._latest.dialect.server_version_info is None:
            self._latest = copy_engine(self._latest)
        return self._latest

    def _expires(self) -> float:
        seconds = remaining(self.timeout)
        if not seconds:
            raise StoreUnavailable(_NO_TIME)
        return time.monotonic() + seconds


Executor = OwnConnections | SiteConnections

# The executor of each engine. It refers to the engine: a reference to it would keep both in memory.
_executors: WeakKeyDictionary[Engine, ref[Executor]] = WeakKeyDictionary()
_lock = Lock()


def executor_of(engine: Engine) -> Executor:
    """Return the executor of an engine, the same for all its stores.

    :raises ValueError: if the database is not one of those that :mod:`.databases` knows.
    """
    with _lock:
        executor = _executors.get(engine, lambda: None)()
        if executor is None:
            database, own = database_of(engine), engine.get_execution_options().get("plantstore")
            executor = (
                OwnConnections(engine, database, *own) if own else SiteConnections(engine, database)
            )
            _executors[engine] = ref(executor)
        return executor


def _all() -> list[Executor]:
    return [executor for known in _executors.values() if (executor := known()) is not None]


def _before_fork() -> None:
    for executor in _all():
        # With an inherited connection, SQLite misjudges its locks: a log in use is deleted.
        if executor.database.one_writer:
            executor.close()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603
    _lock = Lock()
    for executor in _all():
        executor.after_fork()


if sys.platform != "win32":  # pragma: no branch
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
