"""The lanes of a store: threads that hold its connections, and execute the jobs of callers.

**Who executes what.** A *caller*, the thread of a request, puts a job into the queue, and waits for
its result until its deadline. Each *lane* is a thread with a connection. It takes jobs only while
the connection is open: so no job waits for a lane that connects, as long as another one is free.
There are no other threads and no timers. What a caller finds when it enters, and again four times a
second while it waits, decides.

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
after its response, or is shut down as soon as no caller waits for it.
"""

import math
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, RLock, Thread, current_thread
from typing import Any, ClassVar, TypeVar, cast

from sqlalchemy import Connection, Engine, event

from ..stores.base import Plant, PlantExists, StoreMisconfigured, StoreUnavailable
from ..stores.deadline import remaining
from ._limits import Limits
from ._tables import dropped
from .databases import Database, Run, close, copy_engine

# The maximum number of adds in one transaction, and that of the characters of all their plants. A
# character has up to four bytes, and some servers refuse a statement of more than one megabyte.
_GROUP_SIZE, _GROUP_WEIGHT = 100, 250_000

_NO_RESPONSE = "the database does not respond"
_LATE = "the database has not responded in time"
_NO_THREAD = "cannot start a thread: the system has no resources for it"
_INHERITED = "this process was forked while its parent used the SQLite file: start another one"

_T = TypeVar("_T")


class Job(Future[Any]):
    """A function to execute with a connection, or a plant to add.

    It is executed in the context of its caller, in which a tracing agent keeps the request. A group
    of adds runs in the context of its first one.

    :param expires: the time by the monotonic clock at which the caller gives up.
    """

    #: When it was let through during silence.
    probed_at = 0.0

    def __init__(self, expires: float, run: Run[Any]) -> None:
        super().__init__()
        self.expires, self.run, self.context = expires, run, copy_context()


class Add(Job):
    """A plant to add. Waiting adds of different ids are executed together."""

    #: Whether it must not be executed with others.
    is_alone = False

    def __init__(self, expires: float, plant: Plant) -> None:
        super().__init__(expires, lambda _: None)
        self.plant = plant


