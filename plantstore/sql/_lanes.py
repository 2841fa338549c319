"""The lanes of a store: threads that hold its connections, and execute the jobs of callers.

**Who executes what.** A *caller*, the thread of a request, puts a job into the queue, and waits for
its result until its deadline. Each *lane* is a thread with a connection. It takes jobs only while
the connection is open: so no job waits for a lane that connects, as long as another one is free.
There are no other threads. Four times a second, one of the callers looks after the lanes.

A lane::

    connecting ---> free <---> executing
        |             |            |
    it cannot      close(),    no response for two seconds: it is stuck, and another one takes its
        |        or too many   place. After 30 seconds, it is shut down: then it connects again.
        v             v        During silence, only one is, each 30 seconds
      ended         ended

All lanes for one kind of jobs::

                    a lane is stuck, and none has had a response since it began
    responding ------------------------------------------------------------------> silent
               <------------------------------------------------------------------
                                 the first response of any lane

During silence, jobs are refused at once, except one each second, for which a lane connects. What
was connected before the silence is used again only if it responds. After close(), a lane is shut
down as soon as no caller waits for it.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from threading import Lock
from typing import Any, ClassVar, TypeVar, cast

from ..stores.base import Plant, StoreMisconfigured, StoreUnavailable
from ..stores.deadline import Limits, remaining
from ._lane import Add, Job, Lane, WaitingJobs
from .databases import Database, Run

_NO_RESPONSE = "the database does not respond"
_NO_THREAD = "cannot start a thread: the system has no resources for it"

_INHERITED = "this process was forked while its parent used the SQLite file: start another one"

_T = TypeVar("_T")


class Lanes:
    """The queue for one kind of jobs, and up to ``usual`` lanes, or ``most`` while some are stuck.

    :param silence: the seconds without a response after which a lane is stuck.
    """

    def __init__(self, database: Database, usual: int, most: int, silence: float) -> None:
        self._database = database
        self._usual, self._most, self._patience = usual, most, silence
        #: The lanes for the other kind of jobs. They help while these cannot connect.
        self.others: Lanes | None = None
        self._lock = Lock()  # For everything below.
        self._queue = WaitingJobs()
        self._lanes: list[Lane] = []
        #: The lanes that end when their jobs are done, because the store was closed.
        self.ending: list[Lane] = []
        self._allowed = usual  # The number of lanes that there may be at the moment.
        #: Whether no lane is started, because a process forks.
        self.is_paused = False
        # When a caller looks again, and when a lane may connect after another one has failed.
        self._next_look = self._next_start = 0.0
        # When a lane has had a response last, and when the last silence began.
        self._responded = self._silence_began = 0.0
        self._is_silent = False
        # The job that was let through last, and when another one may be.
        self._attempt: Job | None = None
        self._next_attempt = 0.0
        self._next_shutdown = 0.0  # When another lane may be shut down.

    # The thread of a caller

    def call(self, job: Job) -> Any:
        """Let a lane execute a job, and return its result, or raise the reason why it has none."""
        self._enter(job, time.monotonic())
        try:
            while not job.wait(min(Limits.look, job.expires - time.monotonic())):
                self._check(job, time.monotonic())
        except BaseException:
            job.expires = 0.0  # So that it is not executed later.
            self._end_unused()
            raise
        if job.error is not None:
            raise job.error
        return job.result

    def _enter(self, job: Job, now: float) -> None:
        with self._lock:
            self._look(now)
            if self._is_silent and not self._may_wait(job, now):
                raise StoreUnavailable(_NO_RESPONSE)
            if not self._is_silent:
                self._start_lane(now, coming=1)
            if not self._lanes and not self.is_paused:
                raise StoreUnavailable(_NO_RESPONSE if self._is_silent else _NO_THREAD)
            self._queue.put(job)

    def _check(self, job: Job, now: float) -> None:
        with self._lock:
            self._look(now)
            if now >= job.expires or (self._is_silent and not self._may_wait(job, now)):
                raise StoreUnavailable("the database has not responded in time")

    def _may_wait(self, job: Job, now: float) -> bool:
        """During silence, let one job through each second, or when the last one has failed.

        Jobs that come shortly after it may wait until the next look. So an operation that only
        takes longer than others is not taken for an outage.
        """
        last = self._attempt
        if job is not last and (last is None or last.is_finished or now >= self._next_attempt):
            self._attempt, self._next_attempt = job, now + Limits.attempt
            self._start_lane(now, coming=1)
        return job is self._attempt or self._next_attempt - now > Limits.attempt - Limits.look

    def close(self) -> None:
        """Close the connections for which no caller waits, and the others after their jobs."""
        with self._lock:
            lanes, self._lanes = self._lanes, []
            self.ending += lanes
            queue, self._queue = self._queue, WaitingJobs()
            self._move(queue)
        end = time.monotonic() + Limits.close
        for lane in [*self.ending]:
            if lane.is_free or self.is_paused:
                lane.join(max(0, end - time.monotonic()))
        self._end_unused()

    def _end_unused(self) -> None:
        """End the lanes of a closed store for which no caller waits."""
        now = time.monotonic()
        for lane in [*self.ending]:
            if not any(job.expires > now and not job.is_finished for job in lane.jobs):
                lane.is_over = True
                lane.shut_down()

    # The caller that looks after the lanes

    def _look(self, now: float) -> None:
        """Notice silence, replace the lanes that are stuck, and shut down those that are lost."""
        if now < self._next_look:
            return
        self._next_look = now + Limits.look
        stuck = [lane for lane in self._lanes if self._is_stuck(lane, now)]
        self._allowed = min(self._usual + len(stuck), self._most)
        # A lane that connects matters only if a job waits for it.
        waits = [lane for lane in stuck if lane.jobs or self._queue]
        if not self._is_silent and any(self._responded < lane.began for lane in waits):
            self._is_silent, self._silence_began, self._attempt = True, now, None
        lost = [lane for lane in stuck if lane.socket and lane.began < now - Limits.lost]
        if self._is_silent and lost:  # The server may allow no other connection: one makes room.
            oldest = min(lost, key=lambda lane: lane.began)
            lost = [oldest] if now >= self._next_shutdown else []
        for lane in lost:
            lane.shut_down()
            self._next_shutdown = now + Limits.lost
        if not self._is_silent:
            self._start_lane(now)

    def _is_stuck(self, lane: Lane, now: float) -> bool:
        return bool(lane.is_connecting or lane.jobs) and lane.began <= now - self._patience

    def _start_lane(self, now: float, coming: int = 0) -> None:
        """Start a lane if more jobs wait than lanes are free, and if there may be another one."""
        if len(self._lanes) >= self._allowed or (self._lanes and now < self._next_start):
            return
        waiting = len(self._queue) + coming
        if not self.is_paused and sum(lane.is_free for lane in self._lanes) < waiting:
            lane = Lane(self._database, self._serve, self._queue)
            with suppress(RuntimeError):  # The system has no resources for another thread.
                lane.start()
                self._lanes.append(lane)

    # The thread of a lane

    def _serve(self, lane: Lane, queue: WaitingJobs) -> None:
        """Execute jobs, until the store is closed, or as long as the lane can connect."""
        failure = lane.connect()
        while failure is None and self._is_needed(lane) and (jobs := queue.take()):
            if lane.proven < self._silence_began or lane.is_lost:
                lane.began, lane.is_connecting = time.monotonic(), True
                self._put(jobs)
                lane.abandon()
                failure = lane.connect()
            else:
                if alone := lane.execute(jobs):
                    self._put(alone)
                if lane.proven > lane.began:  # The database has responded.
                    self._responded, self._is_silent = lane.proven, False
            del jobs  # They have their results.
        lane.close()
        self._leave(lane, queue, failure)

    def _is_needed(self, lane: Lane) -> bool:
        lanes, allowed = self._lanes, self._allowed
        return not lane.is_over and (len(lanes) <= allowed or lane in lanes[:allowed])

    def _leave(self, lane: Lane, queue: WaitingJobs, failure: Exception | None) -> None:
        """End a lane. If no other one can connect either, the jobs that wait have failed."""
        now, failed = time.monotonic(), list[Job]()
        with self._lock:
            if queue is not self._queue:  # The store has been closed.
                self.ending.remove(lane)
                self._move(queue)
            else:
                self._lanes.remove(lane)
                if failure and all(self._is_stuck(other, now) for other in self._lanes):
                    failed = [*self._queue.drain()]
                elif failure:
                    self._next_start = now + Limits.attempt
            self._start_lane(now)
        if failed and failure and not (self.others and self.others.take_over(failed)):
            for job in failed:
                job.finish(self._database.explain_connecting(failure))

    def take_over(self, jobs: list[Job]) -> bool:
        """Execute jobs of lanes that cannot connect, if these can: all share a server's limit."""
        now = time.monotonic()
        with self._lock:
            works = not all(it.is_connecting or self._is_stuck(it, now) for it in self._lanes)
            for job in jobs if works else ():
                self._queue.put(job)
        return works

    def _put(self, jobs: Iterable[Job]) -> None:
        with self._lock:
            for job in jobs:
                self._queue.put(job)
            self._start_lane(time.monotonic())

    def _move(self, queue: WaitingJobs) -> None:
        """Let the lanes of a queue end, and those of the current one execute its jobs."""
        for job in queue.drain():
            self._queue.put(job)
        queue.put(None)


