"""The first use of many stores by several threads at the same time, also after forks."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.databases import SERVERS, Place, only
from tests.support.serving import LIMIT, ROOT
from tests.support.sql import THREADS, make_store, open_sql, use

pytestmark = pytest.mark.drill

OPENED_BY = pytest.mark.parametrize("opened_by", ["url", "engine of a site"])


@pytest.fixture
def switching() -> Iterator[None]:
    """Let Python switch between threads very often."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


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


FORK = f"""
import os, sys
from tests.support.sql import make_store, use
from tests.support.waiting import wait_for_ended_threads
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
