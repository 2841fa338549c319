"""What else the service does while its database does not respond, or while an import runs."""

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tests.support.clients import LATEST, Clients, Record, timed
from tests.support.databases import MODES, SERVERS, Place, only
from tests.support.serving import ROOT, Gunicorn, post
from tests.support.sql import environment, open_sql

pytestmark = pytest.mark.drill

# More than the service has threads.
CLIENTS = 40
# The seconds that an outage lasts: a request that waits for its end is too late.
OUTAGE, LONG = LATEST + 1, 20
# The requests for the health of the service, also several at the same time: their status, and the
# seconds in which they must be answered.
HEALTH = [("/healthz", 200, 1.0), *[("/readyz", 503, 2.5)] * 4]
# An import of so many plants takes longer than the service waits for a lock.
IMPORTED, LOCK_TIMEOUT = 150_000, 2


def get(path: str) -> bytes:
    """Return the bytes of a GET request with a token."""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n\r\n"
    return head.encode()


@only(*SERVERS)
def test_freeze(place: Place, long: bool, record: Record) -> None:
    """While the server is frozen, each create is 503 in time, and no health check is delayed.

    When it is not, creates succeed again. No plant is lost.
    """

    def check_health(path: str, status: int, limit: float) -> None:
        end = time.monotonic() + (LONG if long else OUTAGE)
        while time.monotonic() < end:
            response, seconds = timed(lambda: server.request(get(path)))
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
    with open_sql(place.url) as store:
        record({*store}, clients)
    assert clients.slowest() < LATEST


@pytest.mark.parametrize("mode", MODES)
def test_import_into_sqlite_does_not_stop_the_service(tmp_path: Path, mode: str) -> None:
    """During an import into an SQLite file, reads and /readyz are 200, and creates succeed."""
    url, file = f"sqlite:///{tmp_path}/plants.db?journal_mode={mode}", tmp_path / "new.jsonl"
    with file.open("w") as new:
        for id in range(IMPORTED):
            new.write(f'{{"id":{id},"name":"Monstera deliciosa number {id}","tag":"{"x" * 60}"}}\n')
    settings = environment(Place(f"{url}&timeout={LOCK_TIMEOUT}"))
    program = "from plantstore.cli import main; main()"
    command = [sys.executable, "-c", program, "import", str(file)]
    ids = count(IMPORTED)
    requests: list[Callable[[], bytes]] = [
        lambda: get("/plants?limit=10"),
        lambda: get("/readyz"),
        lambda: post(b'{"id":%d,"name":"Rose"}' % next(ids)),
    ]
    with Gunicorn("-w", "1", **settings, PLANTSTORE_OPERATIONS="create list") as server:
        assert server.request(post(b'{"id":-1,"name":"Rose"}')).status == 200
        statuses = []
        with subprocess.Popen(
            [*command, "--store", url], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            while process.poll() is None:
                statuses += [server.request(request()).status for request in requests]
        assert process.returncode == 0
        assert {*statuses} == {200}
        assert server.request(get(f"/plants?after={IMPORTED - 2}&limit=1")).status == 200
