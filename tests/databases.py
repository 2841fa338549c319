"""Where plants may be kept: memory, a file, a server in a temporary folder on a free port."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .serving import LIMIT


class Database(NamedTuple):
    """An empty database, by the URL of its store; ``pid`` is its server's process, if any."""

    url: str
    pid: int = 0

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the server, with all its connections open."""
        stopped = [self.pid, *_children(self.pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)


def _children(parent: int) -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]


@contextmanager
def memory() -> Iterator[Database]:
    """Give this process's memory."""
    yield Database("memory://")


@contextmanager
def sqlite() -> Iterator[Database]:
    """Give a database in a file."""
    with tempfile.TemporaryDirectory(prefix="plantstore-") as folder:
        yield Database(f"sqlite:///{folder}/plants.db")


@contextmanager
def postgresql() -> Iterator[Database]:
    """Run a PostgreSQL server."""
    bins = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not bins:
        pytest.skip("apt-get install postgresql")
    with _folder("postgres") as (folder, user):
        data, port = folder / "data", _free_port()
        make: list[Any] = [
            bins[-1] / "initdb",
            "-D",
            data,
            "-U",
            "plants",
            "-A",
            "trust",
            "--no-sync",
        ]
        subprocess.run([*make, "-E", "UTF8", "--locale=C"], check=True, capture_output=True, **user)
        serve: list[Any] = [bins[-1] / "postgres", "-D", data, "-p", str(port), "-k", str(folder)]
        asked = [bins[-1] / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        serve += ["-c", "listen_addresses=127.0.0.1"]
        with _serving(serve, asked, signal.SIGINT, user) as pid:
            yield Database(f"postgresql+psycopg://plants@127.0.0.1:{port}/postgres", pid)


@contextmanager
def mariadb() -> Iterator[Database]:
    """Run a MariaDB server."""
    if shutil.which("mariadbd") is None:
        pytest.skip("apt-get install mariadb-server")
    with _folder("mysql") as (folder, user):
        data, port = f"--datadir={folder / 'data'}", _free_port()
        at = ["--no-defaults", "-h127.0.0.1", f"-P{port}", "-uroot"]
        make = ["mariadb-install-db", "--no-defaults", data, "--skip-test-db"]
        make.append("--auth-root-authentication-method=normal")
        subprocess.run(make, check=True, capture_output=True, **user)
        serve = ["mariadbd", "--no-defaults", data, f"--port={port}", "--bind-address=127.0.0.1"]
        serve += [f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}"]
        with _serving(serve, ["mariadb-admin", *at, "ping"], signal.SIGTERM, user) as pid:
            subprocess.run(["mariadb", *at, "-e", "CREATE DATABASE plants"], check=True)
            yield Database(f"mysql+pymysql://root@127.0.0.1:{port}/plants", pid)


SERVERS = [postgresql, mariadb]
DATABASES = [sqlite, *SERVERS]
STORES = [memory, *DATABASES]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _folder(user: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Give a temporary folder, and whom to run as: neither server runs as root."""
    with tempfile.TemporaryDirectory(prefix="plantstore-", ignore_cleanup_errors=True) as name:
        if os.getuid() != 0:
            yield Path(name), {"cwd": name}
        else:
            shutil.chown(name, user)
            yield Path(name), {"cwd": name, "user": user, "group": user, "extra_groups": []}


@contextmanager
def _serving(
    command: list[Any], asked: list[Any], stop: signal.Signals, user: dict[str, Any]
) -> Iterator[int]:
    """Run a server from when it answers until it has stopped; give its process's number.

    ``stop`` is the signal at which it doesn't wait for its clients to leave.
    """
    with subprocess.Popen(
        command, stderr=subprocess.DEVNULL, start_new_session=True, **user
    ) as server:
        until = time.monotonic() + LIMIT
        while subprocess.run(asked, capture_output=True, check=False).returncode != 0:
            assert server.poll() is None, f"{command[0]} ended"
            assert time.monotonic() < until, f"{command[0]} doesn't answer"
            time.sleep(0.05)
        try:
            yield server.pid
        finally:
            server.send_signal(stop)
            server.wait(LIMIT)
