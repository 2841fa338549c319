"""Pgpool-II, which lets a standby that is late execute queries."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from plantstore import Plant, PlantExists
from tests.support.databases import Server, installed, readiness, server_folder
from tests.support.replication import Pair, postgresql_pair
from tests.support.serving import free_port
from tests.support.sites import LILY, ROSE_PLANT
from tests.support.sql import call_all, create_table, open_sql
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.database, pytest.mark.postgresql]


# The weights let all queries go to the standby.
_CONFIGURATION = """
backend_clustering_mode='streaming_replication' listen_addresses='127.0.0.1' port={port}
pcp_port={pcp_port} unix_socket_directories='{folder}' pcp_socket_dir='{folder}'
pid_file_name='{folder}/pid' logdir='{folder}' work_dir='{folder}' num_init_children=40
backend_hostname0='127.0.0.1' backend_port0={primary} backend_weight0=0
backend_hostname1='127.0.0.1' backend_port1={standby} backend_weight1=1 load_balance_mode=on
sr_check_period=1 sr_check_user='plants' sr_check_database='postgres'
"""


@contextmanager
def pgpool(pair: Pair) -> Iterator[str]:
    """Run Pgpool-II; provide the URL of a store. The standby executes all queries."""
    program = installed("pgpool", "pgpool2")
    with server_folder("postgres") as (folder, options):
        port, file = free_port(), folder / "pgpool.conf"
        ports = {"port": port, "pcp_port": free_port()}
        ports |= {"primary": pair.primary.port, "standby": pair.standby.port}
        file.write_text("\n".join(_CONFIGURATION.format(folder=folder, **ports).split()))
        serve = [program, "-n", "-f", file, "-F", folder / "pcp.conf", "-a", folder / "hba.conf"]
        with Server(serve, readiness(port), signal.SIGINT, options).running():
            yield f"postgresql://plants@127.0.0.1:{port}/postgres"


def test_duplicates_with_a_late_standby() -> None:
    """A duplicate is one although a standby, which does not have it yet, executes all queries."""
    with postgresql_pair() as pair, pgpool(pair) as url, open_sql(url) as store:
        with open_sql(pair.url) as other:
            create_table(other)
        has_table = "SELECT to_regclass('plants') IS NOT NULL"
        wait_until(lambda: pair.standby.execute(has_table) == [(True,)])
        pair.standby.execute("ALTER SYSTEM SET recovery_min_apply_delay = '1h'")
        pair.standby.execute("SELECT pg_reload_conf()")
        wait_until(lambda: pair.standby.execute("SHOW recovery_min_apply_delay") == [("1h",)])
        store.add(ROSE_PLANT)
        assert store.get(ROSE_PLANT.id) is None  # The standby has answered.
        store.ping()  # Plants can be added.
        with pytest.raises(PlantExists):
            store.add(ROSE_PLANT)
        assert store.add_some([ROSE_PLANT, LILY]) == {1}
        assert store.add_some([LILY, Plant(3, "Fern")]) == {2}
        adds = [lambda id=id: store.add(Plant(id // 2, "")) for id in range(20, 60)]
        errors = [type(error) for error in call_all(*adds)]
        assert (errors.count(type(None)), errors.count(PlantExists)) == (20, 20)
