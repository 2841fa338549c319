"""The lanes of a store: threads that hold its connections, and execute the jobs of callers.

**Who executes what.** A *caller*, the thread of a request, puts a job into the queue, and waits for
its result until its deadline. Each *lane* is a thread with a connection. It takes jobs only while
the connection is open: so no job waits for a lane that connects, as long as another one is free.
There are no other threads and no timers: the callers look at the lanes, four times a second.

A lane is busy while it connects, and while it executes jobs::

      it begins                  2 seconds later              30 seconds later
    ----|------------------------------|-----------------------------|------------------>
        busy                           stuck: another lane           shut down: it connects
                                       may take its place            again for the next job

All lanes for one kind of jobs::

                    a lane is stuck, and none has had a response since it began
    responding -----------------------------------------------------------------> silence
               <-----------------------------------------------------------------
                                 the first response of any lane

During silence, one job each second is let through, the *probe*, for which a lane connects. The
others are refused: at once, or if they wait, at the next look of their callers. Only one stuck lane
each 30 seconds is shut down, the oldest: if the server allows no other connection, it makes room.

A lane that has had no response since a stuck one began connects again before its next job: both
connections may lead to a server that is gone.

The lanes in the list belong to the store, and close() empties it. A lane that is not in it ends
after its jobs. Until then it is a daemon thread: the process may end without it.

A forked process begins without lanes. The connections to SQLite files are closed before a fork,
because a child would misjudge their locks. If one is in use, the child refuses to use any file.
"""

import math
import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context
from functools import partial
from threading import RLock, Thread, current_thread
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, event

from ..stores.base import Plant, PlantExists, StoreMisconfigured, StoreUnavailable
from ..stores.deadline import remaining
from ._jobs import Add, Job, WaitingJobs
from ._limits import Limits
from ._tables import dropped
from .databases import Database, Run, close, copy_engine

_NO_RESPONSE = "the database does not respond"
_LATE = "the database has not responded in time"
_INHERITED = "this process was forked while its parent used the SQLite file: start another one"

_T = TypeVar("_T")


