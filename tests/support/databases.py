"""The stores that the tests run on: memory, a file, and database servers in temporary folders."""

import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from tests.support.serving import LIMIT, free_port
from tests.support.waiting import suspend, wait_until

# With its default, no transaction could write into a table without transactions. The other two are
# on ports of their own.
_OF_MYSQL = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--mysqlx=OFF", "--skip-log-bin"]
# Debian installs servers in /usr/sbin, which is not on the PATH of ordinary users.
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])


@dataclass
class Server:
    """The process of a database server."""

    command: list[Any]
    check: list[Any]  # It succeeds when the server accepts connections.
    stop_signal: signal.Signals  # At this signal, it stops without waiting for its clients.
    options: dict[str, Any]  # Arguments of subprocess.Popen: folder, environment and user.

    def start(self) -> None:
        """Start the server; return when it accepts connections."""
        with tempfile.TemporaryFile() as output:
            self.process = subprocess.Popen(self.command, stderr=output, **self.options)
            try:
                wait_until(self._is_ready)
            except BaseException:
                self.process.kill()
                self.process.wait(LIMIT)
                output.seek(0)
                print(output.read().decode(errors="replace"))  # In the report of the test.
                raise

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, "the database server exited at start"
        return subprocess.run(self.check, capture_output=True, check=False).returncode == 0

    def stop(self) -> None:
        """Stop the server; return when its process has ended."""
        self.process.send_signal(self.stop_signal)
        self.process.wait(LIMIT)

    @contextmanager
    def running(self) -> Iterator["Server"]:
        """Run the server for the duration of the block."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the server for the duration of the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend all processes of the server for the block. Its connections stay open."""
        # The parent comes first, so that it starts no process that is not suspended.
        suspend(self.process.pid)
        processes = [self.process.pid, *children(self.process.pid)]
        for pid in processes:
            suspend(pid)
        try:
            yield
        finally:
            for pid in processes:
                # A process that was about to end is gone as soon as its parent continues.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes of the server at once, whether it is frozen or not."""
        with self.frozen():
            for pid in [*children(self.process.pid), self.process.pid]:
                os.kill(pid, signal.SIGKILL)
            self.process.wait(LIMIT)


@dataclass
class Place:
    """A place for plants: the URL of a store, and the database server if there is one."""

    url: str
    _server: Server | None = None

    @property
    def site_url(self) -> str:
        """The URL for the engine of a site, without the options that only plantstore knows."""
        url = make_url(self.url).difference_update_query(["journal_mode"])
        return url.render_as_string(hide_password=False)

    @property
    def server(self) -> Server:
        """The database server of this place."""
        assert self._server is not None
        return self._server

    def clear(self) -> None:
        """Drop the tables of plants."""
        if self.url != "memory://":
            engine = create_engine(self.site_url)
            with engine.begin() as connection:
                for table in ("plants", "garden_plants"):
                    connection.execute(text(f"DROP TABLE IF EXISTS {table}"))
            engine.dispose()


@contextmanager
def memory() -> Iterator[Place]:
    """Provide the memory of this process."""
    yield Place("memory://")


@contextmanager
def sqlite() -> Iterator[Place]:
    """Provide an SQLite file."""
    with tempfile.TemporaryDirectory(prefix="plantstore-") as folder:
        yield Place(f"sqlite:///{folder}/plants.db")


@contextmanager
def sqlite_wal() -> Iterator[Place]:
    """Provide an SQLite file with a write-ahead log."""
    with sqlite() as place:
        # The file keeps the mode, also for the engine of a site.
        with closing(sqlite3.connect(make_url(place.url).database or "")) as connection:
            connection.execute("PRAGMA journal_mode=wal")
        yield Place(f"{place.url}?journal_mode=wal")


@contextmanager
def postgresql() -> Iterator[Place]:
    """Run a PostgreSQL server."""
    with server_folder("postgres") as (folder, options):
        create_postgresql(folder / "data", options)
        server = PostgreSQL(folder / "data", options)
        with server.running():
            yield Place(f"postgresql+psycopg://plants@127.0.0.1:{server.port}/postgres", server)


def create_postgresql(data: Path, options: dict[str, Any]) -> None:
    """Create the files of a PostgreSQL server. Its role ``plants`` needs no password."""
    create: list[Any] = [postgresql_programs() / "initdb", "-D", data]
    create += ["-U", "plants", "-A", "trust", "-E", "UTF8", "--locale=C"]
    subprocess.run(create, check=True, capture_output=True, **options)


class PostgreSQL(Server):
    """A PostgreSQL server, whose files are in a folder. Create it when they exist.

    Until it starts, another server may get its port.
    """

    def __init__(self, data: Path, options: dict[str, Any], *arguments: str) -> None:
        self.data, self.port = data, free_port()
        serve: list[Any] = [postgresql_programs() / "postgres", "-D", data, "-p", str(self.port)]
        # With a second address, such as ::1, it would start although another server has its port.
        serve += ["-h", "127.0.0.1", "-k", data.parent, *arguments]
        # Only this server has a socket in its folder.
        check = readiness(self.port, data.parent)
        super().__init__(serve, check, signal.SIGINT, options)


