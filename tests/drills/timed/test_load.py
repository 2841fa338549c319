"""A service that is busy with clients, slow ones too, or whose database does not respond."""

import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plantstore import open_store
from tests.support.clients import LATEST, Clients, Record, timed
from tests.support.databases import FILES, SERVERS, Place, children, only
from tests.support.serving import Gunicorn, post
from tests.support.sites import TOKEN, new_rose
from tests.support.sql import environment
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

# The number of clients that send a part of a request.
SLOW = 1000


def test_slow_clients(url: str) -> None:
    """With 1,000 clients that send a part of a request, 99 of 100 others are served in a second."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))

    def create(_: int) -> float:
        response, seconds = timed(lambda: server.request(post(new_rose())))
        assert response.status == 200
        return seconds

    with (
        Gunicorn("-w", "2", PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_STORE=url) as server,
        server.clients(SLOW // 2, post(new_rose())[:60]),
        server.clients(SLOW // 2, post(b"", length=10)),
        ThreadPoolExecutor(8) as threads,
    ):
        seconds = sorted(threads.map(create, range(200)))
        assert "Traceback" not in server.log
    assert seconds[197] < 1, seconds[190:]


# More clients than the service has threads.
CLIENTS = 40
# The seconds that an outage lasts: a request that waits for its end is too late.
OUTAGE, LONG_OUTAGE = LATEST + 1, 20
# The requests for the health of the service, also several at the same time: their status, and the
# seconds in which they must be answered.
HEALTH = [(b"/healthz", 200, 1.0), *[(b"/readyz", 503, 2.5)] * 4]


@only(*SERVERS)
def test_freeze(place: Place, long: bool, record: Record) -> None:
    """While the server is frozen, each create is 503 in time, and no health check is delayed.

    When it is not, creates succeed again. No plant is lost.
    """

    def check_health(path: bytes, status: int, limit: float) -> None:
        request = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path
        end = time.monotonic() + (LONG_OUTAGE if long else OUTAGE)
        while time.monotonic() < end:
            response, seconds = timed(lambda: server.request(request))
            assert (response.status, seconds < limit) == (status, True), (path, seconds)
            time.sleep(0.2)

    with (
        Gunicorn("-w", "1", **environment(place)) as server,
        Clients(server.port, number=CLIENTS, pause=0.2) as clients,
        ThreadPoolExecutor(len(HEALTH)) as threads,
    ):
        clients.wait_for_creations()
        with place.server.frozen():
            for check in [threads.submit(check_health, *arguments) for arguments in HEALTH]:
                check.result()
        clients.wait_for_creations()
        assert "50001" not in server.log
    with open_store(place.url) as store:
        record({*store}, clients)
    assert clients.slowest() < LATEST


# How often the service is reloaded, and the seconds before each reload.
RELOADS, LONG = (6, 2), (10, 60)


def used(process: int) -> tuple[int, int]:
    """Return the memory of a service in KiB, shared memory divided by its users, and its files."""
    maps = [Path(f"/proc/{pid}/smaps_rollup") for pid in (process, *children(process))]
    lines = [line.split() for path in maps for line in path.read_text().splitlines()]
    memory = sum(int(line[1]) for line in lines if line[0] == "Pss:")
    return memory, len([*Path(f"/proc/{process}/fd").iterdir()])


@only(FILES[1])
def test_soak(place: Place, long: bool, record: Record) -> None:
    """At full load with reloads, no request fails, memory does not grow, and no file stays open."""
    reloads, seconds = LONG if long else RELOADS
    uses = list[tuple[int, int]]()
    with (
        Gunicorn("-w", "2", **environment(place)) as server,
        Clients(server.port, pause=0) as clients,
    ):
        process = server.process.pid
        for _ in range(reloads):
            time.sleep(seconds)  # The load itself is the test.
            uses.append(used(process))
            workers = {*children(process)}
            server.signal(signal.SIGHUP)
            wait_until(lambda workers=workers: not workers & {*children(process)})  # type: ignore[misc]
        clients.wait_for_creations()
    assert (clients.refused, clients.unanswered) == (0, 0)
    # It differs between generations of workers, depending on what they share.
    memory, files = zip(*uses, strict=True)
    half = reloads // 2
    assert max(memory[half:]) < 1.05 * max(memory[:half]), memory
    assert max(files[half:]) <= max(files[:half]), files
    with open_store(place.url) as store:
        record(set(store), clients)
