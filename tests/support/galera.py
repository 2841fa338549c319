"""A cluster of three MariaDB servers with Galera, each on a loopback address of its own."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

import pymysql  # type: ignore[import-untyped]
import pytest

from plantstore import Plant
from tests.support.databases import Server, install_mariadb, installed, processes, server_folder
from tests.support.serving import LIMIT, free_port
from tests.support.waiting import wait_until

PROVIDER = "/usr/lib/galera/libgalera_smm.so"
PROGRAMS = ["mariadbd", "mariadb-install-db", "rsync", "wsrep_sst_rsync"]
SIZE = 3
# The others go on without a node that is silent for two seconds. The default is five.
_COMMAND = """
--no-defaults --datadir={folder}/data --socket={folder}/socket --pid-file={folder}/pid
--log-error={folder}/error.log --bind-address={address} --port={port} --binlog-format=ROW
--innodb-autoinc-lock-mode=2 --innodb-buffer-pool-size=32M --innodb-log-file-size=16M
--wsrep-on=ON --wsrep-provider={provider} --wsrep-cluster-name=plants
--wsrep-cluster-address=gcomm://{groups} --wsrep-node-name={address} --wsrep-node-address={group}
--wsrep-sst-method=rsync --wsrep-sst-receive-address={address}:{copies}
--wsrep-provider-options=gmcast.listen_addr=tcp://{group};ist.recv_addr={address}:{changes};\
evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;gcache.size=32M
"""


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
        """Separate the node from the others for the block. It soon answers with error 1047."""
        isolate = "SET GLOBAL wsrep_provider_options = 'gmcast.isolate={}'"
        self.execute(isolate.format(1))
        try:
            yield
        finally:
            self.execute(isolate.format(0))

    @property
    def url(self) -> str:
        """The URL of a store on this node."""
        return f"mysql://root@{self.address}:{self.port}/plants"

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

    def is_ready(self, size: int) -> bool:
        """Return whether the node executes statements, in a cluster of this size."""
        state = [("ready", "ON"), ("local_state_comment", "Synced"), ("cluster_size", str(size))]
        with suppress(pymysql.MySQLError):
            rows = self.execute("SHOW STATUS LIKE 'wsrep\\_%'")
            return all((f"wsrep_{name}", value) in rows for name, value in state)
        return False


@dataclass
class Galera:
    """The nodes of the cluster. Their numbers begin with 0."""

    nodes: list[Node]

    def wait_until_ready(self, number: int, size: int = SIZE) -> None:
        """Return when a node executes statements, in a cluster of this size."""
        node = self.nodes[number]
        wait_until(lambda: node.process.poll() is not None or node.is_ready(size))
        assert node.process.poll() is None, f"node {number} has ended"

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
        query = "SELECT id, name, tag FROM plants.plants"
        return {Plant(*row) for row in self.nodes[number].execute(wait_for_others, query)}

    def clear(self) -> None:
        """Drop the table of plants on all nodes, which must be ready."""
        self.nodes[0].execute("DROP TABLE IF EXISTS plants.plants")


@contextmanager
def galera() -> Iterator[Galera]:
    """Run three nodes. At the end, nothing of them is left, also after a failure."""
    package = "mariadb-server galera-4 rsync"
    mariadbd, *_ = [installed(program, package) for program in PROGRAMS]
    if not os.path.exists(PROVIDER):
        pytest.skip(f"apt-get install {package}")
    # These addresses are used by nothing else: a node listens on some of its ports only while it
    # joins the others, and cannot join if another server has taken one of them meanwhile.
    network = ".".join(str(SystemRandom().randint(1, 254)) for _ in range(2))
    addresses = [f"127.{network}.{number}" for number in range(1, SIZE + 1)]
    groups = [f"{address}:{free_port(address)}" for address in addresses]
    with ExitStack() as cleanup:
        nodes = []
        for address, group in zip(addresses, groups, strict=True):
            folder, options = cleanup.enter_context(server_folder("mysql"))
            # The programs that copy data are in the session of the node: they are found in the end.
            options["start_new_session"] = True
            port = free_port(address)
            names = {"provider": PROVIDER, "folder": folder, "address": address, "port": port}
            names |= {"group": group, "groups": ",".join(groups)}
            names |= {"copies": free_port(address), "changes": free_port(address)}
            serve = [mariadbd, *_COMMAND.format(**names).split()]
            nodes.append(Node(serve, [], signal.SIGTERM, options, address, port))
            cleanup.callback(nodes[-1].end)
            (folder / "data").mkdir()
            if "user" in options:
                shutil.chown(folder / "data", options["user"], options["group"])
        cluster = Galera(nodes)
        install_mariadb(f"--datadir={nodes[0].options['cwd']}/data", nodes[0].options)
        nodes[0].start("--wsrep-new-cluster")
        cluster.wait_until_ready(0, size=1)
        nodes[0].execute("CREATE DATABASE plants")
        for node in nodes[1:]:
            node.start()
        cluster.recover()
        yield cluster


def _kill_session(leader: int) -> bool:
    """Kill all processes in the session of a process that has ended; return whether any is left."""
    found = processes("session", leader)
    for process in found:
        with suppress(ProcessLookupError):  # It may end at any time.
            os.kill(process, signal.SIGKILL)
    return bool(found)
