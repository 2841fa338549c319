"""The jobs that the threads of a store execute."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, TypeGuard

from sqlalchemy import Connection

from ..stores.base import Plant
from ._statements import Statements

# The maximum number of adds in one transaction, and the approximate number of their characters.
_GROUP_SIZE, _GROUP_WEIGHT = 100, 1_000_000
# The seconds in which another add must arrive, while a thread waits for a group of adds.
_PAUSE = 0.001


class Job:
    """A job for which the thread of a request waits.

    :param statements: the statements of its table.
    :param run: the function that executes it.
    :param expires: the time at which its caller gives up.
    """

    def __init__(
        self, statements: Statements, run: Callable[[Connection], Any], expires: float
    ) -> None:
        self.statements = statements
        self.run = run
        self.expires = expires
        self.is_finished = False
        #: What the function has returned.
        self.result: Any = None
        #: Why the job has failed.
        self.error: Exception | None = None
        self._waiting = Lock()
        self._waiting.acquire()

    def finish(self, error: Exception | None = None) -> None:
        """Let the caller continue."""
        if not self.is_finished:
            self.error = error
            self.is_finished = True
            self._waiting.release()

    def wait(self, seconds: float) -> bool:
        """Wait until the job has finished, and return False after some seconds."""
        return self._waiting.acquire(timeout=max(0, seconds))


class Add(Job):
    """The add of a plant. Waiting adds of different ids are executed together.

    :param statements: the statements of its table.
    :param plant: the new plant.
    :param expires: the time at which its caller gives up.
    """

    def __init__(self, statements: Statements, plant: Plant, expires: float) -> None:
        super().__init__(statements, lambda _: None, expires)
        self.plant = plant
        #: Whether it must not be executed with others.
        self.is_alone = False


class WaitingJobs(SimpleQueue[Job | None]):
    """The jobs that wait for a thread. ``None`` ends the threads."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = Lock()
        # The job that did not fit into the last group. It is executed next.
        self._next: list[Job | None] = []
        # The number of adds that the next group probably has.
        self._expected = 1

    def empty(self) -> bool:
        """Return whether no job waits."""
        return super().empty() and not self._next

    def take(self) -> list[Job]:
        """Return the next job, or a group of adds. The list is empty at the end.

        If the last group was large, a thread waits until this one is as large, while more adds
        arrive: large groups need less processor time. Meanwhile, no other thread takes an add.
        """
        with self._turn:
            first = self._next.pop() if self._next else self.get()
            if first is None:
                return []
            return self._group(first) if isinstance(first, Add) else [first]

    def _group(self, first: Add) -> list[Job]:
        group: dict[int, Job] = {first.plant.id: first}
        room = _GROUP_WEIGHT - first.plant.characters
        while len(group) < _GROUP_SIZE and not first.is_alone:
            try:
                other = self.get(len(group) < self._expected, _PAUSE)
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
    """Return whether a job is an add that may be in the same group as another add.

    :param room: the number of characters that it may have.
    """
    return (
        isinstance(other, Add)
        and other.statements is first.statements
        and other.plant.characters <= room
        and not other.is_alone
    )
