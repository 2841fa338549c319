"""A PostgreSQL primary and its synchronous standby, in temporary folders."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from .databases import (
    Server,
    create_postgresql,
    postgresql_commands,
    postgresql_programs,
    server_folder,
)
from .serving import LIMIT, free_port
from .waiting import wait_until

# What the standby is called by the primary.
STANDBY = "standby"
# The number of backends that wait until the standby has the commit.
WAITING = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@dataclass
class Node(Server):
    """One PostgreSQL server of a pair."""

    data: Path
    port: int

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute a statement on a new connection to this server; return its rows."""
        address = f"host=127.0.0.1 port={self.port} user=plants dbname=postgres"
        with psycopg.connect(address, autocommit=True, connect_timeout=LIMIT) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> None:
        """Kill all processes of the server at once, whether it is frozen or not."""
        super().kill()
        # A killed server leaves its segment of shared memory, which no temporary folder contains.
        segment = (self.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
        subprocess.run(["ipcrm", "-m", segment], check=True)


@dataclass
class Pair:
    """A primary, and a standby to which it sends each commit before it acknowledges it."""

    primary: Node
    standby: Node

    @property
    def url(self) -> str:
        """The URL of a store that uses whichever of the two is the primary."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://plants@{hosts}/postgres?target_session_attrs=read-write"

    def promote(self) -> None:
        """Make the standby a primary without a standby; return when it accepts plants.

        The old primary must have been killed, or be frozen until it is killed.
        """
        assert self.standby.execute("SELECT pg_promote()") == [(True,)]

    def waiting(self) -> int:
        """Return how many backends of the primary wait for the standby."""
        ((number,),) = self.primary.execute(WAITING)
        return int(number)

    def is_synchronous(self) -> bool:
        """Return whether the primary waits for the standby at each commit."""
        return self.primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)]


@contextmanager
def postgresql_pair() -> Iterator[Pair]:
    """Run a PostgreSQL primary and its synchronous standby."""
    programs = postgresql_programs()
    with server_folder("postgres") as (folder, options):
        create_postgresql(programs, folder / "primary", options)
        # The standby copies the files of the primary, but not its command. So it has no
        # synchronous standby itself after the promotion: it would wait for that one for ever.
        wait_for_standby = f"synchronous_standby_names={STANDBY}"
        primary = _node(programs, folder / "primary", options, "-c", wait_for_standby)
        with primary.running():
            _copy(programs, primary, folder / "standby")
            standby = _node(programs, folder / "standby", options)
            with standby.running():
                pair = Pair(primary, standby)
                wait_until(pair.is_synchronous)
                yield pair


def _node(programs: Path, data: Path, options: dict[str, Any], *settings: str) -> Node:
    port = free_port()
    serve, check = postgresql_commands(programs, data, port)
    # By default, a server that is killed leaves files in /dev/shm.
    serve += ["-c", "dynamic_shared_memory_type=mmap", *settings]
    return Node(serve, check, signal.SIGINT, options, data, port)


def _copy(programs: Path, primary: Node, data: Path) -> None:
    """Copy the files of a primary for a standby that follows it."""
    address = f"host=127.0.0.1 port={primary.port} user=plants application_name={STANDBY}"
    copy: list[Any] = [programs / "pg_basebackup", "-D", data, "-R", "-c", "fast", "-d", address]
    subprocess.run(copy, check=True, capture_output=True, **primary.options)
