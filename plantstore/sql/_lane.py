"""A lane: a thread, its connection, and the jobs that it executes. Each job has a caller."""

import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine, event

from ..stores.base import Plant, PlantExists
from ..stores.deadline import Limits
from ._tables import dropped
from .databases import Database, Run, close, copy_engine

# The maximum number of adds in one transaction, and that of the characters of all their plants. A
# character has up to four bytes, and some servers refuse a statement of more than one megabyte.
_GROUP_SIZE, _GROUP_WEIGHT = 100, 250_000

_T = TypeVar("_T")


class Job:
    """A function to execute with a connection, or a plant to add.

    It is executed in the context of its caller, in which a tracing agent keeps the request.

    :param expires: the time by the monotonic clock at which the caller gives up.
    """

    def __init__(self, expires: float, run: Run[Any]) -> None:
        self.expires, self.run, self.context = expires, run, copy_context()
        self.is_finished = False
        #: The result of the function, and the error if the job has failed.
        self.result: Any = None
        self.error: Exception | None = None
        self._waiting = Lock()
        self._waiting.acquire()

    def finish(self, error: Exception | None = None) -> None:
        """Let the caller continue. Call it once for each job."""
        self.error = error
        self.is_finished = True
        self._waiting.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the job, and return whether it has finished within some seconds."""
        return self._waiting.acquire(timeout=max(0, seconds))


class Add(Job):
    """A plant to add. Waiting adds of different ids are executed together."""

    #: Whether it must not be executed with others.
    is_alone = False

    def __init__(self, expires: float, plant: Plant) -> None:
        super().__init__(expires, lambda _: None)
        self.plant = plant


class WaitingJobs(SimpleQueue[Job | None]):
    """The jobs that wait for a lane. ``None`` ends the lanes."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = Lock()
        # The job that did not fit into the last group. It is executed next.
        self._next: list[Job | None] = []
        # The number of adds that the next group probably has.
        self._expected = 1

    def __len__(self) -> int:
        """Return the approximate number of jobs that wait."""
        return self.qsize() + len(self._next)

    def take(self) -> list[Job]:
        """Return the next job, or a group of adds. The list is empty at the end.

        If the last group was large, a lane waits until this one is as large, while more adds
        arrive: large groups need less processor time. Meanwhile, no other lane takes an add.
        """
        with self._turn:
            first = self._next.pop() if self._next else self.get()
            if isinstance(first, Add):
                return self._group(first)
            return [] if first is None else [first]

    def drain(self) -> Iterator[Job]:
        """Yield the jobs that wait and whose callers do, without waiting for others."""
        with suppress(Empty, IndexError):  # A lane may have taken the last one.
            while True:
                job = self._next.pop() if self._next else self.get_nowait()
                if job is not None and job.expires > time.monotonic():
                    yield job

    def _group(self, first: Add) -> list[Job]:
        group: dict[int, Job] = {first.plant.id: first}
        room = _GROUP_WEIGHT - first.plant.characters
        while len(group) < _GROUP_SIZE and not first.is_alone:
            try:
                other = self.get(len(group) < self._expected, Limits.next_add)
            except Empty:
                break
            if (
                not isinstance(other, Add)
                or other.is_alone
                or other.plant.id in group
                or other.plant.characters > room
            ):
                self._next.append(other)
                break
            group[other.plant.id] = other
            room -= other.plant.characters
        self._expected = max(len(group), self._expected - 1)
        return [*group.values()]


