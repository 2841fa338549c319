"""Three machines with PostgreSQL, Patroni and etcd, by the files in deploy/patroni."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from itertools import product
from pathlib import Path
from random import SystemRandom
from typing import Any

import psycopg

from tests.support.databases import installed, postgresql_programs, server_folder
from tests.support.fresh import run
from tests.support.front import deployed
from tests.support.readme import block
from tests.support.replication import remove_segment
from tests.support.serving import LIMIT, free_port
from tests.support.waiting import program, state, wait_until

# A killed process loses nothing that it has written, so nothing must be synced.
_PARAMETERS = "      parameters:\n        fsync: off\n        dynamic_shared_memory_type: mmap\n"
# Machines as namespaces with a bridge.
_CONNECT = """ip link add {0} type bridge && ip address add {1}.1/24 dev {0} && ip link set {0} up
for name in {0}-1 {0}-2 {0}-3; do
    ip netns add $name && ip link add $name type veth peer name eth0 netns $name
    ip link set $name master {0} up && ip -n $name link set lo up && ip -n $name link set eth0 up
    ip -n $name address add {1}.1${{name#*-}}/24 dev eth0
done"""
_DISCONNECT = "for name in {0}-1 {0}-2 {0}-3; do ip netns del $name; done; ip link del {0}"


@dataclass
class Machine:
    """A machine: a folder in which all of its processes run, and an address.

    :param link: its connection to the others, if it can be separated from them.
    """

    number: int
    folder: Path
    network: str
    link: str
    options: dict[str, Any]

    def __post_init__(self) -> None:
        self.address = f"{self.network}.1{self.number}"
        self._started = list[subprocess.Popen[bytes]]()
        changes = {f"192.0.2.1{number}:": f"{self.network}.1{number}:" for number in (1, 2, 3)}
        changes |= {"NODE": f"node{self.number}", "ADDRESS": self.address}
        self._write("etcd", changes | {"/var/lib/etcd/": ""})
        changes |= {"192.0.2.0/24": f"{self.network}.0/24" if self.link else "127.0.0.0/8"}
        changes |= {"PASSWORD-OF-POSTGRES": "secret", "mode: required": "mode: off"}
        changes |= {"/usr/lib/postgresql/15/bin": f"{postgresql_programs()}"}
        changes |= {f"/var/{folder}/postgresql": f"{self.folder}" for folder in ("lib", "run")}
        self._write("patroni.yml", changes | {"      parameters:\n": _PARAMETERS})
        if "user" in self.options:
            shutil.chown(self.folder, self.options["user"], self.options["group"])

    def _write(self, file: str, changes: dict[str, str]) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / file).write_text(deployed(f"patroni/{file}", changes))

    def start(self) -> None:
        """Start etcd and Patroni, which starts PostgreSQL."""
        etcd = f"set -a; . ./etcd; exec {installed('etcd', 'etcd-server')} 2>> etcd.log"
        patroni = "exec ../patroni/bin/patroni patroni.yml 2>> patroni.log >&2"
        options = {**self.options, "cwd": self.folder}
        prefix = list[str]()
        if self.link:
            user, group, _ = [options.pop(name) for name in ("user", "group", "extra_groups")]
            prefix = f"ip netns exec {self.link} setpriv --clear-groups".split()
            prefix += [f"--reuid={user}", f"--regid={group}"]
        commands = [[*prefix, "sh", "-c", command] for command in (etcd, patroni)]
        self._started = [subprocess.Popen(command, **options) for command in commands]

    def _signal(self, number: signal.Signals, name: str) -> set[int]:
        """Send a signal to all processes, or to those with a name; return their numbers."""
        found = set[int]()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # It may end at any time.
                is_here = (process / "cwd").readlink().is_relative_to(self.folder)
                if is_here and name in (process / "comm").read_text():
                    os.kill(int(process.name), number)
                    found.add(int(process.name))
        return found

    @contextmanager
    def frozen(self, name: str = "") -> Iterator[None]:
        """Suspend all processes, or those of ``etcd``, for the block. Connections stay open."""
        # A process may have started another one before.
        wait_until(lambda: {*map(state, self._signal(signal.SIGSTOP, name))} <= {*"TZ"})
        yield
        self._signal(signal.SIGCONT, name)

    @contextmanager
    def separated(self) -> Iterator[None]:
        """Separate the machine from the others, and from the services, for the block."""
        run(f"ip link set {self.link} down", self.folder)
        yield
        run(f"ip link set {self.link} up", self.folder)

    def kill(self) -> None:
        """Kill all processes at once."""
        with self.frozen():
            self._signal(signal.SIGKILL, "")
        for process in self._started:
            process.wait(LIMIT)
        wait_until(lambda: not self._signal(signal.SIGKILL, ""))
        with suppress(OSError):  # The server may not have started.
            remove_segment(self.folder / "patroni")

    def log(self) -> str:
        """Return what Patroni and PostgreSQL have written."""
        return (self.folder / "patroni.log").read_text()

    def has_role(self, role: str) -> bool:
        """Return whether Patroni says that this is the ``primary``, or in the ``quorum``."""
        connection = HTTPConnection(self.address, 8008, timeout=1)
        with closing(connection), suppress(OSError, HTTPException):
            connection.request("OPTIONS", f"/{role}")
            return connection.getresponse().status == 200
        return False


@dataclass
class Cluster:
    """The machines, and the URL of a store that uses whichever has the leader."""

    machines: list[Machine]

    def __post_init__(self) -> None:
        hosts = ",".join(machine.address for machine in self.machines)
        self.url = f"postgresql://plantstore:secret@/plantstore?host={hosts}&port=5432,5432,5432"

    def execute(self, sql: str, database: str = "postgres") -> None:
        """Execute a statement on the leader."""
        url = self.url.replace("//plantstore", "//postgres").replace("/plantstore", f"/{database}")
        with psycopg.connect(f"{url}&target_session_attrs=read-write", autocommit=True) as leader:
            leader.execute(sql.encode())

    def roles(self) -> list[Machine]:
        """Return the leader and its two standbys, as soon as all of them are ready."""
        found = list[Machine]()

        def is_complete() -> bool:
            pairs = product(("primary", "quorum"), self.machines)
            found[:] = [machine for role, machine in pairs if machine.has_role(role)]
            return sorted(machine.number for machine in found) == [1, 2, 3]

        wait_until(is_complete, 2 * LIMIT)
        return found


@contextmanager
def patroni_cluster(*, separable: bool) -> Iterator[Cluster]:
    """Run the cluster. At the end, nothing of it is left, also after a failure.

    :param separable: whether each machine has a network of its own. This needs root.
    """
    # Each machine has the ports of the files, so these addresses are used by nothing else.
    random = [str(SystemRandom().randint(1, 254)) for _ in range(2)]
    network = ".".join(["10" if separable else "127", *random])
    link = f"plants{os.getpid()}" if separable else ""
    with ExitStack() as cleanup:
        folder, options = cleanup.enter_context(server_folder("postgres"))
        # Unlike another Python, that of the system can be used by every user.
        page = block("patroni", "docs/many-machines.md").replace("python3 ", "/usr/bin/python3 ")
        lines = [line.replace("/opt/", "") for line in page.splitlines() if "/opt/" in line]
        run("\n".join(lines), folder)
        if separable:
            cleanup.callback(run, _DISCONNECT.format(link), folder)
            run(_CONNECT.format(link, network), folder)
        machines = list[Machine]()
        for number in (1, 2, 3):
            place = folder / f"node{number}"
            machines.append(Machine(number, place, network, link and f"{link}-{number}", options))
            cleanup.callback(machines[-1].kill)
            machines[-1].start()
        cluster = Cluster(machines)
        cluster.roles()
        for statement in block("prepare-postgresql", "docs/durability.md").split(";\n")[:-1]:
            cluster.execute(statement)
        yield cluster


@contextmanager
def leader_proxy(cluster: Cluster) -> Iterator[str]:
    """Run HAProxy with deploy/patroni/haproxy.cfg; provide the URL of a store behind it."""
    port, command = free_port(), installed("haproxy", "haproxy")
    changes = {f"192.0.2.1{machine.number}": machine.address for machine in cluster.machines}
    changes |= {"127.0.0.1:5000": f"127.0.0.1:{port}"}
    file = cluster.machines[0].folder / "haproxy.cfg"
    file.write_text(deployed("patroni/haproxy.cfg", changes))
    with program(port, [command, "-db", "-f", file], stderr=subprocess.DEVNULL):
        yield f"postgresql://plantstore:secret@127.0.0.1:{port}/plantstore"
