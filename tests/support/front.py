"""A real nginx with deploy/nginx.conf in front of the service."""

import http.client
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.serving import (
    LIMIT,
    ROOT,
    Connection,
    Response,
    free_port,
    listening,
    tls_context,
)
from tests.support.waiting import wait_until

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
_CERTIFICATE = (
    *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"),
    *("-keyout", "tls/plantstore.key", "-out", "tls/plantstore.crt"),
)


class Front:
    """nginx in front of a service.

    ``port`` is its port, and ``log`` the file with its lines.
    """

    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self.log = log

    def connect(self) -> Connection:
        """Open a connection with TLS."""
        return Connection(self.port, tls=True)

    def request(self, request: bytes) -> Response:
        """Send one request on a new connection and return the response."""
        with self.connect() as connection:
            connection.send(request)
            return connection.receive()

    def https(self, address: str = "127.0.0.1") -> http.client.HTTPSConnection:
        """Return a connection of a client with this address."""
        return http.client.HTTPSConnection(
            *("localhost", self.port),
            timeout=LIMIT,
            context=tls_context(),
            source_address=(address, 0),
        )


def configured(folder: Path, port: int, backend: int, replaced: dict[str, str]) -> str:
    """Return deploy/nginx.conf with other ports and files."""
    changes = {
        "listen [::]:443 ssl;": "",
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "server 127.0.0.1:8000;": f"server 127.0.0.1:{backend};",
        "/etc/nginx/tls/": f"{folder}/tls/",
        "/var/log/nginx/": f"{folder}/",
        "worker_processes auto;": f"daemon off; pid {folder}/pid; worker_processes auto;",
        "http {": "http {"
        + "".join(
            f"{name}_temp_path {folder}/{name};"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        ),
        **replaced,
    }
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextmanager
def running(program: str, file: Path, port: int) -> Iterator[None]:
    """Run nginx with a file of configuration, in which it listens on a port."""
    with subprocess.Popen([program, "-e", "stderr", "-c", file]) as process:
        try:
            wait_until(lambda: process.poll() is not None or listening(port))
            assert process.poll() is None
            yield
        finally:
            process.terminate()
            process.wait(LIMIT)


@contextmanager
def front(backend: int, replaced: dict[str, str] | None = None) -> Iterator[Front]:
    """Run nginx in front of a service that has this port.

    :param replaced: replaces parts of its configuration.
    """
    assert NGINX is not None
    port = free_port()
    # The workers of nginx are processes of another user.
    with TemporaryDirectory(prefix="plantstore-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "tls").mkdir()
        subprocess.run(_CERTIFICATE, cwd=folder, check=True, capture_output=True)
        file = folder / "nginx.conf"
        file.write_text(configured(folder, port, backend, replaced or {}))
        with running(NGINX, file, port):
            yield Front(port, folder / "access.log")