class Lane(Thread):
    """A thread, the connection that it holds, and its jobs."""

    def __init__(self, database: Database, serve: Callable[..., None], queue: WaitingJobs) -> None:
        # It does not delay the end of the process. Its context is empty, although an agent may let
        # a thread begin with that of the thread that starts it.
        run, arguments = Context().run, (serve, self, queue)
        super().__init__(target=run, args=arguments, name="plantstore store", daemon=True)
        self._database = database
        self._connection: Connection | None = None
        #: Another descriptor of the connection's socket, which stays open when the driver closes
        #: its own. So another thread can use it.
        self.socket: socket.socket | None = None
        self._pid = os.getpid()
        self.jobs: list[Job] = []
        self.is_connecting = True
        #: Whether it has been ended: it does not connect again.
        self.is_over = False
        #: When it began to connect, or to execute its jobs.
        self.began = time.monotonic()
        #: When its connection was opened, or has had a response last.
        self.proven = 0.0

    @property
    def is_free(self) -> bool:
        """Whether it waits for jobs, or is about to do so."""
        return not self.is_connecting and (not self.jobs or self.jobs[-1].is_finished)

    @property
    def is_lost(self) -> bool:
        """Whether there is no connection, or the server has closed it."""
        if self._connection is None or self._connection.invalidated:
            return True
        if self.socket is None:
            return False
        # If there is data between two statements, it is normally the end of the connection.
        # This poll never waits. A read from the socket could: a process may set a default timeout.
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))

    def shut_down(self) -> None:
        """Let the thread that waits for the server continue, with an error."""
        other = self.socket
        if other is not None and self._pid == os.getpid():  # A child has the same connection.
            with suppress(OSError):
                other.shutdown(socket.SHUT_RDWR)

    # The thread of the lane

    def connect(self) -> Exception | None:
        """Open the connection, or return why this is not possible. This may take any time."""
        try:
            self._open()
        except Exception as error:  # noqa: BLE001  # The callers get it.
            return error
        self.proven, self.is_connecting = time.monotonic(), False
        return None

    def execute(self, jobs: list[Job]) -> list[Add]:
        """Execute a job or a group of adds. Return the adds that must be executed alone."""
        self.began = now = time.monotonic()
        self.jobs = jobs = [job for job in jobs if job.expires > now]
        alone = list[Add]()
        try:
            if jobs and isinstance(jobs[0], Add):
                alone = self._add(cast(list[Add], jobs))
            elif jobs:
                jobs[0].result = self._run(jobs[0].context, jobs[0].run, jobs[0].expires)
                jobs[0].finish()
            has_responded = bool(jobs)
        except Exception as error:  # noqa: BLE001  # The callers get it.
            for job in jobs:
                job.finish(self._database.explain(error))
            has_responded = self._database.is_response(error)
        if has_responded:
            self.proven = time.monotonic()
        self.jobs = []
        return alone

    def abandon(self) -> None:
        """Close the connection after an error."""
        self.shut_down()  # To send the end to the server could take any time.
        self.close()

    def close(self) -> None:
        """Close the connection, without waiting for a response of the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # Otherwise, the server would have to respond to a rollback.
            close(connection)
        other, self.socket = self.socket, None
        if other is not None:
            other.close()

    def _open(self) -> Connection:
        if self._connection is None:
            try:
                engine = self._database.connected or self._new_engine()
                self._connection = engine.connect()
                self._database.connected = engine
                self._database.watch(self._connection)
            except Exception as error:
                self.close()  # A connection that is not complete must not be used.
                # The frames of a driver refer to the error: its connection would stay open.
                for failure in filter(None, (error, error.__cause__)):
                    failure.__traceback__ = None
                raise
        return self._connection

    def _new_engine(self) -> Engine:
        """Return an engine for this lane alone, until it has connected.

        With SQLAlchemy, each thread waits for the first connection of an engine, which may hang.
        """
        engine = copy_engine(self._database.engine)
        event.listen(engine, "connect", partial(_note_socket, self._database), insert=True)
        return engine

    def _add(self, adds: list[Add]) -> list[Add]:
        """Insert the plants of adds, which have different ids. Return those to execute alone."""
        is_alone = len(adds) == 1
        # In the order of the ids, so that groups cannot deadlock.
        insert = partial(self._database.add, plants=sorted([add.plant for add in adds]))
        try:
            expires = adds[0].expires if is_alone else 0
            added, existing = self._run(adds[0].context, insert, expires)
        except Exception as error:
            if is_alone or not self._database.is_rolled_back(error):
                raise
            added, existing = (), ()
        others = list[Add]()
        for add in adds:
            if add.plant.id in added:
                add.finish()
            elif add.plant.id in existing:
                add.finish(PlantExists(add.plant.id))
            elif is_alone:
                add.finish(dropped(self._database.table))
            else:
                add.is_alone = True
                others.append(add)
        return others

    def _run(self, context: Context, run: Run[_T], expires: float) -> _T:
        """Execute a function in a context, again after conflicts."""

        def attempt() -> _T:
            connection = self._open()
            try:
                return self._database.execute(connection, run)
            except Exception as error:
                if connection.invalidated or self._database.breaks_connection(error):
                    self.abandon()  # The server may not respond to a rollback.
                raise

        return context.run(self._database.retry, attempt, expires)


def _note_socket(database: Database, driver: Any, _record: object) -> None:
    """Let a lane that connects know its socket before SQLAlchemy sends its first statement."""
    lane, descriptor = current_thread(), database.descriptor(driver)
    if isinstance(lane, Lane) and lane.socket is None and descriptor is not None:
        try:
            lane.socket = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # There are too many open files. SQLAlchemy would leave it open.
            driver.close()
            raise
        if lane.is_over:
            lane.shut_down()
