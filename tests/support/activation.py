"""A service that gets its socket from the process that starts it, as from systemd."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.serving import LIMIT

# systemd passes the socket as file descriptor 3, and the number of the process, which exec keeps.
SCRIPT = 'exec 3<&"$0"; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"'


def activation(listener: socket.socket, *command: str) -> list[str]:
    """Return a command that starts another one with a socket. It needs the file descriptor."""
    return ["bash", "-c", SCRIPT, str(listener.fileno()), *command]


@contextmanager
def activated(listener: socket.socket, *command: str, **options: Any) -> Iterator[None]:
    """Run a service with a socket that exists before and after it.

    :param options: more arguments for the new process.
    """
    arguments = activation(listener, *command)
    with subprocess.Popen(arguments, pass_fds=[listener.fileno()], **options) as process:
        try:
            yield
        finally:
            process.terminate()
            status = process.wait(LIMIT)
    assert status == 0
