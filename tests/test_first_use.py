"""The first use of a store by several threads at the same time, also after a fork."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier, Event

import pytest
from sqlalchemy import Engine, create_engine, event

from plantstore import Plant, SQLStore, StoreUnavailable

from .databases import SERVERS, Place, only
from .serving import LIMIT, ROOT
from .test_sql import open_sql

THREADS = 8
OPENED_BY = pytest.mark.parametrize("opened_by", ["url", "engine of a site"])


@pytest.fixture
def switching() -> Iterator[None]:
    """Let Python switch between threads very often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def make_store(url: str, opened_by: str) -> SQLStore:
    """Return a new store, with an engine of its own or with one of a site."""
    return open_sql(url) if opened_by == "url" else SQLStore(create_engine(url))


def use(store: SQLStore, first: int = 0) -> None:
    """Add a plant in each of eight threads at the same time."""
    start = Barrier(THREADS)

    def add(id: int) -> None:
        start.wait(LIMIT)
        store.add(Plant(id, "Rose"))

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(add, range(first, first + THREADS)))


@only(*SERVERS)
@OPENED_BY
@pytest.mark.usefixtures("switching")
def test_first_use_by_many_threads(place: Place, opened_by: str) -> None:
    """When eight threads use a new store for the first time at once, each add succeeds."""
    for first in range(0, 10 * THREADS, THREADS):
        store = make_store(place.url, opened_by)
        use(store, first)
        store.close()
        assert len(store) == first + THREADS
        store.close()


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


FORK = f"""
import os, sys
from tests.test_first_use import make_store, use
from tests.waiting import wait_for_ended_threads
url, opened_by, used = sys.argv[1:]
sys.setswitchinterval(1e-5)
for first in range(0, 160, 32):
    store = make_store(url, opened_by)
    if used == "used":
        use(store, first)
    wait_for_ended_threads()
    children = []
    for child in range(1, 4):
        children.append(os.fork())
        if not children[-1]:
            use(store, first + {THREADS} * child)
            os._exit(0)
    if used == "new":
        use(store, first)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    store.close()
"""


@only(*SERVERS)
@OPENED_BY
@pytest.mark.parametrize("used", ["used", "new"])
def test_first_use_after_a_fork(place: Place, opened_by: str, used: str) -> None:
    """When eight threads of each child process use a store at once, each add succeeds.

    The parent process may have used the store before.
    """
    command = [sys.executable, "-W", "ignore", "-c", FORK, place.url, opened_by, used]
    subprocess.run(command, cwd=ROOT, env=os.environ, check=True, timeout=LIMIT)
    store = open_sql(place.url)
    assert [plant.id for plant in store] == [*range(160)]
    store.close()
