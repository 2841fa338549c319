"""What else the service does while its database does not respond."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.clients import LATEST, Clients, Record, timed
from tests.support.databases import SERVERS, Place, only
from tests.support.serving import Gunicorn
from tests.support.sql import environment, open_sql

pytestmark = pytest.mark.drill

# More than the service has threads.
CLIENTS = 40
# The seconds that an outage lasts: a request that waits for its end is too late.
OUTAGE, LONG = LATEST + 1, 20
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
        end = time.monotonic() + (LONG if long else OUTAGE)
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
    with open_sql(place.url) as store:
        record({*store}, clients)
    assert clients.slowest() < LATEST
