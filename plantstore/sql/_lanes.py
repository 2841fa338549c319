"""Threads that execute jobs. Each of them holds one connection."""

import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from threading import Lock, Thread
from typing import Any

from ..stores.base import StoreUnavailable
from ._held import HeldConnection
from ._jobs import Add, Job, WaitingJobs

# The seconds after which a job in progress is stuck: another thread may be started.
_STUCK = 1.0
# After this number of jobs without a response, the database is said not to respond.
_FEW = 4
# The seconds after which a caller looks whether another thread is needed, and then again and again
# whether it may wait.
_SOON, _INTERVAL = 0.01, 0.5
_NO_RESPONSE = "the database does not respond"
_NOT_IN_TIME = "the database has not responded in time"

#: Executes jobs with a connection, and returns whether the database has responded.
Execute = Callable[[HeldConnection, list[Job]], bool]


class _Lane:
    """A thread, its connection, and the jobs that it executes."""

    def __init__(self, connection: HeldConnection) -> None:
        self.connection = connection
        self.jobs: list[Job] = []
        self.began = 0.0
        self.thread: Thread | None = None

    def is_free(self) -> bool:
        """Return whether the thread waits for jobs, or does so at once."""
        jobs = self.jobs
        return not jobs or jobs[-1].is_finished


class Lanes:
    """The threads for one kind of jobs. They are started when they are needed.

    The thread of a request waits here, and nowhere else, and only until its deadline. While the
    database does not respond, jobs are refused at once, except one at a time. Of those in
    progress, the first one may be waited for.

    :param execute: the function that executes jobs.
    :param connection: returns a new object that holds a connection.
    :param usual: the maximum number of threads.
    :param most: the maximum number of threads while some of them are stuck.
    :param patience: the seconds without a response after which jobs are refused.
    """

    def __init__(
        self,
        execute: Execute,
        connection: Callable[[], HeldConnection],
        usual: int,
        most: int,
        patience: float,
    ) -> None:
        self._execute = execute
        self._connection = connection
        self._usual = usual
        self._most = most
        # The last thread is for an attempt: see :meth:`allow_attempt`.
        self._allowed = max(usual, most - 1)
        self._patience = patience
        # No job is put into the queue of threads that a close is ending.
        self._changing = Lock()
        self._queue = WaitingJobs()
        self._lanes: list[_Lane] = []
        #: When the database has responded last, by the monotonic clock.
        self.responded = 0.0
        # The number of failures without a response since then.
        self._failed = 0
        # While the database does not respond, this job tries whether it does again.
        self._attempt: Job | None = None

    def call(self, job: Job) -> None:
        """Let a thread execute a job, and wait for it.

        :raises StoreUnavailable: after the deadline, or if the database does not respond to others.
        """
        self._enter(job, time.monotonic())
        with self._changing:
            self._start_lane()
            self._queue.put(job)
        interval = _SOON
        while not job.wait(min(interval, job.expires - time.monotonic())):
            interval, now = _INTERVAL, time.monotonic()
            if now >= job.expires or not self._may_wait(job, now):
                job.expires = now
                raise StoreUnavailable(_NOT_IN_TIME)
            if not self._queue.empty():
                with self._changing:
                    self._start_lane()
        if job.error is not None:
            raise job.error

    def repeat(self, jobs: list[Add]) -> None:
        """Let threads execute adds alone that have been executed together."""
        for add in jobs:
            add.is_alone = True
            self._put(add)

    def waiting_since(self, moment: float) -> list[HeldConnection]:
        """Return the connections whose job began before a time and has not finished.

        :param moment: the time, by the monotonic clock.
        """
        return [lane.connection for lane in [*self._lanes] if lane.jobs and lane.began <= moment]

    def are_stuck(self, moment: float) -> bool:
        """Return whether all threads are busy with jobs that began before a time."""
        return len(self._lanes) == self._allowed == len(self.waiting_since(moment))

    def allow_attempt(self) -> None:
        """Allow one more thread, which tries whether the database executes jobs again."""
        self._allowed = self._most

    def close(self) -> None:
        """Close the idle connections. Those in use are closed when their jobs end."""
        with self._changing:
            lanes, self._lanes = self._lanes, []
            queue, self._queue = self._queue, WaitingJobs()
            queue.put(None)
        for lane in lanes:
            if lane.thread is not None and lane.is_free():
                lane.thread.join(1)

    def _put(self, job: Job | None) -> None:
        with self._changing:
            self._queue.put(job)

    def _enter(self, job: Job, now: float) -> None:
        """Refuse a job while there is no response, unless it is the only attempt."""
        if self._is_stalled(now):
            attempt = self._attempt
            if attempt is not None and not attempt.is_finished and attempt.expires > now:
                raise StoreUnavailable(_NO_RESPONSE)
            self._attempt = job

    def _may_wait(self, job: Job, now: float) -> bool:
        """Return whether a caller may go on waiting.

        Without a response, only two may: the attempt, and the first job in progress.
        """
        if job is self._attempt or not self._is_stalled(now):
            return True
        in_progress = [job for lane in [*self._lanes] for job in lane.jobs]
        return in_progress[:1] == [job]

    def _is_stalled(self, now: float) -> bool:
        """Return whether the database has not responded to several jobs for some time."""
        latest = now - self._patience
        if self.responded > latest:
            return False
        stuck = sum(len(lane.jobs) for lane in [*self._lanes] if lane.began <= latest)
        return stuck + self._failed >= _FEW or stuck >= self._usual

    def _start_lane(self) -> None:
        """Start a thread if none is idle, and if there may be another one."""
        stuck = self.waiting_since(time.monotonic() - _STUCK)
        most = min(self._allowed, self._usual + len(stuck))
        if any(lane.is_free() for lane in self._lanes) or len(self._lanes) >= most:
            return
        lane = _Lane(self._connection())
        try:
            lane.thread = start_thread(self._serve, lane, self._queue)
        except RuntimeError as error:
            if not self._lanes:
                raise StoreUnavailable(f"cannot start a thread: {error}") from error
            return
        self._lanes.append(lane)

    def _serve(self, lane: _Lane, queue: WaitingJobs) -> None:
        """Execute jobs until the store is closed."""
        while jobs := queue.take():
            self._serve_next(lane, jobs)
        with suppress(Empty):
            while True:  # What is left is for the threads that are started after the close.
                self._put(queue.get_nowait())
        queue.put(None)  # For the next thread.
        lane.connection.close()

    def _serve_next(self, lane: _Lane, jobs: list[Job]) -> None:
        lane.began = began = time.monotonic()
        lane.jobs = [job for job in jobs if job.expires > began]
        if lane.jobs:
            if self._attempt in lane.jobs:
                lane.connection.abandon()  # It may lead to a server that is gone.
            if self._execute(lane.connection, lane.jobs):
                self.responded, self._failed = time.monotonic(), 0
            else:
                self._failed += 1
        lane.jobs = []


def start_thread(function: Callable[..., None], *arguments: Any) -> Thread:
    """Start a thread that does not delay the end of the process.

    :raises RuntimeError: if the system has no resources for it.
    """
    thread = Thread(target=function, args=arguments, name="plantstore store", daemon=True)
    thread.start()
    return thread