class Lanes:
    """The queue for jobs of one kind, and the lanes that execute them.

    :param normal_size: the maximum number of lanes while none of them is stuck.
    :param max_size: the maximum number of lanes while some of them are stuck.
    :param stuck_after: the seconds after which a lane that is busy is stuck.
    """

    def __init__(
        self, database: Database, normal_size: int, max_size: int, stuck_after: float
    ) -> None:
        self.database = database
        self._normal_size, self._max_size, self._stuck_after = normal_size, max_size, stuck_after
        self._queue = WaitingJobs()
        # For everything below. The garbage collector may close a store in a thread that has it.
        self._lock = RLock()
        self._lanes: list[Lane] = []
        #: When a lane has had a response last.
        self.last_response = 0.0
        # When the last probe was let through, and when a job that came has looked at the lanes.
        self._last_probe = self._last_look = -math.inf
        # When a lane may be started after another one could not connect, or shut down in silence.
        self._next_start = self._next_shutdown = 0.0

    # The thread of a caller

    def call(self, job: Job) -> Any:
        """Let a lane execute a job, and return its result, or raise the reason why it has none."""
        try:
            self._enter(job)
            while not job.wait():
                now = time.monotonic()
                if now >= job.expires:
                    raise StoreUnavailable(_LATE)
                with self._lock:
                    self._admit(job, now, _LATE)
        except BaseException:
            job.expires = 0.0  # So that it is not executed later.
            raise
        try:
            if job.error is not None:
                raise job.error
            return job.result
        finally:
            del job  # Otherwise the job, its error and this frame would refer to each other.

    def close(self) -> None:
        """Let the lanes end, and wait for those that are free. The others end after their jobs."""
        with self._lock:
            lanes, self._lanes = self._lanes, []
            queue, self._queue = self._queue, WaitingJobs()
            self._end_queue(queue)
        _wait_for(lane for lane in lanes if lane.busy_since == math.inf)

    def _enter(self, job: Job) -> None:
        with self._lock:
            now = time.monotonic()
            # With all lanes and a new response, there is no silence, and nothing to start.
            is_known = now < min(self.last_response, self._last_look) + Limits.look
            if not is_known or len(self._lanes) < self._normal_size:
                self._last_look = now
                self._admit(job, now, _NO_RESPONSE, arriving=1)
            if not self._lanes:
                raise StoreUnavailable("cannot start a thread: the system has no resources for it")
            self._queue.put(job)

    def _admit(self, job: Job, now: float, refusal: str, arriving: int = 0) -> None:
        """Start a lane if a job needs one. During silence, only a probe does.

        :param arriving: the number of jobs that wait, and are not in the queue yet.
        :raises StoreUnavailable: if there is silence, and the job is no probe. But shortly after a
            probe it may wait until the next look: so an operation that only takes longer than
            others is not taken for an outage.
        """
        stuck = self._stuck(now)
        if stuck:
            # A lane that connects matters only if a job waits for it.
            since = [lane.busy_since for lane in stuck if lane.jobs or self._queue]
            is_silent = self.last_response < max(since, default=0.0)
            self._shut_down_lost(stuck, now, is_silent=is_silent)
            if is_silent and not self._is_probe(job, now):
                if now < self._last_probe + Limits.look:
                    return
                raise StoreUnavailable(refusal)
        self._start_lane(now, stuck, arriving)

    def _is_probe(self, job: Job, now: float) -> bool:
        """Return whether a job is the last probe. Each second, another job becomes one."""
        if job.probed_at != self._last_probe and now >= self._last_probe + Limits.probe:
            job.probed_at = self._last_probe = now
        return job.probed_at == self._last_probe

    def _shut_down_lost(self, stuck: list["Lane"], now: float, *, is_silent: bool) -> None:
        lost = [lane for lane in stuck if lane.socket and lane.busy_since < now - Limits.lost]
        if is_silent:  # Only the oldest one.
            oldest = sorted(lost, key=lambda lane: lane.busy_since)[:1]
            lost = oldest if now >= self._next_shutdown else []
        for lane in lost:
            lane.shut_down()
            self._next_shutdown = now + Limits.lost

    # The thread of a caller or of a lane

    def _stuck(self, now: float) -> list["Lane"]:
        limit = now - self._stuck_after
        return [lane for lane in self._lanes if lane.busy_since <= limit]

    def _size(self, stuck: list["Lane"]) -> int:
        """Return the maximum number of lanes, which is higher while some of them are stuck."""
        return min(self._normal_size + len(stuck), self._max_size)

    def _start_lane(self, now: float, stuck: list["Lane"], arriving: int = 0) -> None:
        """Start a lane if more jobs wait than lanes are free, and if there may be another one."""
        lanes = self._lanes
        if len(lanes) >= self._size(stuck) or (lanes and now < self._next_start):
            return
        if sum([lane.busy_since == math.inf for lane in lanes]) < len(self._queue) + arriving:
            lane = Lane(self, self._serve, self._queue)
            lanes.append(lane)
            try:
                lane.start()
            except RuntimeError:  # The system has no resources for another thread.
                lanes.remove(lane)

    def _end_queue(self, queue: WaitingJobs) -> None:
        """Let the lanes of a closed store end, one after the other, and others do its jobs."""
        for job in queue.drain():
            self._queue.put(job)
        queue.put(None)

    # The thread of a lane

    def _serve(self, lane: "Lane", queue: WaitingJobs) -> None:
        """Execute jobs as long as the lane is needed and can connect."""
        failure: Exception | None = None
        if self.database.one_writer:
            _lanes_of_files.add(lane)
        try:
            failure = lane.connect()
            while failure is None and self._is_needed(lane):
                failure = self._execute_next(lane, queue)
        except Exception as error:  # noqa: BLE001  # It is a fault of ours. The callers get it.
            failure = error
        finally:
            lane.close()
            _lanes_of_files.discard(lane)
            self._leave(lane, queue, failure)

    def _execute_next(self, lane: "Lane", queue: WaitingJobs) -> Exception | None:
        """Execute the next jobs, or connect again, and return why this is not possible."""
        queue.take(lane.jobs)
        if lane.jobs and not self._is_usable(lane):
            lane.busy_since = time.monotonic()
            self._put_back(lane)
            return lane.connect()
        lane.execute()
        if lane.jobs:
            self._put_back(lane)
        return None

    def _is_needed(self, lane: "Lane") -> bool:
        is_normal = lane in self._lanes[: self._normal_size]
        return is_normal or lane in self._lanes[: self._size(self._stuck(time.monotonic()))]

    def _is_usable(self, lane: "Lane") -> bool:
        """Return whether it is connected, and has had a response since the stuck lanes began."""
        limit = time.monotonic() - self._stuck_after
        return not lane.is_closed and (
            lane.last_response > limit
            or not any(lane.last_response < other.busy_since <= limit for other in self._lanes)
        )

    def _put_back(self, lane: "Lane") -> None:
        with self._lock:
            self._queue.put_back(lane.jobs)
            lane.jobs = []
            now = time.monotonic()
            self._start_lane(now, self._stuck(now))

    def _leave(self, lane: "Lane", queue: WaitingJobs, failure: Exception | None) -> None:
        """End a lane. If no other one can connect either, the jobs that wait have failed.

        A lane that fails with jobs has a fault of ours: these jobs and those that wait have failed.
        """
        now, failed = time.monotonic(), lane.jobs
        with self._lock:
            if lane in self._lanes:
                self._lanes.remove(lane)
            else:
                self._end_queue(queue)  # A job came back after close() had taken the others.
            stuck = self._stuck(now)
            is_last = queue is self._queue and len(self._lanes) == len(stuck)
            if failure and (failed or is_last):
                failed += queue.drain()
            elif failure:
                self._next_start = now + Limits.probe
            self._start_lane(now, stuck)
        for job in failed:
            job.finish(error=self.database.explain(cast(Exception, failure)))


