"""A service at full load for a long time, with reloads."""

import signal
import time
from pathlib import Path

import pytest

from plantstore import open_store
from tests.support.clients import Clients, Record
from tests.support.databases import FILES, Place, children, only
from tests.support.serving import Gunicorn
from tests.support.sql import environment
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

# How often the service is reloaded, and the seconds before each reload.
RELOADS, LONG = (6, 2), (10, 60)


def memory(process: int) -> int:
    """Return the bytes of memory that a service uses, shared memory divided by its users."""
    maps = [Path(f"/proc/{pid}/smaps_rollup") for pid in (process, *children(process))]
    lines = [line.split() for path in maps for line in path.read_text().splitlines()]
    return sum(int(line[1]) << 10 for line in lines if line[0] == "Pss:")


def descriptors(process: int) -> int:
    """Return the number of open files of a process."""
    return len([*Path(f"/proc/{process}/fd").iterdir()])


@only(FILES[1])
def test_soak(place: Place, long: bool, record: Record) -> None:
    """At full load with reloads, no request fails, and memory does not grow.

    No file stays open.
    """
    reloads, seconds = LONG if long else RELOADS
    used, opened = list[int](), list[int]()
    with (
        Gunicorn("-w", "2", **environment(place)) as server,
        Clients(server.port, pause=0) as clients,
    ):
        process = server.process.pid
        for _ in range(reloads):
            time.sleep(seconds)  # The load itself is the test.
            used.append(memory(process))
            opened.append(descriptors(process))
            workers = {*children(process)}
            server.signal(signal.SIGHUP)
            wait_until(lambda workers=workers: not workers & {*children(process)})  # type: ignore[misc]
        clients.wait_for_creations()
    assert (clients.refused, clients.unanswered) == (0, 0)
    # It differs between generations of workers, depending on what they share.
    half = reloads // 2
    assert max(used[half:]) < 1.05 * max(used[:half]), used
    assert max(opened[half:]) <= max(opened[:half]), opened
    with open_store(place.url) as store:
        record(set(store), clients)
