"""An engine of our own: threads of the store execute the jobs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import TypeVar

from sqlalchemy import Connection, Engine

from ..stores.base import Plant, PlantExists, StoreUnavailable
from ..stores.deadline import remaining
from ._failures import Failures, Session
from ._held import HeldConnection, note_sockets
from ._jobs import Add, Job
from ._lanes import Lanes, start_thread
from ._statements import Statements
from .engines import Backend, dropped

# The number of threads that write at a time.
_WRITING = 4
#: The maximum number while some of them are stuck.
MOST_WRITING = 8
#: The maximum number of threads that read at a time.
READING = 8
# The number of threads that read an SQLite file at a time.
_READING_FILE = 4
# The seconds without a response after which jobs are refused at once.
_PATIENCE = 2.0
# The seconds after which a connection without a response may be lost, and between two checks.
_LOST, _INTERVAL = 5.0, 1.0
# The seconds after which a connection is lost if others have had a response since, or if it is not
# ready yet. On a slow network, it may take so long to connect, and to check the table.
_CERTAINLY_LOST = 30.0
_NO_TIME = "the request has waited too long for a thread of the server"
_CONNECTION_LOST = "the connection was lost"
_TOO_LATE = "the connection to the database was open too late"

_T = TypeVar("_T")


class OwnConnections:
    """The connections of an engine of our own. Threads of the store hold them.

    :param engine: the engine, which has no pool.
    :param backend: the entry of the engine.
    :param timeout: the seconds that a job may take.
    """

    def __init__(self, engine: Engine, backend: Backend, timeout: float) -> None:
        self.engine = engine
        self.backend = backend
        self.timeout = timeout
        self._failures = Failures(engine, backend)
        note_sockets(engine, backend)
        self._reset()

    def _reset(self) -> None:
        one_writer = self.backend.one_writer
        self._writing = self._lanes(*((1, 1) if one_writer else (_WRITING, MOST_WRITING)))
        self._reading = self._lanes(*[_READING_FILE if one_writer else READING] * 2)
        self._next_check = 0.0
        self._probing: HeldConnection | None = None
        self._probe_began = 0.0

    def _lanes(self, usual: int, most: int) -> Lanes:
        # A file that is locked is not one that has failed.
        patience = self.timeout - 0.5 if self.backend.one_writer else _PATIENCE
        return Lanes(self._execute, self._connection, usual, most, patience)

    def _connection(self) -> HeldConnection:
        return HeldConnection(self.engine, self.backend)

    def add(self, statements: Statements, plant: Plant) -> None:
        """Insert a plant, and return when the database has committed it.

        :raises PlantExists: if a plant with its id exists.
        :raises StoreUnavailable: for every error of the database, and after the deadline.
        """
        self._wait(self._writing, Add(statements, plant, self._expires()))

    def call(
        self, statements: Statements, run: Callable[[Connection], _T], *, writes: bool = False
    ) -> _T:
        """Execute a function with a connection, and return its result.

        :param writes: whether it changes the database.
        :raises StoreUnavailable: for every error of the database, and after the deadline.
        """
        return self._call(self._writing if writes else self._reading, statements, run)

    @contextmanager
    def session(self, statements: Statements) -> Iterator[Session]:
        """Provide a function that executes functions with one connection, each of them once.

        :raises StoreUnavailable: for every error of the database, and after the deadline.
        """
        if self.backend.one_writer:  # A file needs no thread: it always responds.
            with self._failures.explained(statements, self.engine.connect) as connection:
                self.backend.watch(connection)
                yield lambda run: self._failures.explained(
                    statements, partial(self._failures.checked, connection, run)
                )
            return
        lanes, used = self._lanes(1, 1), list[Connection]()

        def once(run: Callable[[Connection], _T], connection: Connection) -> _T:
            used.append(connection)
            if connection is not used[0]:
                raise StoreUnavailable(_CONNECTION_LOST)
            # An exception that has been explained is not taken for a conflict, and not repeated.
            return self._failures.explained(statements, partial(run, connection))

        try:
            yield lambda run: self._call(lanes, statements, partial(once, run))
        finally:
            lanes.close()

    def close(self) -> None:
        """Close the idle connections. Those in use are closed when their jobs end."""
        self._writing.close()
        self._reading.close()

    def after_fork(self) -> None:
        """Forget the threads of the parent process.

        Python keeps the stacks of these threads. They refer to the connections, so none is closed.
        """
        self._reset()

    def _expires(self) -> float:
        seconds = remaining(self.timeout)
        if not seconds:
            raise StoreUnavailable(_NO_TIME)
        return time.monotonic() + seconds

    def _call(self, lanes: Lanes, statements: Statements, run: Callable[[Connection], _T]) -> _T:
        job = Job(statements, run, self._expires())
        self._wait(lanes, job)
        result: _T = job.result
        return result

    def _wait(self, lanes: Lanes, job: Job) -> None:
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + _INTERVAL
            self._check_connections(now)
        lanes.call(job)

    def _check_connections(self, now: float) -> None:
        """Shut down connections that are lost. If all may be, open another one."""
        kinds = self._writing, self._reading
        for lanes in kinds:
            lost = lanes.waiting_since(lanes.responded - _CERTAINLY_LOST)
            for held in lanes.waiting_since(now - _CERTAINLY_LOST):
                # SQLAlchemy prepares the first connection, and all others wait for it.
                if held.is_opening or held in lost:
                    held.shut_down()
        probing = self._probing
        if probing is not None and self._probe_began < now - _CERTAINLY_LOST:
            probing.shut_down()
        elif probing is None and any(lanes.are_stuck(now - _LOST) for lanes in kinds):
            with suppress(RuntimeError):  # The next check tries again.
                start_thread(self._probe)

    def _execute(self, held: HeldConnection, jobs: list[Job]) -> bool:
        """Execute a job or a group of adds; return whether the database has responded."""
        try:
            self._perform(held, jobs)
        except Exception as error:  # noqa: BLE001  # The callers get it.
            for job in jobs:
                job.finish(self._failures.explain(error, job.statements.table))
            # The server has opened a connection, although too late: this is a response, too.
            return self._failures.is_response(error) or error.args == (_TOO_LATE,)
        return True

    def _perform(self, held: HeldConnection, jobs: list[Job]) -> None:
        adds = [job for job in jobs if isinstance(job, Add)]
        if adds:
            self._add(held, adds)
        else:
            (job,) = jobs
            job.result = self._retry(held, job, job.run)
            job.finish()

    def _add(self, held: HeldConnection, adds: list[Add]) -> None:
        """Insert the plants of adds, which have different ids."""
        # In the order of the ids, so that groups cannot deadlock.
        insert = partial(adds[0].statements.insert, plants=sorted(add.plant for add in adds))
        is_alone = len(adds) == 1
        try:
            if is_alone:
                added, existing = self._retry(held, adds[0], insert)
            else:
                added, existing = self._attempt(held, adds[-1], insert)
        except Exception as error:
            if is_alone or not self._failures.is_rolled_back(error):
                raise
            added, existing = (), ()
        for add in adds:
            if add.plant.id in added:
                add.finish()
            elif add.plant.id in existing:
                add.finish(PlantExists(add.plant.id))
            elif is_alone:
                add.finish(dropped(add.statements.table))
        self._writing.repeat([add for add in adds if not add.is_finished])

    def _retry(self, held: HeldConnection, job: Job, run: Callable[[Connection], _T]) -> _T:
        attempt = partial(self._attempt, held, job, run)
        return self._failures.retry(attempt, job.expires)

    def _attempt(self, held: HeldConnection, job: Job, run: Callable[[Connection], _T]) -> _T:
        """Execute a function, and replace the connection after an error that may have broken it.

        :param job: the job, or the last one of a group.
        """
        connection = self._connect(held)
        if time.monotonic() > job.expires:
            raise StoreUnavailable(_TOO_LATE)  # To connect has taken longer than the caller waits.
        try:
            return self._failures.checked(connection, run)
        except Exception as error:
            if self._failures.breaks_connection(error):
                held.close()
            if not self._failures.is_conflict(error):
                job.statements.is_checked = False
            raise

    def _connect(self, held: HeldConnection) -> Connection:
        try:
            connection, is_new = held.get()
        except Exception as error:
            # The frames of a driver refer to the error. Its connection would stay open with them.
            for failure in filter(None, (error, error.__cause__)):
                failure.__traceback__ = None
            raise StoreUnavailable(self._failures.describe(error)) from error
        if is_new:
            self._shut_down(held.server, self._writing, self._reading)
        return connection

    def _probe(self) -> None:
        """Open one more connection while all threads are stuck. It may lead to another server."""
        self._probe_began = time.monotonic()
        self._probing = held = self._connection()
        with suppress(Exception):  # The next probe tries again.
            self._connect(held).exec_driver_sql("SELECT 1")
            # The server responds, so reads that have had no response have lost their connections.
            # Adds may still wait for a standby: another add shows it.
            self._shut_down(None, self._reading)
            self._writing.allow_attempt()
        held.close()
        self._probing = None

    def _shut_down(self, server: object, *lanes: Lanes) -> None:
        """Shut down connections without a response for long that do not lead to a server.

        :param server: the address of the server.
        """
        moment = time.monotonic() - _LOST
        for held in chain.from_iterable(kind.waiting_since(moment) for kind in lanes):
            if held.server != server:
                held.shut_down()
