"""A real nginx or HAProxy in front of the service."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory

from tests.support.certificates import with_certificate
from tests.support.databases import installed
from tests.support.readme import block
from tests.support.serving import ROOT, Endpoint, free_port
from tests.support.waiting import program

_KINDS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
# With other files than those of the system.
_HTTP = "http {{" + "".join(f"{kind}_temp_path {{0}}/{kind};" for kind in _KINDS)
# The service of docs/operating.md.
_OPERATING = "daemon off; pid {0}/pid; events {{}} " + _HTTP
_OPERATING += "access_log off; server {{ listen 127.0.0.1:{1}; {2} }} }}"


@dataclass
class Front(Endpoint):
    """A proxy in front of a service. ``log`` is the file with its lines."""

    port: int
    log: Path
    tls = True


def deployed(name: str, changes: dict[str, str]) -> str:
    """Return a file of deploy/ with other parts."""
    text = (ROOT / "deploy" / name).read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextmanager
def front(backend: int, replaced: dict[str, str] | None = None) -> Iterator[Front]:
    """Run nginx with deploy/nginx.conf, in which parts are replaced, in front of a service."""
    port, command = free_port(), installed("nginx", "nginx")
    # The workers of nginx are processes of another user.
    with TemporaryDirectory(prefix="plantstore-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with_certificate(folder)
        changes = {
            "listen [::]:443 ssl;": "",
            "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
            "server 127.0.0.1:8000 max": f"server 127.0.0.1:{backend} max",
            "/etc/nginx/tls/plantstore.crt": f"{folder}/cert.pem",
            "/etc/nginx/tls/plantstore.key": f"{folder}/key.pem",
            "/var/log/nginx/": f"{folder}/",
            "worker_processes auto;": f"daemon off; pid {folder}/pid; worker_processes auto;",
            "http {": _HTTP.format(folder),
        }
        file = folder / "nginx.conf"
        file.write_text(deployed("nginx.conf", changes | (replaced or {})))
        with program(port, [command, "-e", "stderr", "-c", file]):
            yield Front(port, folder / "access.log")


@contextmanager
def haproxy(first: int, second: int) -> Iterator[Front]:
    """Run HAProxy with deploy/haproxy.cfg in front of two instances of the service."""
    port, command = free_port(), installed("haproxy", "haproxy")
    changes = {
        "bind :443": f"bind 127.0.0.1:{port}",
        "    user haproxy\n    group haproxy\n": "",
        "127.0.0.1:8000": f"127.0.0.1:{first}",
        "192.0.2.2:8000": f"127.0.0.1:{second}",
    }
    with TemporaryDirectory(prefix="plantstore-") as name, Path(name, "log").open("w") as log:
        folder = Path(name)
        with_certificate(folder)
        changes["/etc/haproxy/plantstore.pem"] = f"{folder}/both.pem"
        changes["/run/haproxy/"] = f"{folder}/"
        (folder / "haproxy.cfg").write_text(deployed("haproxy.cfg", changes))
        parts = [(folder / file).read_bytes() for file in ("cert.pem", "key.pem")]
        (folder / "both.pem").write_bytes(b"".join(parts))
        run = [command, "-db", "-f", folder / "haproxy.cfg"]
        with program(port, run, stdout=log, stderr=DEVNULL):
            yield Front(port, folder / "log")


@contextmanager
def nginx(folder: Path, backend: int) -> Iterator[int]:
    """Run nginx with the configuration of docs/operating.md, and return its port."""
    port, command = free_port(), installed("nginx", "nginx")
    location = block("nginx", "docs/operating.md").replace(":8000/", f":{backend}/")
    file = folder / "nginx.conf"
    file.write_text(_OPERATING.format(folder, port, location))
    with program(port, [command, "-e", "stderr", "-c", file]):
        yield port
