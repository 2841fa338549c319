"""The jobs that lanes execute, and how adds that wait become a group."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
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


class WaitingJobs(SimpleQueue[Job | None]):
    """The jobs that wait for a lane, in the order of their arrival. ``None`` only wakes a lane.

    It is no Condition: the garbage collector may close a store while a thread is in these methods.
    """

    def __init__(self) -> None:
        super().__init__()
        # Only one lane takes jobs at a time.
        self._turn = Lock()
        # Jobs that were taken, and not executed. They come first.
        self._front: deque[Job | None] = deque()
        # The number of adds that the next group probably has.
        self._expected = 1

    def __len__(self) -> int:
        """Return the approximate number of jobs that wait."""
        return self.qsize() + len(self._front)

    def take(self, taken: list[Job]) -> None:
        """Wait for the next job, and append it to a list, or a group of adds, or nothing.

        If the last group was large, a lane waits until this one is as large, while more adds
        arrive: large groups need less processor time. Meanwhile, no other lane takes an add.

        :param taken: the jobs that the caller must finish, also after an exception.
        """
        with self._turn:
            first = self._next()
            if first is not None:
                taken.append(first)
            if isinstance(first, Add) and not first.is_alone and (self or self._expected > 1):
                self._take_others(first, taken)

    def put_back(self, jobs: list[Job]) -> None:
        """Let another lane take jobs, before those that came later."""
        self._front.extendleft(reversed(jobs))
        self.put(None)  # A lane may be waiting for the next job.

    def drain(self) -> Iterator[Job]:
        """Yield the jobs that wait and whose callers do, without waiting for others."""
        with suppress(Empty):
            while True:
                job = self._next(0)
                if job is not None and job.expires > time.monotonic():
                    yield job

    def _next(self, timeout: float | None = None) -> Job | None:
        if self._front:
            with suppress(IndexError):  # Another thread may have taken the last one.
                return self._front.popleft()
        return self.get(timeout=timeout)

    def _take_others(self, first: Add, taken: list[Job]) -> None:
        """Append the adds that can be executed with the first one."""
        ids, room = {first.plant.id}, Sizes.characters - first.plant.characters
        while len(ids) < Sizes.group:
            try:
                other = self._next(Limits.next_add if len(ids) < self._expected else 0)
            except Empty:
                break
            if not isinstance(other, Add):
                self._front.appendleft(other)
                break
            taken.append(other)
            room -= other.plant.characters
            if other.is_alone or other.plant.id in ids or room < 0:
                self._front.appendleft(taken.pop())
                break
            ids.add(other.plant.id)
        self._expected = max(len(ids), self._expected - 1)
