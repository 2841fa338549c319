"""Group commit: one transaction for the adds of several threads."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice, takewhile
from threading import Lock, get_ident

from ..stores.base import Plant, StoreUnavailable
from ..stores.deadline import remaining
from ._statements import Statements


class Add:
    """The add of one thread.

    :param statements: the statements of the table.
    :param plant: the new plant.
    """

    def __init__(self, statements: Statements, plant: Plant) -> None:
        self.statements = statements
        self.plant = plant
        #: Whether the outcome is known: the plant was added, or there is an error.
        self.done = False
        #: Why it is not known that the plant was added.
        self.error: Exception | None = None
        # Whether this thread must commit the next group.
        self.leads = False
        # Whether this add must not be in a group with others.
        self.alone = False
        # The adds that this thread commits.
        self.group: list[Add] = []
        self._wakeup = Lock()
        self._wakeup.acquire()

    def wait(self) -> None:
        """Wait until another thread calls :meth:`wake`, but not beyond the deadline."""
        self._wakeup.acquire(timeout=remaining())

    def wake(self) -> None:
        """Let the thread of this add continue."""
        with suppress(RuntimeError):  # It has been called before.
            self._wakeup.release()


class GroupCommit:
    """Adds that wait while another add commits go into the next transaction together.

    The thread of the first add in the queue leads: it commits this add and those behind it. Then
    the thread of the next add leads. If a group cannot be committed, or if the leading thread is
    interrupted, each of its adds is committed alone, by its own thread.

    :param commit: the function that commits adds of one table in one transaction. It sets ``done``
        of each, unless the group could not be committed. A single add that cannot be committed is
        an exception instead.
    :param size: the maximum number of adds in one transaction.
    """

    def __init__(self, commit: Callable[[list[Add]], None], size: int) -> None:
        self._commit = commit
        self._size = size
        self._lock = Lock()
        self._queue: deque[Add] = deque()
        self._has_leader = False
        # The thread that is committing.
        self._committing: int | None = None

    def add(self, add: Add) -> None:
        """Commit an add, alone or in a group.

        :raises StoreUnavailable: if the deadline passes while other adds are committed.
        """
        if self._committing == get_ident():
            self._commit([add])  # An event of SQLAlchemy during an add has called this method.
        else:
            self._wait_or_lead(add)
        if not add.done:
            raise StoreUnavailable("the adds of other threads took too long")
        if add.error is not None:
            raise add.error

    def _wait_or_lead(self, add: Add) -> None:
        try:
            self._enter(add)
            if not add.leads:
                add.wait()
            if add.leads:
                self._lead(add)
        finally:
            try:
                self._leave(add)
            except BaseException:
                self._leave(add)  # The thread was interrupted here. Others still wait for it.
                raise

    def _enter(self, add: Add) -> None:
        with self._lock:
            self._queue.append(add)
            add.leads, self._has_leader = not self._has_leader, True

    def _lead(self, add: Add) -> None:
        with self._lock:
            add.group = [add] if add.alone else [*self._first_adds()]
        self._committing = get_ident()
        try:
            self._commit(add.group)
            if not add.done:
                self._commit([add])
        finally:
            self._committing = None

    def _first_adds(self) -> Iterator[Add]:
        table = self._queue[0].statements
        first = islice(self._queue, self._size)
        return takewhile(lambda add: not add.alone and add.statements is table, first)

    def _leave(self, add: Add) -> None:
        """Take finished adds out of the queue, and let another thread lead. May be repeated."""
        with self._lock:
            for member in add.group:
                if member.done:
                    self._remove(member)
                    member.wake()
                else:
                    member.alone = True
            self._remove(add)
            if add.leads:
                self._has_leader = bool(self._queue)
                if self._has_leader:
                    self._queue[0].leads = True
                    self._queue[0].wake()
                add.leads = False

    def _remove(self, add: Add) -> None:
        with suppress(ValueError):
            self._queue.remove(add)
