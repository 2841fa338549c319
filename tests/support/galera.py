"""A cluster of three MariaDB servers with Galera, each on a loopback address of its own."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql  # type: ignore[import-untyped]
import pytest

from plantstore import Plant
from tests.support.databases import PATH, Server, server_folder
from tests.support.serving import LIMIT, free_port
from tests.support.waiting import wait_until

PROVIDERS = ["/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so"]
PACKAGES = "apt-get install mariadb-server galera-4 rsync"
PROGRAMS = ["mariadbd", "mariadb-install-db", "rsync", "wsrep_sst_rsync"]
SIZE = 3
# The seconds after which the other nodes go on without a silent node. The default is 5.
SUSPECT_SECONDS = 2


@dataclass
class Node(Server):
    """One server of the cluster."""

    address: str
    port: int

    def start(self, *arguments: str) -> None:
        """Start the node, which joins the others. It may wait for them: this method does not."""
        command = [*self.command, *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **self.options)

    def end(self) -> None:
        """Kill the node, and the programs that it has started to copy its data."""
        if hasattr(self, "process"):
            self.process.kill()
            self.process.wait(LIMIT)
            wait_until(lambda: not _kill_session(self.process.pid))

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Separate the node from the others for the duration of the block.

        It still accepts connections. After some seconds it answers most statements with error 1047.
        """
        self.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")
        try:
            yield
        finally:
            self.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'")

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Execute statements on one connection, and return the rows of the last one."""
        address: dict[str, Any] = {"host": self.address, "port": self.port, "user": "root"}
        limits = {"connect_timeout": LIMIT, "read_timeout": LIMIT, "write_timeout": LIMIT}
        rows: list[tuple[Any, ...]] = []
        with closing(pymysql.connect(**address, **limits, autocommit=True)) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
                rows = [*cursor.fetchall()]
        return rows

    def status(self) -> dict[str, str]:
        """Return the state of the node as Galera sees it, without the prefix ``wsrep_``."""
        rows = self.execute("SHOW STATUS LIKE 'wsrep\\_%'")
        return {name.removeprefix("wsrep_"): value for name, value in rows}

    def is_ready(self, size: int) -> bool:
        """Return whether the node executes statements, in a cluster of this size."""
        try:
            status = self.status()
        except pymysql.MySQLError:
            return False
        state = (status.get("ready"), status.get("local_state_comment"))
        return state == ("ON", "Synced") and status["cluster_size"] == str(size)


@dataclass
class Galera:
    """The nodes of the cluster. Their numbers begin with 0."""

    nodes: list[Node]

    def node_url(self, number: int) -> str:
        """Return the URL of one node."""
        node = self.nodes[number]
        return f"mysql://root@{node.address}:{node.port}/plants"

    def execute(self, number: int, *statements: str) -> list[tuple[Any, ...]]:
        """Execute statements on one connection to a node, and return the rows of the last one."""
        return self.nodes[number].execute(*statements)

    def wait_until_ready(self, number: int, size: int = SIZE) -> None:
        """Return when a node executes statements, in a cluster of this size."""
        node = self.nodes[number]

        def is_ready() -> bool:
            assert node.process.poll() is None, f"node {number} has ended"
            return node.is_ready(size)

        wait_until(is_ready)

    def recover(self) -> None:
        """Let every node that has ended join again; return when all are ready."""
        for node in self.nodes:
            if node.process.poll() is not None:
                node.start()
        for number in range(SIZE):
            self.wait_until_ready(number)

    def plants(self, number: int) -> set[Plant]:
        """Return the plants of a node, with all that were committed on any node before."""
        wait_for_others = "SET SESSION wsrep_sync_wait = 1"
        rows = self.execute(number, wait_for_others, "SELECT id, name, tag FROM plants.plants")
        return {Plant(*row) for row in rows}

    def clear(self) -> None:
        """Drop the table of plants on all nodes."""

        def is_dropped() -> bool:
            try:
                self.execute(0, "DROP TABLE IF EXISTS plants.plants")
            except pymysql.MySQLError:  # While another node joins, a node is not always ready.
                return False
            return True

        wait_until(is_dropped)


@contextmanager
def galera() -> Iterator[Galera]:
    """Run three nodes. At the end, nothing of them is left, also after a failure."""
    provider = next(filter(os.path.exists, PROVIDERS), None)
    if provider is None or not all(shutil.which(program, path=PATH) for program in PROGRAMS):
        pytest.skip(PACKAGES)
    addresses = [f"127.0.0.{number}" for number in range(1, SIZE + 1)]
    # Other nodes connect to these ports.
    groups = [f"{address}:{free_port(address)}" for address in addresses]
    with ExitStack() as cleanup:
        nodes = []
        for address, group in zip(addresses, groups, strict=True):
            folder, options = cleanup.enter_context(server_folder("mysql"))
            serve = _command(provider, folder, address, group, groups)
            nodes.append(_node(serve, folder, address, options))
            cleanup.callback(nodes[-1].end)
        cluster = Galera(nodes)
        _create(nodes[0])
        nodes[0].start("--wsrep-new-cluster")
        cluster.wait_until_ready(0, size=1)
        cluster.execute(0, "CREATE DATABASE plants")
        for node in nodes[1:]:
            node.start()
        cluster.recover()
        yield cluster


def _command(provider: str, folder: Path, address: str, group: str, groups: list[str]) -> list[Any]:
    """Return the command of a node, without its port."""
    (folder / "data").mkdir()
    options = {
        "gmcast.listen_addr": f"tcp://{group}",
        "ist.recv_addr": f"{address}:{free_port(address)}",
        "evs.keepalive_period": "PT0.5S",
        "evs.suspect_timeout": f"PT{SUSPECT_SECONDS}S",
        "gcache.size": "32M",
    }
    return [
        shutil.which("mariadbd", path=PATH),
        "--no-defaults",
        f"--datadir={folder / 'data'}",
        f"--socket={folder / 'socket'}",
        f"--pid-file={folder / 'pid'}",
        f"--log-error={folder / 'log'}",
        f"--bind-address={address}",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
        "--innodb-buffer-pool-size=32M",
        "--innodb-log-file-size=16M",
        "--wsrep-on=ON",
        f"--wsrep-provider={provider}",
        "--wsrep-cluster-name=plants",
        f"--wsrep-cluster-address=gcomm://{','.join(groups)}",
        f"--wsrep-node-name={address}",
        f"--wsrep-node-address={group}",
        "--wsrep-sst-method=rsync",
        f"--wsrep-sst-receive-address={address}:{free_port(address)}",
        f"--wsrep-provider-options={';'.join(f'{key}={options[key]}' for key in options)}",
    ]


def _node(serve: list[Any], folder: Path, address: str, options: dict[str, Any]) -> Node:
    if "user" in options:
        shutil.chown(folder / "data", options["user"], options["group"])
    port = free_port(address)
    # The programs that copy data are in the session of the node: they are found in the end.
    options = {**options, "start_new_session": True}
    return Node([*serve, f"--port={port}"], [], signal.SIGTERM, options, address, port)


def _create(node: Node) -> None:
    """Create the data of the first node. The others copy it."""
    (data,) = [argument for argument in node.command if str(argument).startswith("--datadir=")]
    create = ["mariadb-install-db", "--no-defaults", data, "--skip-test-db"]
    create.append("--auth-root-authentication-method=normal")
    subprocess.run(create, check=True, capture_output=True, **node.options)


def _kill_session(leader: int) -> bool:
    """Kill all processes in the session of a process that has ended; return whether any is left."""
    found = False
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end at any time.
        with suppress(FileNotFoundError, ProcessLookupError):
            # The fields after the command: state, parent, process group, session.
            if int(stat.read_text().rpartition(")")[2].split()[3]) == leader:
                found = True
                os.kill(int(stat.parent.name), signal.SIGKILL)
    return found
