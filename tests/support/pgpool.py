"""Pgpool-II in front of a PostgreSQL primary and its standby."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.databases import Server, installed, readiness, server_folder
from tests.support.replication import Pair
from tests.support.serving import free_port

# The weights let all queries go to the standby.
_CONFIGURATION = """
backend_clustering_mode = 'streaming_replication'
listen_addresses = '127.0.0.1'
port = {port}
pcp_port = {pcp_port}
unix_socket_directories = '{folder}'
pcp_socket_dir = '{folder}'
pid_file_name = '{folder}/pid'
logdir = '{folder}'
work_dir = '{folder}'
num_init_children = 40
backend_hostname0 = '127.0.0.1'
backend_port0 = {primary}
backend_weight0 = 0
backend_hostname1 = '127.0.0.1'
backend_port1 = {standby}
backend_weight1 = 1
load_balance_mode = on
sr_check_period = 1
sr_check_user = 'plants'
sr_check_database = 'postgres'
"""


@contextmanager
def pgpool(pair: Pair) -> Iterator[str]:
    """Run Pgpool-II; provide the URL of a store. The standby executes all queries."""
    program = installed("pgpool", "pgpool2")
    with server_folder("postgres") as (folder, options):
        port, file = free_port(), folder / "pgpool.conf"
        ports = {"port": port, "pcp_port": free_port()}
        ports |= {"primary": pair.primary.port, "standby": pair.standby.port}
        file.write_text(_CONFIGURATION.format(folder=folder, **ports))
        serve = [program, "-n", "-f", file, "-F", folder / "pcp.conf", "-a", folder / "hba.conf"]
        with Server(serve, readiness(port), signal.SIGINT, options).running():
            yield f"postgresql://plants@127.0.0.1:{port}/postgres"
