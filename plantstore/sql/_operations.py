"""The operations that the threads of a store execute."""

from collections.abc import Callable
from threading import Lock
from typing import Any

from sqlalchemy import Connection

from ..stores.base import Plant
from ._statements import Statements


class Operation:
    """An operation for which the thread of a request waits.

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
        #: Why the operation has failed.
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
        """Wait until the operation has finished, and return False after some seconds."""
        return self._waiting.acquire(timeout=max(0, seconds))


class Add(Operation):
    """The add of a plant. Adds that wait are executed together.

    :param statements: the statements of its table.
    :param plant: the new plant.
    :param expires: the time at which its caller gives up.
    """

    def __init__(self, statements: Statements, plant: Plant, expires: float) -> None:
        super().__init__(statements, lambda _: None, expires)
        self.plant = plant
        #: Whether it must not be executed with others.
        self.is_alone = False

    def belongs_to(self, other: "Add") -> bool:
        """Return whether both may be executed together."""
        return self.statements is other.statements and not self.is_alone and not other.is_alone
