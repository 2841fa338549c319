"""What else the service does while its database does not respond, or while an import runs."""

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from plantstore import Plant, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.clients import LATEST, timed
from tests.support.databases import MODES, SERVERS, Place, only
from tests.support.proxy import proxy
from tests.support.serving import ROOT, Gunicorn, post
from tests.support.sql import environment, open_sql
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

# More than the service has threads.
CLIENTS = 40
# The seconds that an outage lasts.
OUTAGE = 12
# The requests for the health of the service, also several at the same time: their status, and the
# seconds in which they must be answered.
HEALTH = [("/healthz", 200, 1.0), *[("/readyz", 503, 2.5)] * 4]
IMPORTED = 300_000


def get(path: str) -> bytes:
    """Return the bytes of a GET request with a token."""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n\r\n"
    return head.encode()


@only(*SERVERS)
def test_outage_delays_no_other_request(place: Place) -> None:
    """While the server is frozen, each create is 503 in time, and no health check is delayed."""
    ids, is_over = count(1), Event()

    def create_until_the_end(server: Gunicorn) -> list[tuple[int, float]]:
        responses = []
        while not is_over.is_set():
            body = b'{"id":%d,"name":"Rose"}' % next(ids)
            response, seconds = timed(lambda body=body: server.request(post(body)))  # type: ignore[misc]
            responses.append((response.status, seconds))
            is_over.wait(0.2 * (response.status != 200))
        return responses

    def check_health(server: Gunicorn, path: str, status: int, limit: float) -> bool:
        end, is_right = time.monotonic() + OUTAGE, True
        while time.monotonic() < end:
            response, seconds = timed(lambda: server.request(get(path)))
            is_right &= response.status == status and seconds < limit
            is_over.wait(0.2)
        return is_right

    with (
        Gunicorn("-w", "1", **environment(place)) as server,
        ThreadPoolExecutor(CLIENTS + len(HEALTH)) as threads,
    ):
        assert server.request(post(b'{"id":0,"name":"Rose"}')).status == 200
        clients = [threads.submit(create_until_the_end, server) for _ in range(CLIENTS)]
        try:
            with place.server.frozen():
                checks = [threads.submit(check_health, server, *arguments) for arguments in HEALTH]
                assert [check.result() for check in checks] == [True] * len(HEALTH)
        finally:
            is_over.set()
        responses = [response for client in clients for response in client.result()]
        assert {status for status, _ in responses} == {200, 503}
        assert max(seconds for _, seconds in responses) < LATEST
        assert "50001" not in server.log


@only(*SERVERS)
def test_lost_responses(place: Place) -> None:
    """If a proxy forgets the connections in use, adds and reads succeed again without a restart."""
    with proxy(place) as gate, ThreadPoolExecutor(16) as threads, open_sql(gate.url) as store:
        ids = count()

        def succeeds(operation: Callable[[], object]) -> bool:
            with deadline(0.5), suppress(StoreUnavailable):
                operation()
                return True
            return False

        def add() -> bool:
            return succeeds(lambda: store.add(Plant(next(ids), "Rose")))

        def get() -> bool:
            return succeeds(lambda: store.get(0))

        def use_together() -> list[bool]:
            return [*threads.map(lambda use: use(), [add, get] * 8)]

        wait_until(lambda: all(use_together()))
        for _ in range(2):  # After the first time, more connections are opened.
            gate.silence()
            assert not all(use_together())
        wait_until(lambda: all(use_together()))


@pytest.mark.parametrize("mode", MODES)
def test_import_into_sqlite_does_not_stop_the_service(tmp_path: Path, mode: str) -> None:
    """During an import into an SQLite file, reads and /readyz are 200, and creates succeed."""
    url, file = f"sqlite:///{tmp_path}/plants.db?journal_mode={mode}", tmp_path / "new.jsonl"
    with file.open("w") as new:
        for id in range(IMPORTED):
            new.write(f'{{"id":{id},"name":"Monstera deliciosa number {id}","tag":"{"x" * 60}"}}\n')
    settings = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": url}
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