def postgresql_programs() -> Path:
    """Return the folder with the programs of the newest PostgreSQL; skip the test without one."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        pytest.skip("apt-get install postgresql")
    return folders[-1]


def readiness(port: int, host: str | Path = "127.0.0.1") -> list[Any]:
    """Return the command that succeeds when PostgreSQL, or what is in front of it, is ready."""
    return [postgresql_programs() / "pg_isready", "-q", "-h", host, "-p", str(port)]


def installed(program: str, package: str) -> str:
    """Return the path of a program; skip the test without it."""
    found = shutil.which(program, path=PATH)
    return found or pytest.skip(f"apt-get install {package}")


@contextmanager
def mariadb() -> Iterator[Place]:
    """Run a MariaDB server, or a MySQL server where only this one is installed."""
    has_mysql = not shutil.which("mariadbd", path=PATH) and shutil.which("mysqld", path=PATH)
    server, client = ("mysqld", "mysql") if has_mysql else ("mariadbd", "mariadb")
    program = installed(server, "mariadb-server")
    with server_folder("mysql") as (folder, options):
        data = f"--datadir={folder / 'data'}"
        if has_mysql:
            create = [program, "--no-defaults", data, "--initialize-insecure"]
            subprocess.run(create, check=True, capture_output=True, **options)
        else:
            install_mariadb(data, options)
        # Only this server has a socket in its folder. Until it starts, another may get its port.
        port, address = free_port(), ["--no-defaults", f"-S{folder / 'socket'}", "-uroot"]
        serve = [program, "--no-defaults", data, f"--port={port}", "--bind-address=127.0.0.1"]
        serve += [f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}"]
        # The least safe configuration that an operator may have: no strict mode, an 8-bit
        # character set, and an engine without transactions.
        serve += ["--sql-mode=", "--character-set-server=latin1"]
        serve += ["--default-storage-engine=MyISAM"]
        serve += _OF_MYSQL if has_mysql else []
        check = [f"{client}admin" if has_mysql else "mariadb-admin", *address, "ping"]
        with Server(serve, check, signal.SIGTERM, options).running() as process:
            subprocess.run([client, *address, "-e", "CREATE DATABASE plants"], check=True)
            yield Place(f"mysql+pymysql://root@127.0.0.1:{port}/plants", process)


def install_mariadb(data: str, options: dict[str, Any]) -> None:
    """Create the files of a MariaDB server. Its user ``root`` needs no password."""
    create = ["mariadb-install-db", "--no-defaults", data, "--skip-test-db"]
    create.append("--auth-root-authentication-method=normal")
    subprocess.run(create, check=True, capture_output=True, **options)


SERVERS = [postgresql, mariadb]
FILES = [sqlite, sqlite_wal]
DATABASES = [*FILES, *SERVERS]
STORES = [memory, *DATABASES]


def only(*places: Any) -> pytest.MarkDecorator:
    """Run a test only on these databases."""
    return pytest.mark.parametrize("place", places, indirect=True)


def on(names: str, rows: Iterable[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Run a test with the values of each row, on the database, or the databases, of its first one.

    :param names: those of the other values, separated by white space.
    """
    each = [
        (place, *values)
        for places, *values in rows
        for place in (places if isinstance(places, list) else [places])
    ]
    return pytest.mark.parametrize(("place", *names.split()), each, indirect=["place"])


@contextmanager
def server_folder(user: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Provide a temporary folder, and the options to run a server as its owner, not as root."""
    with tempfile.TemporaryDirectory(
        prefix="plantstore-", dir=_memory_folder(), ignore_cleanup_errors=True
    ) as name:
        # The user may have no right to write to our own TMPDIR.
        options: dict[str, Any] = {"cwd": name, "env": {**os.environ, "PATH": PATH, "TMPDIR": name}}
        if os.getuid() == 0:
            shutil.chown(name, user)
            options |= {"user": user, "group": user, "extra_groups": []}
        yield Path(name), options


def _memory_folder() -> str | None:
    """Return a folder in memory with enough space, if there is one: a disk can be slow."""
    folder = "/dev/shm"
    has_space = os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2**30
    return folder if has_space else None


def children(parent: int) -> list[int]:
    """Return the ids of a process's child processes."""
    return processes("parent", parent)


def processes(field: str, value: int) -> list[int]:
    """Return the ids of the processes with this ``parent``, ``group`` or ``session``."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end at any time.
        with suppress(FileNotFoundError, ProcessLookupError):
            _, *fields = stat.read_text().rpartition(")")[2].split()[:4]
            if int(dict(zip(("parent", "group", "session"), fields, strict=True))[field]) == value:
                found.append(int(stat.parent.name))
    return found


def kill_oldest_worker(master: int) -> None:
    """Kill the worker with the lowest process id, and return when it has ended."""
    worker = min(children(master))
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: worker not in children(master))


OpenPlace = Callable[[], AbstractContextManager[Place]]
MODES = ["truncate", "wal"]
UNREACHABLE = "postgresql://me:hunter2@127.0.0.1:1/plants"