class OwnConnections:
    """The connections of a store that has an engine of its own. Lanes hold them.

    :param timeout: the seconds that a job may take.
    :param connections: the maximum number of connections to a server.
    """

    #: Whether a connection to an SQLite file was open at a fork. A log in use could be deleted.
    is_inherited: ClassVar[bool] = False

    def __init__(self, database: Database, timeout: float, connections: int) -> None:
        self.timeout = timeout
        self._database, self._connections = database, connections
        self._make_lanes()

    def add(self, plant: Plant) -> None:
        """Insert a plant, and return when the database has committed it, or raise PlantExists."""
        self._writing.call(Add(self._expires(), plant))

    def call(self, run: Run[_T], *, writes: bool = False) -> _T:
        """Return the result of a function that is called with a connection."""
        lanes = self._writing if writes else self._reading
        return cast(_T, lanes.call(Job(self._expires(), run)))

    def close(self) -> None:
        self._writing.close()
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
            silence = self.timeout - Limits.look
            self._writing = Lanes(database, 1, 1, silence)
            self._reading = Lanes(database, 4, 4, silence)
        else:
            # By default, four write and eight read, and twelve of each kind while some are stuck.
            most = self._connections // 2
            self._writing = Lanes(database, max(1, most // 3), most, Limits.silence)
            self._reading = Lanes(database, max(1, 2 * most // 3), most, Limits.silence)
            self._writing.others, self._reading.others = self._reading, self._writing

    def _expires(self) -> float:
        if self.is_inherited and self._database.one_writer:
            raise StoreMisconfigured(_INHERITED)
        seconds = remaining(self.timeout)
        if not seconds:
            raise StoreUnavailable("the request has waited too long for a thread of the server")
        return time.monotonic() + seconds
