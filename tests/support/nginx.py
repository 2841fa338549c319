"""A real nginx in front of the service."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.front import running
from tests.support.readme import block
from tests.support.serving import free_port

CONFIGURATION = """
daemon off;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    fastcgi_temp_path {folder}/fastcgi;
    proxy_temp_path {folder}/proxy;
    scgi_temp_path {folder}/scgi;
    uwsgi_temp_path {folder}/uwsgi;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""


@contextmanager
def nginx(program: str, folder: Path, backend: int) -> Iterator[int]:
    """Run nginx with the configuration of docs/operating.md, and return its port.

    :param backend: the port of the service, which nginx serves at /garden/.
    """
    port = free_port()
    location = block("nginx", "docs/operating.md").replace(":8000/", f":{backend}/")
    file = folder / "nginx.conf"
    file.write_text(CONFIGURATION.format(folder=folder, port=port, location=location))
    with running(program, file, port):
        yield port
