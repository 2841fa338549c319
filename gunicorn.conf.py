"""How the standalone service is served: a bare `gunicorn` in this folder reads this."""

import os
import socket
import struct
from typing import Any

from plantstore import SettingsError, open_store
from plantstore.settings import Settings

wsgi_app = "wsgi:app"
worker_class = "gthread"
threads = 8
graceful_timeout = 30  # Seconds for the requests under way when the service is stopped.
# A worker is never killed for being slow. The main thread, which would have to report, also
# waits for clients to close; and with the worker would go the plants in its memory.
timeout = 0
forwarder_headers = ""  # No header says where the service is mounted.
control_socket_disable = True

READ_TIMEOUT = struct.pack("ll", 10, 0)  # Seconds, microseconds.
ONE_WORKER = "plantstore: the store that PLANTSTORE_STORE names can have but one worker"


def on_starting(server: Any) -> None:
    """Refuse, in one line, to start what no worker could serve."""
    try:
        store = Settings.read(os.environ).open_store()
    except SettingsError as error:
        raise RuntimeError(f"plantstore: {error}") from None
    if store.one_process and server.num_workers > 1:
        raise RuntimeError(f"{ONE_WORKER}, and {server.num_workers} were asked for")


def when_ready(server: Any) -> None:
    """Give up on clients who stop sending: each of them would keep a thread for good."""
    for listener in server.LISTENERS:
        # Linux hands this on to every connection that is accepted.
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, READ_TIMEOUT)


def nworkers_changed(server: Any, new_value: int, old_value: int | None) -> None:
    """Stay with one worker when a signal (TTIN) asks for more than the store can have."""
    if old_value is not None and new_value > 1 and _one_process():
        server.log.error(ONE_WORKER)
        server.num_workers = 1


def _one_process() -> bool:
    return open_store(os.environ.get("PLANTSTORE_STORE", Settings.store_url)).one_process
