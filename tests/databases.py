"""Where plants may be kept: memory, a file, a server in a temporary folder on a free port."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from .serving import LIMIT, free_port


@dataclass
class Server:
    """The process of a database server."""

    command: list[Any]
    asked: list[Any]  # A command that succeeds when the server answers.
    end: signal.Signals  # At which it doesn't wait for its clients to leave.
    user: dict[str, Any]

    def start(self) -> None:
        """Return once it answers."""
        self.process = subprocess.Popen(self.command, stderr=subprocess.DEVNULL, **self.user)
        until = time.monotonic() + LIMIT
        while subprocess.run(self.asked, capture_output=True, check=False).returncode != 0:
            assert self.process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server doesn't answer"
            time.sleep(0.05)

    def stop(self) -> None:
        """Return once it has ended."""
        self.process.send_signal(self.end)
        self.process.wait(LIMIT)

    @contextmanager
    def running(self) -> Iterator["Server"]:
        """Run it meanwhile."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Have it stopped meanwhile."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Have it stand still meanwhile, with all its connections open."""
        parts = [self.process.pid, *children(self.process.pid)]
        for pid in parts:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in parts:
                os.kill(pid, signal.SIGCONT)


@dataclass
class Place:
    """Where plants may be kept, by the URL of the store; ``server`` is there if it has one."""

    url: str
    _server: Server | None = None

    @property
    def server(self) -> Server:
        """The server, where there is one."""
        assert self._server is not None
        return self._server

    def clear(self) -> None:
        """Make it as if it was new."""
        if self.url != "memory://":
            engine = create_engine(self.url)
            with engine.begin() as connection:
                connection.execute(text("DROP TABLE IF EXISTS plants"))
            engine.dispose()


@contextmanager
def memory() -> Iterator[Place]:
    """Give this process's memory."""
    yield Place("memory://")


@contextmanager
def sqlite() -> Iterator[Place]:
    """Give a file."""
    with tempfile.TemporaryDirectory(prefix="plantstore-") as folder:
        yield Place(f"sqlite:///{folder}/plants.db")


@contextmanager
def postgresql() -> Iterator[Place]:
    """Run a PostgreSQL server."""
    bins = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not bins:
        pytest.skip("apt-get install postgresql")
    with _folder("postgres") as (folder, user):
        data, port = folder / "data", str(free_port())
        make: list[Any] = [
            bins[-1] / "initdb",
            "-D",
            data,
            "-U",
            "plants",
            "-A",
            "trust",
            "-E",
            "UTF8",
        ]
        subprocess.run([*make, "--locale=C"], check=True, capture_output=True, **user)
        serve = [bins[-1] / "postgres", "-D", data, "-p", port, "-k", folder]
        asked = [bins[-1] / "pg_isready", "-q", "-h", "127.0.0.1", "-p", port]
        with Server(serve, asked, signal.SIGINT, user).running() as server:
            yield Place(f"postgresql://plants@127.0.0.1:{port}/postgres", server)


@contextmanager
def mariadb() -> Iterator[Place]:
    """Run a MariaDB server."""
    if shutil.which("mariadbd") is None:
        pytest.skip("apt-get install mariadb-server")
    with _folder("mysql") as (folder, user):
        data, port = f"--datadir={folder / 'data'}", free_port()
        at = ["--no-defaults", "-h127.0.0.1", f"-P{port}", "-uroot"]
        make = ["mariadb-install-db", "--no-defaults", data, "--skip-test-db"]
        make.append("--auth-root-authentication-method=normal")
        subprocess.run(make, check=True, capture_output=True, **user)
        serve = ["mariadbd", "--no-defaults", data, f"--port={port}", "--bind-address=127.0.0.1"]
        serve += [f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}"]
        # As careless as a server may be found.
        serve += ["--sql-mode=", "--character-set-server=latin1"]
        serve += ["--default-storage-engine=MyISAM"]
        asked = ["mariadb-admin", *at, "ping"]
        with Server(serve, asked, signal.SIGTERM, user).running() as server:
            subprocess.run(["mariadb", *at, "-e", "CREATE DATABASE plants"], check=True)
            yield Place(f"mysql+pymysql://root@127.0.0.1:{port}/plants", server)


SERVERS = [postgresql, mariadb]
DATABASES = [sqlite, *SERVERS]
STORES = [memory, *DATABASES]


@contextmanager
def _folder(user: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Give a temporary folder, and whom to run as: neither server runs as root."""
    with tempfile.TemporaryDirectory(prefix="plantstore-", ignore_cleanup_errors=True) as name:
        if os.getuid() != 0:
            yield Path(name), {"cwd": name}
        else:
            shutil.chown(name, user)
            yield Path(name), {"cwd": name, "user": user, "group": user, "extra_groups": []}


def children(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    listed = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, check=False)
    return [int(pid) for pid in listed.stdout.split()]
