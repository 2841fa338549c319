"""The first use of a store by several threads of several processes at the same time."""

import os
import subprocess
import sys

import pytest

from tests.support.databases import SERVERS, Place, only
from tests.support.serving import LIMIT, ROOT
from tests.support.sql import THREADS, open_sql

pytestmark = pytest.mark.drill

FORK = f"""
import os, sys
from tests.support.sql import make_store, use
from tests.support.waiting import wait_for_ended_threads
url, opened_by = sys.argv[1:]
sys.setswitchinterval(1e-5)
for first in range(0, 128, 32):
    store, is_used = make_store(url, opened_by), first % 64
    if is_used:
        use(store, first)
    wait_for_ended_threads()
    children = []
    for child in range(1, 4):
        children.append(os.fork())
        if not children[-1]:
            use(store, first + {THREADS} * child)
            os._exit(0)
    if not is_used:
        use(store, first)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    store.close()
"""


@only(*SERVERS)
@pytest.mark.parametrize("opened_by", ["url", "engine of a site"])
def test_first_use_after_a_fork(place: Place, opened_by: str) -> None:
    """When eight threads of each child process use a store at once, each add succeeds.

    The parent process has used the store before, or uses it for the first time meanwhile.
    """
    command = [sys.executable, "-W", "ignore", "-c", FORK, place.url, opened_by]
    subprocess.run(command, cwd=ROOT, env=os.environ, check=True, timeout=LIMIT)
    with open_sql(place.url) as store:
        assert [plant.id for plant in store] == [*range(128)]
