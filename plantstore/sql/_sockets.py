"""The sockets of connections to database servers."""

import socket
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from typing import Any

# The kernel then ends a connection about ten seconds after its host is gone. The names are those of
# Linux; other systems have some of them.
_KEEPALIVE = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}


def is_readable(connection: Any) -> bool:
    """Return whether the server has sent something, or has closed the connection.

    The check needs no round trip.

    :param connection: a socket, or its file descriptor.
    """
    with DefaultSelector() as selector:
        selector.register(connection, EVENT_READ)
        return bool(selector.select(0))


def duplicate(descriptor: int) -> socket.socket:
    """Return another socket of a connection. It stays open when the driver closes its own.

    :param descriptor: the file descriptor of the driver's socket.
    """
    original = socket.socket(fileno=descriptor)
    try:
        return original.dup()
    finally:
        original.detach()


def keep_alive(descriptor: int) -> None:
    """Let the kernel end a connection some seconds after its host is gone.

    :param descriptor: the file descriptor of its socket.
    """
    with duplicate(descriptor) as connection, suppress(OSError):  # A Unix socket has no options.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):  # pragma: no branch  # On Linux.
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
