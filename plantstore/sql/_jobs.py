"""The jobs that lanes execute, and how adds that wait become a group."""

import time
from collections import deque
from collections.abc import Iterator
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from ..stores.base import Plant
from ._limits import Limits, Sizes
from .databases import Run


class Job:
    """A function to execute with a connection, or a plant to add.

    It is executed in the context of its caller, in which a tracing agent keeps the request. A group
    of adds runs in the context of its first one.

    :param expires: the time by the monotonic clock at which the caller gives up.
    """

    #: When it was let through during silence.
    probed_at = 0.0
    is_done = False
    result: Any = None
    error: Exception | None = None

    def __init__(self, expires: float, run: Run[Any]) -> None:
        self.expires, self.run, self.context = expires, run, copy_context()
        # A Future, which is written in Python, would take a fifth of the time of an add.
        self._waiting = Lock()
        self._waiting.acquire()

    def finish(self, result: Any = None, error: Exception | None = None) -> None:
        """Let the caller continue, with a result or an error. Only the first call has an effect."""
        if not self.is_done:
            self.is_done, self.result, self.error = True, result, error
            self._waiting.release()

    def wait(self) -> bool:
        """Let its caller wait until its next look, and return whether the job has finished."""
        seconds = min(Limits.look, self.expires - time.monotonic())
        return self._waiting.acquire(timeout=max(0, seconds))


class Add(Job):
    """A plant to add. Waiting adds of different ids are executed together."""

    #: Whether it must not be executed with others.
    is_alone = False

    def __init__(self, expires: float, plant: Plant) -> None:
        super().__init__(expires, lambda _: None)
        self.plant = plant


class WaitingJobs:
    """The jobs that wait for a lane, in the order of their arrival. ``None`` only wakes a lane.

    Only take() has a lock: the garbage collector may close a store while a thread is in a method.
    """

    def __init__(self) -> None:
        self._jobs: deque[Job | None] = deque()
        # The lane that takes jobs has the turn. When it needs a number of jobs, put() wakes it.
        self._turn, self._needed, self._wake = Lock(), 1, SimpleQueue[None]()
        # The number of adds that the next group probably has.
        self._expected = 1

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job | None) -> None:
        """Append a job, and wake a lane if as many wait as it needs. For each, it would be slow."""
        self._jobs.append(job)
        if self._wake.empty() and (len(self._jobs) >= self._needed or not isinstance(job, Add)):
            self._wake.put(None)

    def take(self, taken: list[Job]) -> None:
        """Wait for the next job, and append it to a list, or a group of adds, or nothing.

        If the last group was large, a lane waits until this one is as large, while more adds
        arrive: large groups need less processor time. Meanwhile, no other lane takes a job.

        :param taken: the jobs that the caller must finish, also after an exception.
        """
        with self._turn:
            self._wait(1)
            first = self._next()
            if first is not None:
                taken.append(first)
            if isinstance(first, Add) and not first.is_alone and (self._jobs or self._expected > 1):
                self._take_others(first, taken)

    def put_back(self, jobs: list[Job]) -> None:
        """Let another lane take jobs, before those that came later."""
        self._jobs.extendleft(reversed(jobs))
        self.put(None)  # A lane may be waiting for the next job.

    def drain(self) -> Iterator[Job]:
        """Yield the jobs that wait and whose callers do, without waiting for others."""
        while (job := self._next()) or self._jobs:
            if job and job.expires > time.monotonic():
                yield job

    def _next(self) -> Job | None:
        try:
            return self._jobs.popleft()
        except IndexError:  # Another thread may have taken the last one.
            return None

    def _wait(self, number: int, seconds: float | None = None) -> bool:
        """Wait for a number of jobs, or for some seconds. Return whether at least one waits."""
        self._needed = number
        try:
            while not self._jobs:
                self._wake.get(timeout=seconds)
        except Empty:
            pass
        return bool(self._jobs)

    def _take_others(self, first: Add, taken: list[Job]) -> None:
        """Append the adds that can be executed with the first one."""
        ids, needed = {first.plant.id}, self._expected
        room = Sizes.characters - first.plant.characters
        while len(ids) < Sizes.group:
            if not self._jobs:
                if len(ids) >= self._expected or not self._wait(needed - len(ids), Limits.next_add):
                    break
                needed = 0  # If not all have come by now, each one wakes it.
            other = self._next()
            if not isinstance(other, Add):
                self._jobs.appendleft(other)
                break
            taken.append(other)
            room -= other.plant.characters
            if other.is_alone or other.plant.id in ids or room < 0:
                self._jobs.appendleft(taken.pop())
                break
            ids.add(other.plant.id)
        self._expected = max(len(ids), self._expected - 1)