class Lane(Thread):
    """A thread, the connection that it holds, and its jobs."""

    def __init__(self, lanes: Lanes, serve: Callable[..., None], queue: WaitingJobs) -> None:
        # The process may end without this thread. And a tracing agent may let a thread begin with
        # the context of the thread that starts it: this one begins with an empty context.
        super().__init__(
            target=Context().run, args=(serve, self, queue), name="plantstore store", daemon=True
        )
        self.lanes, self._database = lanes, lanes.database
        self._connection: Connection | None = None
        #: A copy of the connection's socket, for other threads: the driver may close its own.
        self.socket: socket.socket | None = None
        self.pid = os.getpid()
        #: The jobs that it has taken, and must finish or put back.
        self.jobs: list[Job] = []
        #: Since when it connects or executes jobs. It is infinite while the lane is free.
        self.busy_since = time.monotonic()
        #: When its connection was opened, or has had a response last.
        self.last_response = 0.0

    @property
    def is_closed(self) -> bool:
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
        if other is not None:
            with suppress(OSError):
                other.shutdown(socket.SHUT_RDWR)

    # The thread of the lane

    def connect(self) -> Exception | None:
        """Open a new connection, or return why this is not possible. This may take any time."""
        self._drop_connection()
        try:
            self._open()
        except Exception as error:  # noqa: BLE001  # The callers get it.
            return self._database.explain_connecting(error)
        self.last_response, self.busy_since = time.monotonic(), math.inf
        return None

    def execute(self) -> None:
        """Execute its jobs. Only adds that must be executed alone are left."""
        now = time.monotonic()
        self.jobs = jobs = [job for job in self.jobs if job.expires > now]
        if not jobs:
            return
        self.busy_since = now
        try:
            if isinstance(jobs[0], Add):
                self._add(cast("list[Add]", jobs))
            else:
                result = self._run(jobs[0].context, jobs[0].run, jobs[0].expires)
                self._note_response()
                jobs[0].finish(result)
        except Exception as error:  # noqa: BLE001  # The callers get it.
            if self._database.is_response(error):
                self._note_response()
            self.busy_since = math.inf
            for job in jobs:
                job.finish(error=self._database.explain(error))
        self.jobs = [job for job in jobs if not job.is_done]

    def close(self) -> None:
        """Close the connection, without waiting for a response of the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # Otherwise, the server would have to respond to a rollback.
            close(connection)
        other, self.socket = self.socket, None
        if other is not None:
            other.close()

    def _drop_connection(self) -> None:
        self.shut_down()  # To send the end to the server could take any time.
        self.close()

    def _note_response(self) -> None:
        """Be free before the callers continue: the next job of one of them needs no other lane."""
        self.last_response = self.lanes.last_response = time.monotonic()
        self.busy_since = math.inf

    def _open(self) -> Connection:
        if self._connection is None:
            try:
                engine = self._database.shared_engine
                if engine is None:
                    # Its own: all threads wait for the first connection of an engine.
                    engine = copy_engine(self._database.engine)
                    note = partial(_note_socket, self._database)
                    event.listen(engine, "connect", note, insert=True)
                self._connection = engine.connect()
                self._database.shared_engine = engine
                self._database.watch(self._connection)
            except BaseException as error:
                self.close()  # A connection that is not complete must not be used.
                # The frames of a driver refer to the error: its connection would stay open.
                for failure in filter(None, (error, error.__cause__)):
                    failure.__traceback__ = None
                raise
        return self._connection

    def _add(self, adds: list[Add]) -> None:
        """Insert the plants of adds, which have different ids, and finish all but refused ones."""
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
        self._note_response()
        for add in adds:
            if add.plant.id in added:
                add.finish()
            elif add.plant.id in existing:
                add.finish(error=PlantExists(add.plant.id))
            elif is_alone:
                add.finish(error=dropped(self._database.table))
            else:
                add.is_alone = True

    def _run(self, context: Context, run: Run[_T], expires: float) -> _T:
        """Execute a function in a context, again after conflicts."""

        def attempt() -> _T:
            connection = self._open()
            try:
                return self._database.execute(connection, run)
            except Exception as error:
                if connection.invalidated or self._database.breaks_connection(error):
                    self._drop_connection()  # The server may not respond to a rollback.
                raise

        return context.run(self._database.retry, attempt, expires)


def _wait_for(lanes: Iterable[Lane]) -> None:
    """Wait until lanes have ended. One of them may be this thread, which collects garbage."""
    end = time.monotonic() + Limits.close
    for lane in {*lanes} - {current_thread()}:
        lane.join(max(0, end - time.monotonic()))


def _note_socket(database: Database, driver: Any, _record: object) -> None:
    """Let a lane that connects know its socket before SQLAlchemy sends its first statement."""
    lane, descriptor = current_thread(), database.descriptor(driver)
    if isinstance(lane, Lane) and lane.socket is None and descriptor is not None:
        try:
            lane.socket = socket.socket(fileno=os.dup(descriptor))
        except OSError:  # There are too many open files. SQLAlchemy would leave it open.
            driver.close()
            raise


# The lanes that may have an SQLite file open, also those of a process that has forked this one.
_lanes_of_files = set[Lane]()


def _close_files() -> None:
    """Close the connections to SQLite files, apart from those that are in use, before a fork."""
    mine = [lane for lane in [*_lanes_of_files] if lane.pid == os.getpid()]
    for lanes in {lane.lanes for lane in mine}:
        lanes.close()
    # Some may connect, or be about to end, although no call is running.
    _wait_for(lane for lane in mine if lane.busy_since == math.inf or not lane.jobs)


if hasattr(os, "register_at_fork"):  # pragma: no branch  # Windows has no fork.
    os.register_at_fork(before=_close_files)


class LaneConnections:
    """The connections of a store whose engine no site has. Lanes hold them.

    :param timeout: the seconds that a job may take.
    :param connections: the maximum number of connections to a server.
    """

    def __init__(self, database: Database, timeout: float, connections: int) -> None:
        self.timeout = timeout
        self._database, self._max_connections = database, connections
        # Those that write, and those that read, by the id of their process. The lanes of a parent
        # stay here in its child, so that nobody closes their connections.
        self._by_process: dict[int, tuple[Lanes, Lanes]] = {}

    def add(self, plant: Plant) -> None:
        """Insert a plant, and return when the database has committed it, or raise PlantExists."""
        self._lanes()[0].call(Add(self._expires(), plant))

    def call(self, run: Run[_T], *, writes: bool = False) -> _T:
        """Return the result of a function that is called with a connection."""
        return cast(_T, self._lanes()[0 if writes else 1].call(Job(self._expires(), run)))

    def close(self) -> None:
        for lanes in self._by_process.get(os.getpid(), ()):
            lanes.close()

    def _lanes(self) -> tuple[Lanes, Lanes]:
        pid = os.getpid()
        # This is atomic: after a fork, several threads may come at the same time.
        return self._by_process.get(pid) or self._by_process.setdefault(pid, self._make_lanes(pid))

    def _make_lanes(self, pid: int) -> tuple[Lanes, Lanes]:
        database = self._database
        if not database.one_writer:
            # By default, four write and eight read, and twelve of each kind while some are stuck.
            most = self._max_connections // 2
            writing = Lanes(database, max(1, most // 3), most, Limits.stuck)
            return writing, Lanes(database, max(1, 2 * most // 3), most, Limits.stuck)
        if any(lane.pid != pid for lane in [*_lanes_of_files]):
            raise StoreMisconfigured(_INHERITED)
        # A file that is locked is not one that has failed. And another lane would not help.
        stuck_after = self.timeout - Limits.look
        return Lanes(database, 1, 1, stuck_after), Lanes(database, 4, 4, stuck_after)

    def _expires(self) -> float:
        seconds = remaining(self.timeout)
        if not seconds:
            raise StoreUnavailable("the request has waited too long for a thread of the server")
        return time.monotonic() + seconds
