"""The first use of a store by several threads at the same time."""

from contextlib import suppress
from itertools import count
from threading import Barrier, BrokenBarrierError, Event
from typing import Any

import pytest
from sqlalchemy import Engine, event

from plantstore import SQLStore, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.serving import LIMIT
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import started, use


def test_first_use_of_a_site_engine_by_one_thread_at_a_time(engine: Engine) -> None:
    """Only one thread opens the first connection: SQLAlchemy initializes the engine with it."""
    with engine.connect():
        pass
    store, calls, second, alone = SQLStore(engine), count(), Event(), list[bool]()

    def connect(*_: object) -> None:
        if next(calls) == 0:
            alone.append(not second.wait(0.5))  # No other thread must come here meanwhile.
        else:
            second.set()

    event.listen(engine, "do_connect", connect)
    use(store)
    assert alone == [True]


def test_first_use_by_a_listener(file_engine: Engine) -> None:
    """A listener of the site may use another store during the first use of its engine."""
    store, other = SQLStore(file_engine), SQLStore(file_engine, table="garden_plants")
    uses = iter([lambda: other.add(ROSE_PLANT)])
    event.listen(file_engine, "connect", lambda *_: next(uses, lambda: None)())
    store.add(LILY)
    assert (list(store), list(other)) == ([LILY], [ROSE_PLANT])


def test_stores_that_are_made_at_the_same_time(
    file_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores of one engine share their connections, also if threads make them at the same time."""
    options, both = file_engine.get_execution_options, Barrier(2)

    def wait_for_the_other() -> Any:
        with suppress(BrokenBarrierError):  # The other thread must not come here meanwhile.
            both.wait(0.3)
        return options()

    monkeypatch.setattr(file_engine, "get_execution_options", wait_for_the_other)
    with started(*[lambda: SQLStore(file_engine)] * 2) as making:
        pass
    one, other = (call.result() for call in making)
    assert one._executor is other._executor  # noqa: SLF001


def test_first_use_of_a_site_engine_in_time(engine: Engine) -> None:
    """While another thread is in the first use of a site's engine, an operation fails in time."""
    store, connecting, release = SQLStore(engine), Event(), Event()

    def connect(*_: object) -> None:
        connecting.set()
        release.wait(LIMIT)

    event.listen(engine, "do_connect", connect)
    with started(store.ping) as (first,):
        assert connecting.wait(LIMIT)
        with deadline(0.1), pytest.raises(StoreUnavailable, match="first use"):
            store.ping()
        release.set()
    assert not first.exception()
    store.ping()
