"""Reloads (SIGHUP) of the service under gunicorn, and workers that are replaced."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.certificates import with_certificate
from tests.support.installing import install
from tests.support.reloading import REFUSED, kill_workers, reload, served, status, workers, write
from tests.support.serving import ROOT, Gunicorn, post
from tests.support.sites import new_rose
from tests.support.waiting import wait_until

pytestmark = pytest.mark.server


def test_broken_file_of_tokens(tmp_path: Path) -> None:
    """A reload with a broken file of tokens is refused in one line: the old ones stay in use."""
    with served(tmp_path) as server:
        old = workers(server)
        for fault in ("", "# none\n", "two\nthr#ee\n", None):  # None is a missing file.
            write(tmp_path / "tokens", fault)
            reload(server, REFUSED)
            assert workers(server) == old
            assert {status(server, "one") for _ in range(5)} == {200}
        assert len(re.findall(r"\[ERROR\] plantstore: PLANTSTORE_TOKENS_FILE: \w", server.log)) == 4
        assert "PLANTSTORE_TOKENS_FILE: line 2 is neither" in server.log
        write(tmp_path / "tokens", "two\n")
        reload(server, "Workers: 2")
        for line in ("Operations: create", "The store can be used."):
            wait_until(lambda line=line: server.log.count(line) == 2)  # type: ignore[misc]
        wait_until(lambda: not old & workers(server))
        assert (status(server, "one"), status(server, "two")) == (401, 200)
        assert "Traceback" not in server.log


def test_worker_that_starts_while_the_file_is_broken(tmp_path: Path) -> None:
    """A worker that starts while the file of tokens is broken accepts none, until it is right."""
    with served(tmp_path) as server:
        write(tmp_path / "tokens", "# none\n")
        kill_workers(server)
        response = server.request(post(new_rose()))
        assert (response.error, response.headers["retry-after"]) == (50304, "5")
        server.wait_for(r"\[ERROR\] 50304: The file of tokens cannot be used: \w.*\.")
        write(tmp_path / "tokens", "two\n")
        # Each worker looks at the file when it gets a request.
        wait_until(lambda: {status(server, "two") for _ in range(10)} == {200})
        wait_until(lambda: {status(server, "one") for _ in range(10)} == {401})
        assert "Worker exited" not in server.log


# The store of another package, which has the same fault as a broken certificate.
STORE = """
from pathlib import Path
from plantstore import MemoryStore

def open(url):
    if Path(__file__).with_name("cert.pem").read_text() == "broken":
        raise KeyError("garden")
    return MemoryStore()
"""
FAULT = r"\[ERROR\] 'garden'\. The service continues as before: correct this, then(?s:.*)Traceback"


@pytest.mark.parametrize(("url", "refusal"), [("memory://", REFUSED), ("garden://", FAULT)])
def test_reload_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, refusal: str
) -> None:
    """A reload with a broken certificate, or store of another package, is refused: all goes on."""
    install(monkeypatch, tmp_path, "garden", "garden", STORE)
    files, certificate = with_certificate(tmp_path), tmp_path / "cert.pem"
    settings = {"PLANTSTORE_TOKENS": "one", "PLANTSTORE_STORE": url}
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    with Gunicorn(*(files if url == "memory://" else ()), PYTHONPATH=path, **settings) as server:
        server.tls = url == "memory://"
        assert status(server, "one") == 200
        old, text = workers(server), certificate.read_text()
        certificate.write_text("broken")
        reload(server, refusal)
        assert (workers(server), status(server, "one")) == (old, 200)
        certificate.write_text(text)
        server.signal(signal.SIGHUP)
        wait_until(lambda: not old & workers(server))
        assert status(server, "one") == 200
