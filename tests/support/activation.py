"""A service that gets its socket from the process that starts it, as from systemd."""

import socket

# systemd passes the socket as file descriptor 3, and the number of the process, which exec keeps.
SCRIPT = 'exec 3<&"$0"; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"'


def activation(listener: socket.socket, *command: str) -> list[str]:
    """Return a command that starts another one with a socket. It needs the file descriptor."""
    return ["bash", "-c", SCRIPT, str(listener.fileno()), *command]
