"""The server configuration of the standalone service: a bare `gunicorn` in this folder reads it."""

import os
import socket
import struct
from typing import Any

from plantstore import SettingsError, create_app
from plantstore.settings import Settings

wsgi_app = "wsgi:app"
worker_class = "gthread"  # A slow client blocks one thread, not the worker.
threads = 8
graceful_timeout = 30  # Seconds that requests have to finish after SIGTERM.
# gunicorn never kills a worker. A worker that waits for clients to close their connections looks
# as if it had stopped, and with it the plants in its memory would be lost.
timeout = 0
forwarder_headers = ""  # A client cannot choose the URL prefix of the service by a header.
control_socket_disable = True  # Nothing but the socket of the service is opened.

# The timeout to receive data from a client: the seconds and microseconds of a C timeval.
_READ_TIMEOUT = struct.pack("ll", 10, 0)
# The message for an operator who asks for more than one worker.
_ONE_WORKER = "plantstore: the store of PLANTSTORE_STORE can have only one worker"


def on_starting(server: Any) -> None:
    """Refuse to start, in one line, if a setting is wrong or the store allows only one worker."""
    if not _serves_settings(server):
        return
    try:
        create_app()
    except SettingsError as error:
        raise RuntimeError(f"plantstore: {error}") from None
    if _one_process() and server.num_workers > 1:
        raise RuntimeError(f"{_ONE_WORKER}, not {server.num_workers}")


def when_ready(server: Any) -> None:
    """Set a timeout for reading: a silent client must not block a thread forever."""
    for listener in server.LISTENERS:
        # On Linux, accepted connections inherit this option.
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _READ_TIMEOUT)


def nworkers_changed(server: Any, new_value: int, old_value: int | None) -> None:
    """Keep one worker after SIGTTIN if the store allows only one."""
    # A worker that is added later then sees that it is one of several.
    server.cfg.set("workers", new_value)
    added = old_value is not None and new_value > 1
    if added and _serves_settings(server) and _one_process():
        server.log.error(_ONE_WORKER)
        server.num_workers = 1


def _serves_settings(server: Any) -> bool:
    # Another application may pass its own store and token check to create_app.
    return str(server.app.app_uri).startswith(("wsgi:", "plantstore"))


def _one_process() -> bool:
    return Settings(os.environ).open_store().one_process
