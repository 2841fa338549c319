"""The first use of a store by several threads at the same time."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event, Timer

import pytest
from sqlalchemy import Engine, event

from plantstore import SQLStore, StoreUnavailable
from plantstore.sql._background import Background
from plantstore.stores.deadline import TIMEOUT, deadline
from tests.support.serving import LIMIT
from tests.support.sql import started, use


def test_first_use_of_a_site_engine_by_one_thread_at_a_time(engine: Engine) -> None:
    """Only one thread opens the first connection: SQLAlchemy initializes the engine with it."""
    store, calls, second, alone = SQLStore(engine), count(), Event(), list[bool]()

    def connect(*_: object) -> None:
        if next(calls) == 0:
            alone.append(not second.wait(0.5))  # No other thread must come here meanwhile.
        else:
            second.set()

    event.listen(engine, "do_connect", connect)
    use(store)
    assert alone == [True]


def test_first_use_by_a_read_and_an_add() -> None:
    """The check of the table for a read and its creation for an add do not run concurrently."""
    background, checking, creating, alone = Background(), Event(), Event(), list[bool]()

    def check() -> None:
        checking.set()
        alone.append(not creating.wait(0.5))  # No other thread must come here meanwhile.

    def add() -> None:
        assert checking.wait(LIMIT)
        background.call(creating.set)

    with started(lambda: background.call(check), add) as calling:
        pass
    assert [call.exception() for call in calling] == [None, None]
    assert (alone, creating.is_set()) == ([True], True)


def test_operation_after_a_slow_first_use() -> None:
    """After a slow first use, an operation with too little time left fails; the next succeeds."""
    background, ready = Background(), Event()

    def first_use() -> None:
        assert ready.wait(LIMIT)

    with deadline(TIMEOUT), pytest.raises(StoreUnavailable, match="has not finished yet"):
        background.call(first_use)
    Timer(0.5, ready.set).start()
    with deadline(TIMEOUT / 2), pytest.raises(StoreUnavailable, match="has just finished"):
        background.call(first_use)
    with deadline(TIMEOUT):
        background.call(first_use)


def test_first_use_of_a_site_engine_in_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another thread is in the first use of a site's engine, an operation fails in time."""
    store, connecting, release = SQLStore(engine), Event(), Event()

    def connect(*_: object) -> None:
        connecting.set()
        release.wait(LIMIT)

    event.listen(engine, "do_connect", connect)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(store.ping)
        assert connecting.wait(LIMIT)
        with monkeypatch.context() as patched:
            patched.setattr(store._connections, "timeout", 0.1)  # noqa: SLF001
            with pytest.raises(StoreUnavailable, match="first use"):
                store.ping()
        release.set()
        first.result()
    store.ping()
