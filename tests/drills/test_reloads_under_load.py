"""Reloads under load."""

import signal
from pathlib import Path

import pytest

from plantstore import open_store
from tests.support.clients import Clients, Record
from tests.support.reloading import REFUSED, reload, served, workers, write
from tests.support.serving import Server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.drill

# The contents of the file of tokens, one after the other: good ones, broken ones and no file.
CONTENTS = ["s3cret\nother\n", "", "s3cret kiosk\n", "s3cret\nty#po\n", "s3cret\n", None]


def test_reloads_under_load(tmp_path: Path, long: bool, record: Record) -> None:
    """During reloads under load with good and broken files, no request fails or loses its plant."""
    with served(tmp_path, PLANTSTORE_TOKENS="other") as server:
        # The first workers do not know the token of the clients.
        reload_with(server, tmp_path / "tokens", "s3cret\n")
        with Clients(server.port) as clients:
            for number in range(20 if long else 7):
                clients.wait_for_creations()
                reload_with(server, tmp_path / "tokens", CONTENTS[number % len(CONTENTS)])
            clients.wait_for_creations()
        assert (clients.refused, clients.unanswered) == (0, 0)
        assert "Traceback" not in server.log
    with open_store(f"sqlite:///{tmp_path}/plants.db") as store:
        record({*store}, clients)


def reload_with(server: Server, path: Path, content: str | None) -> None:
    """Reload with a file of tokens; return when the workers have been replaced, or refused."""
    old = workers(server)
    if content is None:
        path.unlink()
    else:
        write(path, content)
    if content is None or "s3cret" not in content or "#" in content:
        reload(server, REFUSED)
        assert old <= workers(server)
    else:
        server.signal(signal.SIGHUP)
        wait_until(lambda: not old & workers(server))
