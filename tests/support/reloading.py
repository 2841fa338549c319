"""Reloads of a running service, and the files that it reads again."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.databases import children
from tests.support.serving import ROOT, Server, post
from tests.support.sites import new_rose
from tests.support.waiting import wait_until


def write(path: Path, text: str | None) -> Path:
    """Replace a file of tokens by a rename, or remove it."""
    if text is None:
        path.unlink()
    else:
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)
    return path


REFUSED = r"\[ERROR\] plantstore: .* The service continues as before: correct this, then reload"


def status(server: Server, token: str) -> int:
    """Return the status of a create request with a token."""
    request = post(new_rose()).replace(b"s3cret", token.encode())
    return server.request(request).status


def workers(server: Server) -> set[int]:
    """Return the processes of the workers."""
    return {*children(server.process.pid)}


def reload(server: Server, expected: str) -> None:
    """Send SIGHUP; return when the log has another line like the expected one."""
    count = len(re.findall(expected, server.log))
    server.signal(signal.SIGHUP)
    wait_until(lambda: len(re.findall(expected, server.log)) > count)


def kill_workers(server: Server) -> None:
    """Kill the workers; return when each has been replaced."""
    killed = workers(server)
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: len(workers(server) - killed) == len(killed))


@contextmanager
def served(folder: Path, **environment: str) -> Iterator[Server]:
    """Run a service of two workers, whose file of tokens has the token `one`."""
    write(folder / "tokens", "one\n")
    options = ("--workers=2", "--store=sqlite:///plants.db")
    environment = {"PLANTSTORE_TOKENS_FILE": "tokens", **environment}

    def has_both_workers() -> bool:
        assert status(server, "unknown") == 401
        return len({*re.findall(r"\[(\d+)\] \[INFO\] 40102: ", server.log)}) == 2

    with serve(*options, folder=folder, **environment) as server:
        wait_until(has_both_workers)
        yield server


# The command from any folder, without an installation.
ANYWHERE = {"PYTHONPATH": str(ROOT)}


def serve(*arguments: str, folder: Path, **environment: str) -> Server:
    """Return the service of `plantstore serve` on a free port, in a folder."""
    command = ("plantstore", "serve", "--bind", "127.0.0.1:0", *arguments)
    return Server(*command, cwd=folder, **{**ANYWHERE, **environment})


def memory(server: Server) -> int:
    """Return the bytes of memory that the only worker of a server uses."""
    (worker,) = workers(server)
    pages = Path(f"/proc/{worker}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
