"""What a lane executes: a job has one caller, who waits for its result."""

import time
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, TypeGuard

from ..stores.base import Plant
from ..stores.deadline import Limits
from ._statements import Run, Statements

# The maximum number of adds in one transaction. And that of their characters: with up to four
# bytes for each, a statement fits into one megabyte, which is the limit of some servers.
_GROUP_SIZE, _GROUP_WEIGHT = 100, 250_000


class Job:
    """A function to execute with a connection, or a plant to add.

    :param expires: the time at which its caller gives up, by the monotonic clock.
    """

    def __init__(self, statements: Statements, expires: float, run: Run[Any]) -> None:
        self.statements, self.expires, self.run = statements, expires, run
        self.is_finished = False
        #: What the function has returned, and why the job has failed.
        self.result: Any = None
        self.error: Exception | None = None
        self._waiting = Lock()
        self._waiting.acquire()

    def finish(self, error: Exception | None = None) -> None:
        """Let the caller continue. This must be called once."""
        self.error = error
        self.is_finished = True
        self._waiting.release()

    def wait(self, seconds: float) -> bool:
        """Wait until the job has finished, and return False after some seconds."""
        return self._waiting.acquire(timeout=max(0, seconds))


class Add(Job):
    """A plant to add. Waiting adds of different ids are executed together."""

    #: Whether it must not be executed with others.
    is_alone = False

    def __init__(self, statements: Statements, expires: float, plant: Plant) -> None:
        super().__init__(statements, expires, lambda _: None)
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
            if not _may_join(other, first, room) or other.plant.id in group:
                self._next.append(other)
                break
            group[other.plant.id] = other
            room -= other.plant.characters
        self._expected = max(len(group), self._expected - 1)
        return [*group.values()]


def _may_join(other: Job | None, first: Add, room: int) -> TypeGuard[Add]:
    """Return whether a job is an add that may be in the group of another add and fits into it."""
    if not isinstance(other, Add) or other.is_alone:
        return False
    return other.statements is first.statements and other.plant.characters <= room
