"""A PostgreSQL primary and its synchronous standby, in temporary folders."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, text

from plantstore import Plant, StoreUnavailable
from plantstore.stores.deadline import deadline
from tests.support.databases import PostgreSQL, postgresql_programs, server_folder
from tests.support.serving import LIMIT
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import open_sql, started
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
        primary = Node(folder / "primary", options, *wait_for_standby)
        primary.create()
        standby = Node(folder / "standby", options)
        with primary.running():
            _copy(primary, standby)
            with standby.running():
                pair = Pair(primary, standby)
                wait_until(pair.is_synchronous)
                yield pair


def _copy(primary: Node, standby: Node) -> None:
    """Copy the files of a primary for a standby that follows it."""
    address = f"host=127.0.0.1 port={primary.port} user=plants application_name={STANDBY}"
    copy: list[Any] = [
        postgresql_programs() / "pg_basebackup",
        "-D",
        standby.data,
        "-R",
        "-c",
        "fast",
    ]
    subprocess.run([*copy, "-d", address], check=True, capture_output=True, **primary.options)


class Administrator:
    """Another client of the server, which waits for no standby."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")

    def execute(self, *statements: str) -> Any:
        """Execute statements, and return the first value of the last one."""
        with self._engine.connect() as connection:
            connection.execute(text("SET synchronous_commit = local"))
            for statement in statements:
                result = connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None

    @contextmanager
    def missing_standby(self) -> Iterator[None]:
        """Let each commit wait for a standby that does not exist."""
        names, reload = "ALTER SYSTEM {} synchronous_standby_names {}", "SELECT pg_reload_conf()"
        self.execute(names.format("SET", "= 'missing'"), reload)
        try:
            wait_until(self._commits_wait)
            yield
        finally:
            self.execute(names.format("RESET", ""), reload)

    def _commits_wait(self) -> bool:
        """Return whether a commit waits. A process of the server must first read the setting."""
        with started(self._commit) as (commit,):
            wait_until(lambda: commit.done() or self.waiting() == 1)
            if commit.done():
                return False
            self.cancel()
            return True

    def _commit(self) -> None:
        with self._engine.connect() as connection:
            connection.execute(text("SET synchronous_commit = on"))
            connection.execute(text("COMMENT ON SCHEMA public IS 'plants'"))

    def waiting(self) -> int:
        """Return how many commits wait for the standby."""
        number: int = self.execute(f"SELECT count(*) {WAITING}")
        return number

    def cancel(self) -> None:
        """Cancel the only commit that waits for the standby."""
        wait_until(lambda: self.waiting() == 1)
        self.execute(f"SELECT pg_cancel_backend(pid) {WAITING}")


def check_waiting_adds(url: str, admin: Administrator, most: int = MOST) -> None:
    """Check that so many adds wait for the standby, that reads go on, and that adds recover."""

    def add(id: int) -> bool:
        with deadline(0.3), suppress(StoreUnavailable):
            store.add(Plant(id, "waits"))
            return True
        return False

    with open_sql(url) as store:
        store.add(LILY)
        with admin.missing_standby():
            ids = count(100)

            def add_some() -> int:
                with started(*[lambda: add(next(ids))] * 20) as adding:
                    assert not any(call.result() for call in adding)
                return admin.waiting()

            wait_until(lambda: add_some() == most)
            for _ in range(5):
                assert add_some() == most
                assert store.get(LILY.id) == LILY
        wait_until(lambda: admin.waiting() == 0)
        store.add(ROSE_PLANT)
        with started(*[lambda id=id: store.add(Plant(id, "")) for id in range(10, 26)]) as adding:
            for call in adding:
                call.result()
