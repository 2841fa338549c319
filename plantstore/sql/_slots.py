"""The slots for the connections of a store: how many operations a server can have at a time."""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Any

from ..stores.base import StoreUnavailable
from ..stores.deadline import remaining
from ._sockets import is_readable

# The seconds between two looks at the connections whose server has not responded.
_PAUSE = 0.1
# The seconds between two attempts to find another server while one responds to nothing.
_ATTEMPT_INTERVAL = 1.0


class Slots:
    """The slots for the connections of one engine.

    The operation of a connection takes a slot. If its server has not responded in time, for
    example because it waits for a replica, the slot stays taken until the server responds or the
    connection ends. So a server never works on more operations than there are slots, although
    their clients have given up.

    If the operations of all slots wait, an attempt is made each second with one more connection.
    It may find another server, for example after a failover, or that the server has ended
    operations whose responses were lost. Their slots are then free.

    :param size: the number of slots.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._taken = 0
        self._changed = Condition()
        # The connections whose server has not responded.
        self._waiting: list[Any] = []
        self._next_attempt = 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take a slot for the duration of the block.

        :raises StoreUnavailable: if the deadline passes before there is one.
        """
        with self._changed:
            while not self._is_free():
                if not remaining():
                    raise StoreUnavailable(self._full())
                self._changed.wait(min(_PAUSE, remaining()))
            self._taken += 1
        try:
            yield
        finally:
            with self._changed:
                self._taken -= 1
                self._changed.notify()

    def keep(self, driver: Any) -> None:
        """Keep the slot of a connection whose operation has failed, if its server works on it.

        :param driver: the connection of the driver. Those of our own engines have these attributes:
            ``server`` is the address, ``session`` the number that the server has given to the
            connection, or ``None``, and ``unanswered`` is ``None`` or something that has the
            methods ``fileno`` and ``close`` of a socket.
        """
        if getattr(driver, "unanswered", None) is not None:
            with self._changed:
                self._waiting.append(driver)

    def check_server(
        self, driver: Any, working: Callable[[Collection[int]], Collection[int]]
    ) -> None:
        """Check that a server may be given another operation.

        :param working: a function that returns which of the sessions work on an operation.
        :raises StoreUnavailable: if operations of all slots wait for this server.
        """
        if len(self._waiting) < self._size:
            return
        known = {it.session for it in self._waiting if it.session is not None}
        active = {None, *working(known)} if known else {None}
        with self._changed:
            self._remove(
                [
                    it
                    for it in self._waiting
                    if it.server != driver.server or it.session not in active
                ]
            )
            if len(self._waiting) >= self._size:
                raise StoreUnavailable(self._full())

    def close(self) -> None:
        """Forget the operations without a response."""
        with self._changed:
            self._remove([*self._waiting])

    def _is_free(self) -> bool:
        self._remove([it for it in self._waiting if is_readable(it.unanswered)])
        if len(self._waiting) < self._size:
            return self._taken + len(self._waiting) < self._size
        now = time.monotonic()
        is_attempt = not self._taken and now >= self._next_attempt
        if is_attempt:
            self._next_attempt = now + _ATTEMPT_INTERVAL
        return is_attempt

    def _remove(self, connections: list[Any]) -> None:
        for connection in connections:
            self._waiting.remove(connection)
            connection.unanswered.close()

    def _full(self) -> str:
        waiting = len(self._waiting)
        reason = f", {waiting} of them by operations without a response" if waiting else ""
        return f"all {self._size} connections of the store are in use{reason}"
