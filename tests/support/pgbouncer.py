"""PgBouncer in front of a PostgreSQL server."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import make_url

from tests.support.databases import Place, Server, installed, readiness, server_folder
from tests.support.serving import free_port

# The number of connections to the server. In session mode, each connection of a client keeps one
# for itself, and two processes of eight threads and an import need seventeen: 20 is the default of
# PgBouncer. In transaction mode, they share fewer. Twelve adds may wait for a standby. In
# statement mode, a store cannot use it.
POOL_SIZES = {"session": 20, "transaction": 14, "statement": 14}

_CONFIGURATION = """
[databases]
postgres = host=127.0.0.1 port={server_port} user=plants
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {pool_mode}
default_pool_size = {pool_size}
ignore_startup_parameters = {ignored}
"""


@contextmanager
def pgbouncer(place: Place, pool_mode: str, ignored: str = "") -> Iterator[Place]:
    """Run PgBouncer in one of the modes of ``POOL_SIZES`` in front of a PostgreSQL server.

    It drops the ``ignored`` parameters of a client, and refuses other ones that it does not know.
    """
    program = installed("pgbouncer", "pgbouncer")
    with server_folder("postgres") as (folder, options):
        port, file = free_port(), folder / "pgbouncer.ini"
        names = {"port": port, "server_port": make_url(place.url).port, "pool_mode": pool_mode}
        names |= {"pool_size": POOL_SIZES[pool_mode], "ignored": ignored}
        file.write_text(_CONFIGURATION.format(**names))
        with Server([program, file], readiness(port), signal.SIGTERM, options).running() as server:
            yield Place(f"postgresql://plants@127.0.0.1:{port}/postgres?pgbouncer=true", server)
