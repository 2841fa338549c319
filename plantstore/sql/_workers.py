"""Threads that execute operations. Each of them holds one connection."""

import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from threading import Lock, Thread
from typing import Any

from ..stores.base import StoreUnavailable
from ._held import HeldConnection
from ._operations import Add, Operation, WaitingOperations

# The seconds after which an operation in progress is stuck: another thread may be started.
_STUCK = 1.0
# After this number of operations without a response, the database is said not to respond.
_FEW = 4
# The seconds after which a caller looks whether another thread is needed, and then again and again
# whether it may wait.
_SOON, _INTERVAL = 0.01, 0.5
_NO_RESPONSE = "the database does not respond"
_NOT_IN_TIME = "the database has not responded in time"

#: Executes operations with a connection, and returns whether the database has responded.
Execute = Callable[[HeldConnection, list[Operation]], bool]


class _Worker:
    """A thread, its connection, and the operations that it executes."""

    def __init__(self, connection: HeldConnection) -> None:
        self.connection = connection
        self.operations: list[Operation] = []
        self.began = 0.0
        self.thread: Thread | None = None

    def is_free(self) -> bool:
        """Return whether the thread waits for operations, or does so at once."""
        operations = self.operations
        return not operations or operations[-1].is_finished


class Workers:
    """The threads for one kind of operations. They are started when they are needed.

    The thread of a request waits here, and nowhere else, and only until its deadline. While the
    database does not respond, operations are refused at once, except one at a time. Of those in
    progress, the first one may be waited for.

    :param execute: the function that executes operations.
    :param connection: returns a new object that holds a connection.
    :param usual: the maximum number of threads.
    :param most: the maximum number of threads while some of them are stuck.
    :param patience: the seconds without a response after which operations are refused.
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
        # No operation is put into the queue of threads that a close is ending.
        self._changing = Lock()
        self._queue = WaitingOperations()
        self._workers: list[_Worker] = []
        #: When the database has responded last, by the monotonic clock.
        self.responded = 0.0
        # The number of failures without a response since then.
        self._failed = 0
        # While the database does not respond, this operation tries whether it does again.
        self._attempt: Operation | None = None

    def call(self, operation: Operation) -> None:
        """Let a thread execute an operation, and wait for it.

        :raises StoreUnavailable: after the deadline, or if the database does not respond to others.
        """
        self._enter(operation, time.monotonic())
        with self._changing:
            self._start_worker()
            self._queue.put(operation)
        interval = _SOON
        while not operation.wait(min(interval, operation.expires - time.monotonic())):
            interval, now = _INTERVAL, time.monotonic()
            if now >= operation.expires or not self._may_wait(operation, now):
                operation.expires = now
                raise StoreUnavailable(_NOT_IN_TIME)
            if not self._queue.empty():
                with self._changing:
                    self._start_worker()
        if operation.error is not None:
            raise operation.error

    def repeat(self, operations: list[Add]) -> None:
        """Let threads execute adds alone that have been executed together."""
        for add in operations:
            add.is_alone = True
            self._put(add)

    def waiting_since(self, moment: float) -> list[HeldConnection]:
        """Return the connections whose operation began before a time and has not finished.

        :param moment: the time, by the monotonic clock.
        """
        return [it.connection for it in [*self._workers] if it.operations and it.began <= moment]

    def are_stuck(self, moment: float) -> bool:
        """Return whether all threads are busy with operations that began before a time."""
        return len(self._workers) == self._allowed == len(self.waiting_since(moment))

    def allow_attempt(self) -> None:
        """Allow one more thread, which tries whether the database executes operations again."""
        self._allowed = self._most

    def close(self) -> None:
        """Close the idle connections. Those in use are closed when their operations end."""
        with self._changing:
            workers, self._workers = self._workers, []
            queue, self._queue = self._queue, WaitingOperations()
            queue.put(None)
        for worker in workers:
            if worker.thread is not None and worker.is_free():
                worker.thread.join(1)

    def _put(self, operation: Operation | None) -> None:
        with self._changing:
            self._queue.put(operation)

    def _enter(self, operation: Operation, now: float) -> None:
        """Refuse an operation while there is no response, unless it is the only attempt."""
        if self._is_stalled(now):
            attempt = self._attempt
            if attempt is not None and not attempt.is_finished and attempt.expires > now:
                raise StoreUnavailable(_NO_RESPONSE)
            self._attempt = operation

    def _may_wait(self, operation: Operation, now: float) -> bool:
        """Return whether a caller may go on waiting.

        Without a response, only two may: the attempt, and the first operation in progress.
        """
        if operation is self._attempt or not self._is_stalled(now):
            return True
        in_progress = [one for worker in [*self._workers] for one in worker.operations]
        return in_progress[:1] == [operation]

    def _is_stalled(self, now: float) -> bool:
        """Return whether the database has not responded to several operations for some time."""
        latest = now - self._patience
        if self.responded > latest:
            return False
        stuck = sum(len(it.operations) for it in [*self._workers] if it.began <= latest)
        return stuck + self._failed >= _FEW or stuck >= self._usual

    def _start_worker(self) -> None:
        """Start a thread if none is idle, and if there may be another one."""
        stuck = self.waiting_since(time.monotonic() - _STUCK)
        most = min(self._allowed, self._usual + len(stuck))
        if any(worker.is_free() for worker in self._workers) or len(self._workers) >= most:
            return
        worker = _Worker(self._connection())
        try:
            worker.thread = start_thread(self._serve, worker, self._queue)
        except RuntimeError as error:
            if not self._workers:
                raise StoreUnavailable(f"cannot start a thread: {error}") from error
            return
        self._workers.append(worker)

    def _serve(self, worker: _Worker, queue: WaitingOperations) -> None:
        """Execute operations until the store is closed."""
        while operations := queue.take():
            self._serve_next(worker, operations)
        with suppress(Empty):
            while True:  # What is left is for the threads that are started after the close.
                self._put(queue.get_nowait())
        queue.put(None)  # For the next thread.
        worker.connection.close()

    def _serve_next(self, worker: _Worker, operations: list[Operation]) -> None:
        worker.began = began = time.monotonic()
        worker.operations = [one for one in operations if one.expires > began]
        if worker.operations:
            if self._attempt in worker.operations:
                worker.connection.abandon()  # It may lead to a server that is gone.
            if self._execute(worker.connection, worker.operations):
                self.responded, self._failed = time.monotonic(), 0
            else:
                self._failed += 1
        worker.operations = []


def start_thread(function: Callable[..., None], *arguments: Any) -> Thread:
    """Start a thread that does not delay the end of the process.

    :raises RuntimeError: if the system has no resources for it.
    """
    thread = Thread(target=function, args=arguments, name="plantstore store", daemon=True)
    thread.start()
    return thread
