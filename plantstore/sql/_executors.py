"""Chooses who executes the jobs of an engine: threads of the store, or those of a site."""

import os
import sys
from threading import Lock
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Engine

from ._own import OwnConnections
from ._site import SiteConnections
from .engines import backend_of

Executor = OwnConnections | SiteConnections

# The executor of each engine. It refers to the engine: a reference to it would keep both in memory.
_executors: WeakKeyDictionary[Engine, ref[Executor]] = WeakKeyDictionary()
_lock = Lock()


def executor_of(engine: Engine) -> Executor:
    """Return the executor of an engine, the same for all its stores.

    :raises ValueError: if the database is not one of those that :mod:`.engines` knows.
    """
    with _lock:
        known = _executors.get(engine)
        executor = None if known is None else known()
        if executor is None:
            backend = backend_of(engine)
            timeout = engine.get_execution_options().get("plantstore")
            if timeout is None:
                executor = SiteConnections(engine, backend)
            else:
                executor = OwnConnections(engine, backend, timeout)
            _executors[engine] = ref(executor)
        return executor


def _all() -> list[Executor]:
    return [executor for known in _executors.values() if (executor := known()) is not None]


def _before_fork() -> None:
    for executor in _all():
        # With an inherited connection, SQLite misjudges its locks: a log in use is deleted.
        if executor.backend.one_writer:
            executor.close()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603
    _lock = Lock()
    for executor in _all():
        executor.after_fork()


if sys.platform != "win32":  # pragma: no branch
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
