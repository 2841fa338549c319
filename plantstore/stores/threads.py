"""Functions in threads of their own: the caller waits for them until its deadline at most."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

_T = TypeVar("_T")


def start(function: Callable[..., _T], *arguments: Any, **options: Any) -> Future[_T]:
    """Call a function in a new thread, and return its future result.

    The thread does not delay the end of the process, unlike those of a ThreadPoolExecutor.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments, **options))
        except BaseException as error:  # noqa: BLE001  # The caller gets it.
            future.set_exception(error)

    Thread(target=run, name=f"plantstore {function.__name__}", daemon=True).start()
    return future