class WaitingJobs(SimpleQueue[Job | None]):
    """The jobs that wait for a lane, in the order of their arrival. ``None`` only wakes a lane."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = Lock()
        # Jobs that were taken, and not executed. They come first.
        self._front: deque[Job | None] = deque()
        # The number of adds that the next group probably has.
        self._expected = 1

    def __len__(self) -> int:
        """Return the approximate number of jobs that wait."""
        return self.qsize() + len(self._front)

    def take(self) -> list[Job]:
        """Return the next job, or a group of adds. The list is empty if the lane was woken.

        If the last group was large, a lane waits until this one is as large, while more adds
        arrive: large groups need less processor time. Meanwhile, no other lane takes an add.
        """
        with self._turn:
            first = self._next()
            if isinstance(first, Add):
                return self._group(first)
            return [] if first is None else [first]

    def put_back(self, jobs: list[Job]) -> None:
        """Let another lane take jobs, before those that came later."""
        self._front.extendleft(reversed(jobs))
        if self._turn.locked():  # A lane waits for the next job.
            self.put(None)

    def drain(self) -> Iterator[Job]:
        """Yield the jobs that wait and whose callers do, without waiting for others."""
        with suppress(Empty):
            while True:
                job = self._next(block=False)
                if job is not None and job.expires > time.monotonic():
                    yield job

    def _next(self, *, block: bool = True, timeout: float | None = None) -> Job | None:
        if self._front:
            with suppress(IndexError):  # Another thread may have taken the last one.
                return self._front.popleft()
        return self.get(block, timeout)

    def _group(self, first: Add) -> list[Job]:
        group: dict[int, Job] = {first.plant.id: first}
        room = _GROUP_WEIGHT - first.plant.characters
        while len(group) < _GROUP_SIZE and not first.is_alone:
            try:
                waits = len(group) < self._expected
                other = self._next(block=waits, timeout=Limits.next_add)
            except Empty:
                break
            if (
                not isinstance(other, Add)
                or other.is_alone
                or other.plant.id in group
                or other.plant.characters > room
            ):
                self._front.appendleft(other)
                break
            group[other.plant.id] = other
            room -= other.plant.characters
        self._expected = max(len(group), self._expected - 1)
        return [*group.values()]


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
        self._normal_size, self._max_size = normal_size, max_size
        self._stuck_after = stuck_after
        self._queue = WaitingJobs()
        # For everything below. The garbage collector may close a store in a thread that has it.
        self._lock = RLock()
        self._lanes: list[Lane] = []
        #: The lanes that belong to the store no longer, because it was closed.
        self.ending: list[Lane] = []
        #: Whether no lane is started, because a process forks.
        self.is_paused = False
        #: When a lane has had a response last.
        self.last_response = 0.0
        # When the last probe was let through.
        self._last_probe = -math.inf
        # When a lane may be started after another one could not connect, or shut down in silence.
        self._next_start = self._next_shutdown = 0.0

    # The thread of a caller

    def call(self, job: Job) -> Any:
        """Let a lane execute a job, and return its result, or raise the reason why it has none."""
        try:
            self._enter(job, time.monotonic())
            while True:
                with suppress(TimeoutError):  # The job has not ended. Its own errors are returned.
                    job.exception(timeout=min(Limits.look, job.expires - time.monotonic()))
                    break
                self._check_waiting(job, time.monotonic())
        except BaseException:
            job.expires = 0.0  # So that it is not executed later.
            self._end_unused()
            raise
        try:
            return job.result()
        finally:
            del job  # Otherwise the job, its error and this frame would refer to each other.

    def close(self) -> None:
        """Close the connections for which no caller waits, and the others after their jobs."""
        with self._lock:
            self.ending += self._lanes
            self._lanes = []
            queue, self._queue = self._queue, WaitingJobs()
            for job in queue.drain():
                self._queue.put(job)
            queue.put(None)
        end = time.monotonic() + Limits.close
        for lane in [*self.ending]:
            is_other = lane is not current_thread()  # The garbage collector runs in any thread.
            if is_other and (lane.is_free or self.is_paused):
                lane.join(max(0, end - time.monotonic()))
        self._end_unused()

    def _enter(self, job: Job, now: float) -> None:
        with self._lock:
            if self._admit(job, now, _NO_RESPONSE):
                self._start_lane(now, arriving=1)
            if not self._lanes and not self.is_paused:
                raise StoreUnavailable(_NO_THREAD)
            self._queue.put(job)

    def _check_waiting(self, job: Job, now: float) -> None:
        if now >= job.expires:
            raise StoreUnavailable(_LATE)
        with self._lock:
            if self._admit(job, now, _LATE):
                self._start_lane(now)

    def _admit(self, job: Job, now: float, refusal: str) -> bool:
        """Let a job wait, and return whether a lane may be started for it, or refuse it.

        During silence, jobs that come shortly after a probe may wait until the next look. So an
        operation that only takes longer than others is not taken for an outage.
        """
        stuck = self._stuck(now)
        # A lane that connects matters only if a job waits for it.
        waits = [lane for lane in stuck if lane.jobs or self._queue]
        is_silent = any(self.last_response < lane.busy_since for lane in waits)
        self._shut_down_lost(stuck, now, is_silent=is_silent)
        if not is_silent or self._is_probe(job, now):
            return True
        if now >= self._last_probe + Limits.look:
            raise StoreUnavailable(refusal)
        return False

    def _is_probe(self, job: Job, now: float) -> bool:
        """Return whether a job is the last probe. Each second, another job becomes one."""
        if job.probed_at != self._last_probe and now >= self._last_probe + Limits.probe:
            job.probed_at = self._last_probe = now
        return job.probed_at == self._last_probe

    def _shut_down_lost(self, stuck: list["Lane"], now: float, *, is_silent: bool) -> None:
        lost = [lane for lane in stuck if lane.socket and lane.busy_since < now - Limits.lost]
        if is_silent and lost:
            oldest = min(lost, key=lambda lane: lane.busy_since)
            lost = [oldest] if now >= self._next_shutdown else []
        for lane in lost:
            lane.shut_down()
            self._next_shutdown = now + Limits.lost

    def _end_unused(self) -> None:
        """End the lanes of a closed store for which no caller waits."""
        now = time.monotonic()
        for lane in [*self.ending]:
            if not any(job.expires > now and not job.done() for job in lane.jobs):
                lane.must_shut_down = True
                lane.shut_down()

    # The thread of a caller or of a lane

    def _stuck(self, now: float) -> list["Lane"]:
        limit = now - self._stuck_after
        return [lane for lane in self._lanes if lane.busy_since <= limit]

    def _size(self, now: float) -> int:
        """Return the maximum number of lanes, which is higher while some of them are stuck."""
        return min(self._normal_size + len(self._stuck(now)), self._max_size)

    def _start_lane(self, now: float, arriving: int = 0) -> None:
        """Start a lane if more jobs wait than lanes are free, and if there may be another one."""
        lanes = self._lanes
        if len(lanes) >= self._size(now) or self.is_paused or (lanes and now < self._next_start):
            return
        if sum(lane.is_free for lane in lanes) < len(self._queue) + arriving:
            lane = Lane(self, self._serve, self._queue)
            lanes.append(lane)
            try:
                lane.start()
            except RuntimeError:  # The system has no resources for another thread.
                lanes.remove(lane)

    # The thread of a lane

    def _serve(self, lane: "Lane", queue: WaitingJobs) -> None:
        """Execute jobs as long as the lane is needed and can connect."""
        failure: Exception | None = None
        try:
            failure = lane.connect()
            while failure is None and self._is_needed(lane):
                failure = self._execute_next(lane, queue)
        finally:
            lane.close()
            self._leave(lane, queue, failure)

    def _execute_next(self, lane: "Lane", queue: WaitingJobs) -> Exception | None:
        """Execute the next jobs, or connect again, and return why this is not possible."""
        jobs = queue.take()
        if jobs and not self._is_usable(lane):
            lane.busy_since = time.monotonic()
            self._put_back(jobs)
            return lane.connect()
        if alone := lane.execute(jobs):
            self._put_back(alone)
        return None

    def _is_needed(self, lane: "Lane") -> bool:
        return lane in self._lanes[: self._size(time.monotonic())]

    def _is_usable(self, lane: "Lane") -> bool:
        """Return whether it is connected, and has had a response since the stuck lanes began."""
        limit = time.monotonic() - self._stuck_after
        return not lane.is_closed and (
            lane.last_response > limit
            or not any(lane.last_response < other.busy_since <= limit for other in self._lanes)
        )

    def _put_back(self, jobs: list[Job]) -> None:
        with self._lock:
            self._queue.put_back(jobs)
            self._start_lane(time.monotonic())

    def _leave(self, lane: "Lane", queue: WaitingJobs, failure: Exception | None) -> None:
        """End a lane. If no other one can connect either, the jobs that wait have failed."""
        now, failed = time.monotonic(), list[Job]()
        with self._lock:
            if lane in self.ending:
                self.ending.remove(lane)
                for job in queue.drain():  # It came back after close() had taken the others.
                    self._queue.put(job)
                queue.put(None)  # For another lane that ends.
            else:
                self._lanes.remove(lane)
            if failure and queue is self._queue and len(self._lanes) == len(self._stuck(now)):
                failed = [*queue.drain()]
            elif failure:
                self._next_start = now + Limits.probe
            self._start_lane(now)
        for job in failed:
            job.set_exception(self.database.explain_connecting(cast(Exception, failure)))


class Lane(Thread):
    """A thread, the connection that it holds, and its jobs."""

    def __init__(self, lanes: Lanes, serve: Callable[..., None], queue: WaitingJobs) -> None:
        # The process may end without this thread. And a tracing agent may let a thread begin with
        # the context of the thread that starts it: this one begins with an empty context.
        super().__init__(
            target=Context().run, args=(serve, self, queue), name="plantstore store", daemon=True
        )
        self._lanes, self._database = lanes, lanes.database
        self._connection: Connection | None = None
        #: Another descriptor of the connection's socket, which stays open when the driver closes
        #: its own. So another thread can use it.
        self.socket: socket.socket | None = None
        self._pid = os.getpid()
        self.jobs: list[Job] = []
        #: Whether its store was closed, and no caller waits: what it still opens is shut down.
        self.must_shut_down = False
        #: Since when it connects or executes jobs. It is infinite while the lane is free.
        self.busy_since = time.monotonic()
        #: When its connection was opened, or has had a response last.
        self.last_response = 0.0

    @property
    def is_free(self) -> bool:
        """Whether it waits for jobs, or is about to do so."""
        return self.busy_since == math.inf

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
        if other is not None and self._pid == os.getpid():  # A child has the same connection.
            with suppress(OSError):
                other.shutdown(socket.SHUT_RDWR)

    # The thread of the lane

    def connect(self) -> Exception | None:
        """Open a new connection, or return why this is not possible. This may take any time."""
        self._drop_connection()
        try:
            self._open()
        except Exception as error:  # noqa: BLE001  # The callers get it.
            return error
        self.last_response, self.busy_since = time.monotonic(), math.inf
        return None

    def execute(self, jobs: list[Job]) -> list[Job]:
        """Execute a job or a group of adds. Return the adds that must be executed alone."""
        now = time.monotonic()
        self.jobs = jobs = [job for job in jobs if job.expires > now]
        alone = list[Job]()
        if not jobs:
            return alone
        self.busy_since = now
        try:
            if isinstance(jobs[0], Add):
                alone = self._add(cast(list[Add], jobs))
            else:
                result = self._run(jobs[0].context, jobs[0].run, jobs[0].expires)
                self._note_response()
                jobs[0].set_result(result)
        except Exception as error:  # noqa: BLE001  # The callers get it.
            if self._database.is_response(error):
                self._note_response()
            self.busy_since = math.inf
            for job in jobs:
                job.set_exception(self._database.explain(error))
        self.jobs = []
        return alone

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
        self.last_response = self._lanes.last_response = time.monotonic()
        self.busy_since = math.inf

    def _open(self) -> Connection:
        if self._connection is None:
            try:
                engine = self._database.connected or self._new_engine()
                self._connection = engine.connect()
                self._database.connected = engine
                self._database.watch(self._connection)
            except BaseException as error:
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

    def _add(self, adds: list[Add]) -> list[Job]:
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
        self._note_response()
        others = list[Job]()
        for add in adds:
            if add.plant.id in added:
                add.set_result(None)
            elif add.plant.id in existing:
                add.set_exception(PlantExists(add.plant.id))
            elif is_alone:
                add.set_exception(dropped(self._database.table))
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
                    self._drop_connection()  # The server may not respond to a rollback.
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
        if lane.must_shut_down:
            lane.shut_down()


class OwnConnections:
    """The connections of a store that has an engine of its own. Lanes hold them.

    :param timeout: the seconds that a job may take.
    :param connections: the maximum number of connections to a server.
    """

    #: Whether a connection to an SQLite file was open at a fork. A log in use could be deleted.
    is_inherited: ClassVar[bool] = False

    def __init__(self, database: Database, timeout: float, connections: int) -> None:
        self.timeout = timeout
        self._database, self._max_connections = database, connections
        self._make_lanes()

    def add(self, plant: Plant) -> None:
        """Insert a plant, and return when the database has committed it, or raise PlantExists."""
        self._writing.call(Add(self._expires(), plant))

    def call(self, run: Run[_T], *, writes: bool = False) -> _T:
        """Return the result of a function that is called with a connection."""
        lanes = self._writing if writes else self._reading
        return cast(_T, lanes.call(Job(self._expires(), run)))

    def close(self) -> None:
        try:
            self._writing.close()
        finally:
            self._reading.close()

    def before_fork(self) -> None:
        """Close the connections to an SQLite file: a child would misjudge their locks."""
        if self._database.one_writer:
            for lanes in (self._writing, self._reading):
                lanes.is_paused = True
                lanes.close()

    def after_fork(self, *, in_child: bool) -> None:
        """Start without lanes in a child: the threads of its parent do not exist there."""
        if in_child:
            lanes = (self._writing, self._reading)
            is_open = any(it.ending or not it.is_paused for it in lanes)
            OwnConnections.is_inherited |= self._database.one_writer and is_open
            # Python keeps the stacks of those threads, and so their connections: none is closed.
            self._make_lanes()
        self._writing.is_paused = self._reading.is_paused = False

    def _make_lanes(self) -> None:
        database = self._database
        if database.one_writer:
            # A file that is locked is not one that has failed. And another lane would not help.
            stuck_after = self.timeout - Limits.look
            self._writing = Lanes(database, 1, 1, stuck_after)
            self._reading = Lanes(database, 4, 4, stuck_after)
        else:
            # By default, four write and eight read, and twelve of each kind while some are stuck.
            most = self._max_connections // 2
            self._writing = Lanes(database, max(1, most // 3), most, Limits.stuck)
            self._reading = Lanes(database, max(1, 2 * most // 3), most, Limits.stuck)

    def _expires(self) -> float:
        if self.is_inherited and self._database.one_writer:
            raise StoreMisconfigured(_INHERITED)
        seconds = remaining(self.timeout)
        if not seconds:
            raise StoreUnavailable("the request has waited too long for a thread of the server")
        return time.monotonic() + seconds
