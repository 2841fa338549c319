"""Three machines with PostgreSQL, Patroni and etcd, by the files in deploy/patroni."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import psycopg

from plantstore import Plant
from tests.support.databases import installed, postgresql_programs, server_folder
from tests.support.fresh import run
from tests.support.front import deployed
from tests.support.readme import block
from tests.support.serving import LIMIT, free_port
from tests.support.waiting import program, state, wait_until

PASSWORD = "secret"  # noqa: S105
# Seconds after which a cluster that is not complete has failed.
COMPLETE = 120
# A killed process loses nothing that it has written, so nothing must be synced. By default, a
# server that is killed leaves files in /dev/shm.
_PARAMETERS = "      parameters:\n        fsync: off\n        dynamic_shared_memory_type: mmap\n"


@dataclass
class Machine:
    """A machine of the cluster: a folder, in which all of its processes run, and an address."""

    folder: Path
    address: str
    programs: Path
    options: dict[str, Any]

    def __post_init__(self) -> None:
        self._started = list[subprocess.Popen[bytes]]()

    def start(self) -> None:
        """Start etcd and Patroni, which starts PostgreSQL."""
        settings = (self.folder / "etcd/settings").read_text().splitlines()
        variables = dict(line.split("=", 1) for line in settings if line.startswith("ETCD_"))
        self._run("etcd", [installed("etcd", "etcd-server")], variables)
        self._run("patroni", [self.programs / "patroni", "patroni.yml"], {})

    def _run(self, name: str, command: list[Any], variables: dict[str, str]) -> None:
        options = {**self.options, "cwd": self.folder / name}
        options["env"] = {**options["env"], **variables}
        with (self.folder / f"{name}.log").open("a") as log:
            self._started.append(subprocess.Popen(command, stdout=log, stderr=log, **options))

    def processes(self, name: str = "") -> list[int]:
        """Return the processes that run: all, or those of ``etcd`` or ``patroni``."""
        found = []
        for link in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):  # A process may end at any time.
                if link.readlink().is_relative_to(self.folder / name) and _runs(link.parent):
                    found.append(int(link.parent.name))
        return found

    def signal(self, number: signal.Signals, name: str = "") -> None:
        """Send a signal to all processes, or to those of ``etcd`` or ``patroni``."""
        for process in self.processes(name):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    @contextmanager
    def frozen(self, name: str = "") -> Iterator[None]:
        """Suspend the processes for the block. Their connections stay open."""
        # A process may start another one before it is suspended itself.
        wait_until(lambda: self._all_stopped(name))
        try:
            yield
        finally:
            self.signal(signal.SIGCONT, name)

    def _all_stopped(self, name: str) -> bool:
        self.signal(signal.SIGSTOP, name)
        return all(state(process) == "T" for process in self.processes(name))

    def kill(self) -> None:
        """Kill all processes at once."""
        with self.frozen():
            self.signal(signal.SIGKILL)
        while self._started:
            self._started.pop().wait(LIMIT)
        wait_until(lambda: not self.processes())
        with suppress(OSError):  # A killed server leaves its segment of shared memory.
            lines = (self.folder / "patroni/data/postmaster.pid").read_text().splitlines()
            subprocess.run(["ipcrm", "-m", lines[6].split()[1]], check=False, capture_output=True)

    def log(self) -> str:
        """Return the output of Patroni and PostgreSQL."""
        return (self.folder / "patroni.log").read_text()

    def members(self) -> list[dict[str, Any]]:
        """Return what Patroni says about all members of the cluster, if it responds."""
        connection = HTTPConnection(self.address, 8008, timeout=1)
        with closing(connection), suppress(OSError, ValueError, HTTPException):
            connection.request("GET", "/cluster")
            members: list[dict[str, Any]] = orjson.loads(connection.getresponse().read())["members"]
            return members
        return []

    def execute(self, sql: str, user: str = "postgres", database: str = "postgres") -> list[Any]:
        """Execute a statement; return its rows."""
        address = {"host": self.address, "user": user, "dbname": database, "password": PASSWORD}
        with psycopg.connect(**address, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []


def _runs(process: Path) -> bool:
    return state(int(process.name)) != "Z"


@dataclass
class Cluster:
    """Three machines with a leader and two synchronous standbys."""

    machines: list[Machine]

    @property
    def url(self) -> str:
        """The URL of a store that uses the leader."""
        hosts = ",".join(machine.address for machine in self.machines)
        user = f"plantstore:{PASSWORD}"
        return f"postgresql://{user}@/plantstore?host={hosts}&port=5432,5432,5432"

    def leader(self) -> Machine:
        """Return the machine with the leader of the complete cluster."""
        self.wait_until_complete()
        (leader,) = [it["host"] for it in self.machines[0].members() if it["role"] == "leader"]
        return next(machine for machine in self.machines if machine.address == leader)

    def standbys(self) -> list[Machine]:
        """Return the machines with the standbys of the complete cluster."""
        leader = self.leader()
        return [machine for machine in self.machines if machine is not leader]

    def wait_until_complete(self) -> None:
        """Return when there is a leader, and both others are its synchronous standbys."""
        complete = [("leader", "running"), *[("quorum_standby", "streaming")] * 2]
        wait_until(lambda: all(_roles(it) == complete for it in self.machines), COMPLETE)

    def clear(self) -> None:
        """Drop the table of plants."""
        self.leader().execute("DROP TABLE IF EXISTS plants", database="plantstore")

    def plants(self) -> set[Plant]:
        """Return all plants of the leader."""
        rows = self.leader().execute("SELECT id, name, tag FROM plants", database="plantstore")
        return {Plant(*row) for row in rows}


def _roles(machine: Machine) -> list[tuple[str, str]]:
    """Return the role and the state of each member, as a machine sees them."""
    return sorted((member["role"], member["state"]) for member in machine.members())


@contextmanager
def patroni_cluster() -> Iterator[Cluster]:
    """Run the cluster. At the end, nothing of it is left, also after a failure."""
    random = SystemRandom()
    # Each machine has the ports of the files, so these addresses are used by nothing else.
    network = ".".join(["127", *[str(random.randint(1, 254)) for _ in range(2)]])
    with ExitStack() as cleanup:
        folder, options = cleanup.enter_context(server_folder("postgres"))
        programs = _install(folder)
        machines = []
        for number in (1, 2, 3):
            place = folder / f"node{number}"
            _configure(place, number, network, options)
            machines.append(Machine(place, f"{network}.1{number}", programs, options))
            cleanup.callback(machines[-1].kill)
            machines[-1].start()
        cluster = Cluster(machines)
        for statement in block("prepare-postgresql", "docs/durability.md").split(";\n")[:-1]:
            cluster.leader().execute(statement)
        yield cluster


@contextmanager
def leader_proxy(cluster: Cluster) -> Iterator[str]:
    """Run HAProxy with deploy/patroni/haproxy.cfg; provide the URL of a store behind it."""
    port, command = free_port(), installed("haproxy", "haproxy")
    changes = {f"192.0.2.1{n}": it.address for n, it in enumerate(cluster.machines, start=1)}
    text = deployed("patroni/haproxy.cfg", {**changes, "127.0.0.1:5000": f"127.0.0.1:{port}"})
    with TemporaryDirectory(prefix="plantstore-") as name:
        (file := Path(name, "haproxy.cfg")).write_text(text)
        with program(port, [command, "-db", "-f", file]):
            yield f"postgresql://plantstore:{PASSWORD}@127.0.0.1:{port}/plantstore"


def _install(folder: Path) -> Path:
    """Install Patroni by the commands of docs/many-machines.md; return the folder of its programs.

    Unlike another Python, that of the system can be used by every user.
    """
    lines = block("patroni", "docs/many-machines.md").splitlines()
    commands = "\n".join(line for line in lines if "/opt/patroni" in line)
    commands = commands.replace("python3", "/usr/bin/python3").replace("/opt", str(folder))
    run(f"set -e\n{commands}", folder)
    return folder / "patroni/bin"


def _configure(folder: Path, number: int, network: str, options: dict[str, Any]) -> None:
    """Write the files of a machine."""
    changes = {f"192.0.2.1{other}:": f"{network}.1{other}:" for other in (1, 2, 3)}
    changes |= {"NODE": f"node{number}", "ADDRESS": f"{network}.1{number}"}
    etcd = {"/var/lib/etcd": str(folder / "etcd")}
    patroni = {
        "192.0.2.0/24": "127.0.0.0/8",
        "      parameters:\n": _PARAMETERS,
        "/usr/lib/postgresql/15/bin": str(postgresql_programs()),
        "/var/lib/postgresql/patroni.pgpass": f"{folder}/patroni/pgpass",
        "/var/lib/postgresql/patroni": f"{folder}/patroni/data",
        "/var/run/postgresql": f"{folder}/patroni",
        "PASSWORD-OF-POSTGRES": PASSWORD,
        "mode: required": "mode: off",
    }
    for name, file, others in [("etcd", "settings", etcd), ("patroni", "patroni.yml", patroni)]:
        (folder / name).mkdir(parents=True)
        deploy = "patroni/etcd" if name == "etcd" else "patroni/patroni.yml"
        (folder / name / file).write_text(deployed(deploy, changes | others))
        if "user" in options:
            shutil.chown(folder / name, options["user"], options["group"])
