"""Two instances behind a proxy are restarted and upgraded, one after the other, under load."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from plantstore import open_store
from tests.support.activation import activation
from tests.support.clients import Clients, Record
from tests.support.fresh import ENVIRONMENT, copy_project, run
from tests.support.front import Front, front, haproxy
from tests.support.serving import Endpoint, Response
from tests.support.waiting import program, wait_until

pytestmark = pytest.mark.drill

COMMAND = ("env/bin/plantstore", "serve", "--workers=1")
SETTINGS = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": "sqlite:///plants.db"}
ROUNDS = 3
# A text of the version that runs, and that of another one.
OLD, NEW = "There is nothing at this path.", "The new version has nothing at this path."
Proxy = Callable[[int, int], AbstractContextManager[Front]]


def behind_nginx(first: int, second: int) -> AbstractContextManager[Front]:
    """Run nginx with both lines of its upstream. The four clients are one address."""
    second_line = {"#server 192.0.2.2:8000": f"server 127.0.0.1:{second}"}
    return front(first, {**second_line, "rate=100r/s": "rate=10000r/s"})


class Instance(Endpoint):
    """An instance whose socket outlives it, as with deploy/plantstore.socket."""

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self._command = activation(listener, *COMMAND)
        self._options: dict[str, Any] = {"cwd": folder, "env": ENVIRONMENT | SETTINGS}
        self._options["pass_fds"] = [listener.fileno()]
        self._running = ExitStack()

    def restart(self) -> None:
        """Stop the instance; return when it has started again, and is ready."""
        self.stop()
        self._running.enter_context(program(self.port, self._command, **self._options))
        wait_until(lambda: self.get(b"readyz").status == 200)

    def stop(self) -> None:
        """Stop the instance, if it runs."""
        self._running.close()

    def get(self, path: bytes) -> Response:
        """Return the response to a request for a path."""
        return self.request(b"GET /%b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path)


@contextmanager
def instances(folder: Path) -> Iterator[list[Instance]]:
    """Run two instances that share their store."""
    both = list[Instance]()
    with ExitStack() as opened:
        for _ in range(2):
            listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
            both.append(Instance(folder, listener))
            opened.callback(both[-1].stop)
            both[-1].restart()
        yield both


def install_another_version(project: Path, folder: Path) -> None:
    """Install a version with another text over the one that runs."""
    errors = project / "plantstore" / "errors.py"
    errors.write_text(errors.read_text().replace(OLD, NEW))
    run(f"env/bin/pip install -q --no-deps --force-reinstall '{project}'", folder)


@pytest.mark.parametrize("proxy", [behind_nginx, haproxy])
def test_rolling_restarts(proxy: Proxy, tmp_path: Path, record: Record) -> None:
    """No request fails when two instances are restarted three times, and then upgraded."""
    project = copy_project(tmp_path / "project")
    run(f"python3 -m venv env && env/bin/pip install -q '{project}[gunicorn,sqlite]'", tmp_path)
    with (
        instances(tmp_path) as both,
        proxy(*(instance.port for instance in both)) as nearest,
        Clients(nearest.port, number=4, path="/garden/plants", tls=True) as clients,
    ):
        for _ in range(ROUNDS):
            for instance in both:
                instance.restart()
            clients.wait_for_creations()
        install_another_version(project, tmp_path)
        clients.wait_for_creations()
        for instance in both:
            assert OLD in instance.get(b"roses").body.decode()
            instance.restart()
            assert NEW in instance.get(b"roses").body.decode()
        clients.wait_for_creations()
    assert (clients.refused, clients.unanswered, clients.unconnected) == (0, 0, 0)
    with open_store(f"sqlite:///{tmp_path}/plants.db") as store:
        record({*store}, clients)
        assert {*store} == clients.acknowledged
