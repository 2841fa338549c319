"""A PostgreSQL primary and its synchronous standby, in temporary folders."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.support.databases import (
    PostgreSQL,
    create_postgresql,
    postgresql_programs,
    server_folder,
)
from tests.support.serving import LIMIT
from tests.support.waiting import wait_until

# The maximum number of connections with which a process adds plants.
MOST = 12
# What the standby is called by the primary.
STANDBY = "standby"
# The number of backends that wait until the standby has the commit.
WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


class Node(PostgreSQL):
    """One PostgreSQL server of a pair."""

    def __init__(self, data: Path, options: dict[str, Any], *arguments: str) -> None:
        # By default, a server that is killed leaves files in /dev/shm.
        super().__init__(data, options, "-c", "dynamic_shared_memory_type=mmap", *arguments)

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute a statement on a new connection to this server; return its rows."""
        address = f"host=127.0.0.1 port={self.port} user=plants dbname=postgres"
        with psycopg.connect(address, autocommit=True, connect_timeout=LIMIT) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def kill(self) -> None:
        """Kill all processes of the server at once, whether it is frozen or not."""
        super().kill()
        remove_segment(self.data)


def remove_segment(data: Path) -> None:
    """Remove the shared memory of a killed server, which no temporary folder contains."""
    segment = (data / "postmaster.pid").read_text().splitlines()[6].split()[1]
    subprocess.run(["ipcrm", "-m", segment], check=True)


@dataclass
class Pair:
    """A primary, and a standby to which it sends each commit before it acknowledges it."""

    primary: Node
    standby: Node

    @property
    def url(self) -> str:
        """The URL of a store that uses whichever of the two is the primary."""
        ports = f"{self.primary.port},{self.standby.port}"
        return f"postgresql://plants@/postgres?host=127.0.0.1,127.0.0.1&port={ports}"

    def promote(self) -> None:
        """Make the standby a primary. The old one must be killed, or frozen until it is killed."""
        assert self.standby.execute("SELECT pg_promote()") == [(True,)]

    def waiting(self) -> int:
        """Return how many backends of the primary wait for the standby."""
        ((number,),) = self.primary.execute(f"SELECT COUNT(*) {WAITING}")
        return int(number)

    def is_synchronous(self) -> bool:
        """Return whether the primary waits for the standby at each commit."""
        return self.primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)]


@contextmanager
def postgresql_pair() -> Iterator[Pair]:
    """Run a PostgreSQL primary and its synchronous standby."""
    with server_folder("postgres") as (folder, options):
        # The standby copies the files of the primary, but not its command. So it has no
        # synchronous standby itself after the promotion: it would wait for that one for ever.
        wait_for_standby = ("-c", f"synchronous_standby_names={STANDBY}")
        create_postgresql(folder / "primary", options)
        primary = Node(folder / "primary", options, *wait_for_standby)
        with primary.running():
            _copy(primary, folder / "standby")
            # The program that copies does not get this name.
            standby = Node(folder / "standby", options, "-c", f"cluster_name={STANDBY}")
            with standby.running():
                pair = Pair(primary, standby)
                wait_until(pair.is_synchronous)
                yield pair


def _copy(primary: Node, data: Path) -> None:
    """Copy the files of a primary for a standby that follows it."""
    address = f"host=127.0.0.1 port={primary.port} user=plants"
    copy: list[Any] = [postgresql_programs() / "pg_basebackup", "-D", data]
    subprocess.run(
        [*copy, "-R", "-c", "fast", "-d", address],
        check=True,
        capture_output=True,
        **primary.options,
    )
