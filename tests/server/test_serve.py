"""`plantstore serve`, and what the service reports when it starts."""

import os
import re
import signal
import socket
import sqlite3
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from plantstore import __version__
from tests.support.activation import activated
from tests.support.clients import Clients
from tests.support.commands import invoke, refused
from tests.support.databases import UNREACHABLE
from tests.support.reloading import ANYWHERE, serve
from tests.support.serving import Gunicorn, free_port, post
from tests.support.sites import TOKEN, new_rose
from tests.support.sql import COLUMNS
from tests.support.waiting import wait_until


@pytest.mark.server
def test_serve_from_any_folder(tmp_path: Path) -> None:
    """`plantstore serve` runs from any folder, and reports in one line each what it serves."""
    (tmp_path / "tokens").write_text("one\ntwo Flora\n")
    (tmp_path / "gunicorn.conf.py").write_text("raise SystemExit('not ours')")
    with serve(
        *("--workers", "2", "--threads", "3", "--store", "sqlite:///plants.db"),
        folder=tmp_path,
        PLANTSTORE_TOKENS=TOKEN,
        PLANTSTORE_TOKENS_FILE="tokens",
    ) as server:
        assert server.request(post(new_rose())).status == 200
        for line in (
            f"plantstore {__version__}",
            f"Listening at: http://127.0.0.1:{server.port} ",
            "Store: sqlite:///plants.db",
            "Tokens: 1 from PLANTSTORE_TOKENS, 2 from PLANTSTORE_TOKENS_FILE",
            "Operations: create",
            "Workers: 2",
            "Threads of each worker: 3",
            "The store can be used.",
        ):
            server.wait_for(re.escape(f"[INFO] {line}"))
        wait_until(lambda: server.log.count("Booting worker") == 2)
        assert server.log.count("The store can be used.") == 1


@pytest.mark.server
def test_options_of_gunicorn(tmp_path: Path) -> None:
    """Options of gunicorn may follow two dashes; a file adds to the configuration."""
    (tmp_path / "own.py").write_text("proc_name = 'garden'\nthreads = 5\n")
    with serve(
        *("--", "-c", "own.py", "--access-logfile", "-"), folder=tmp_path, PLANTSTORE_TOKENS=TOKEN
    ) as server:
        assert server.request(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").status == 404
        server.wait_for('"GET / HTTP/1.1" 404')
        assert "Threads of each worker: 5" in server.log
        assert "plantstore.server._service_worker.ServiceWorker" in server.log


@pytest.mark.server
def test_reload_and_new_process(tmp_path: Path) -> None:
    """SIGHUP replaces the workers, and SIGUSR2 starts a new process with the same arguments."""
    options = ("--bind", f"127.0.0.1:{free_port()}", "--store", "sqlite:///plants.db")
    with serve(*options, folder=tmp_path, PLANTSTORE_TOKENS=TOKEN) as server:
        assert server.request(post(new_rose())).status == 200
        server.signal(signal.SIGHUP)
        wait_until(lambda: server.log.count("Booting worker") == 2)
        server.signal(signal.SIGUSR2)
        wait_until(lambda: server.log.count("Starting gunicorn") == 2)
        wait_until(lambda: server.log.count("Booting worker") == 3)
        assert server.request(post(new_rose())).status == 200
        processes = re.findall(r"Listening at: .* \((\d+)\)", server.log)
        os.kill(int(processes[-1]), signal.SIGTERM)
        server.wait_for("Shutting down: Master")


@pytest.mark.parametrize(
    ("command", "environment", "message"),
    [
        (["plantstore", "serve"], {}, "no token is configured"),
        (["plantstore", "serve", "wsgi:app"], {}, "plantstore serve has no argument wsgi:app"),
        (["plantstore", "serve", "--bind", ""], {}, "--bind needs an address"),
        (
            ["plantstore", "serve", "--bind", "127.0.0.1:99999"],
            {"PLANTSTORE_TOKENS": "t"},
            "0-65535",
        ),
        *(
            (["plantstore", "serve", "--bind", address], {"PLANTSTORE_TOKENS": "t"}, message)
            for address, message in (
                ("x:abc", "'abc' is not a valid port number"),
                ("[::1", "not a valid port number"),
                ("fd://x", "'x' is not a valid file descriptor"),
                ("fd://99", "Bad file descriptor"),
                ("unix:missing/socket", "cannot listen at missing/socket: its folder is missing"),
                ("unix:tokens", "'tokens' is not a socket"),
                ("unix:", "--bind needs an address"),
            )
        ),
        *(
            (["plantstore", "serve", "--", *options], {"PLANTSTORE_TOKENS": "t"}, message)
            for options, message in (
                (["--certfile", "missing.pem"], "No such file or directory (missing.pem, None)"),
                (["--certfile", "tokens"], "plantstore: no certificate can be read: [SSL] "),
                (["-k", "asgi"], "the worker class asgi has no threads"),
                (["-k", "gunicorn.workers.base_async.AsyncWorker"], "has no threads"),
                (["-k", "missing"], "Error: class uri 'missing' invalid or not found"),
            )
        ),
        (["plantstore", "serve"], {"WEB_CONCURRENCY": "x"}, "WEB_CONCURRENCY must be a number"),
        (["plantstore", "serve", "--workers", "2"], {"PLANTSTORE_TOKENS": "t"}, "only one worker"),
        (
            ["plantstore", "serve"],
            {"PLANTSTORE_TOKENS": "t", "PLANTSTORE_STORE": ""},
            "PLANTSTORE_STORE: not the URL of a store",
        ),
        (
            ["plantstore", "serve"],
            {"PLANTSTORE_TOKENS": "t", "PLANTSTORE_LOG": "xml"},
            "PLANTSTORE_LOG: must be text or json",
        ),
        (["gunicorn", "plantstore.wsgi:app"], {"PLANTSTORE_STORES": "x"}, "PLANTSTORE_STORE?"),
        (
            ["gunicorn", "-c", "python:plantstore.server.config"],
            {"PLANTSTORE_TOKENS": "t", "PLANTSTORE_STORE": "foo://me:hunter2@host/db"},
            "PLANTSTORE_STORE: not the URL of a store",
        ),
    ],
)
def test_wrong_setting_is_refused_in_one_line(
    tmp_path: Path, command: list[str], environment: dict[str, str], message: str
) -> None:
    """A wrong setting is refused in one line, also by gunicorn without our configuration."""
    (tmp_path / "tokens").write_text("t")
    options = ["--no-control-socket"] if command[0] == "gunicorn" else []
    if "--bind" not in command:
        options += ["--bind", "127.0.0.1:0"]  # The usual port may be in use.
    line = refused(*command, *options, folder=tmp_path, **environment)
    assert message in line
    assert "hunter2" not in line


def test_wrong_port_variable(tmp_path: Path) -> None:
    """A PORT that is not a number is refused in one line."""
    for port in ("abc", ""):
        line = refused("plantstore", "serve", folder=tmp_path, PLANTSTORE_TOKENS="t", PORT=port)
        assert line == f"Error: '{port}' is not a valid port number."


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_address_in_use(tmp_path: Path, host: str) -> None:
    """If the address is in use, `plantstore serve` ends at once with one line."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as other:
        other.bind((host.strip("[]"), 0))
        other.listen()
        port = other.getsockname()[1]
        command = ("plantstore", "serve", "--bind", f"{host}:{port}")
        line = refused(*command, folder=tmp_path, PLANTSTORE_TOKENS="t")
    assert line == f"Error: cannot listen at {host.strip('[]')}:{port}: {os.strerror(98)}"


@pytest.mark.server
def test_address_that_is_shared(tmp_path: Path) -> None:
    """With --reuse-port, another process may already listen at the address."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        bind = f"127.0.0.1:{other.getsockname()[1]}"
        options = ("--bind", bind, "--", "--reuse-port")
        server = serve(*options, folder=tmp_path, PLANTSTORE_TOKENS="t")
        try:
            server.wait_for("Booting worker")
        finally:
            server.stop()


@pytest.mark.server
def test_restart_at_the_same_address(tmp_path: Path) -> None:
    """The service can start again at once at an address that had connections."""
    bind = ("--bind", f"127.0.0.1:{free_port()}")
    for _ in range(2):
        with serve(*bind, folder=tmp_path, PLANTSTORE_TOKENS=TOKEN) as server:
            request = post(new_rose(), "Connection: close")
            with server.connect() as connection:
                connection.send(request)
                assert connection.receive().status == 200
                assert connection.closed()  # So the connection stays in the state TIME_WAIT.


@pytest.mark.server
def test_restart_with_a_socket_of_systemd(tmp_path: Path) -> None:
    """With a socket that outlives the service, a restart under load loses no request."""
    command = (sys.executable, "-m", "plantstore", "serve", "--workers=2")
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_STORE": "sqlite:///plants.db"}
    options: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, **ANYWHERE, **settings}}
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ExitStack() as last,
        Clients(listener.getsockname()[1], kept=False) as clients,
    ):
        for _ in range(3):
            with activated(listener, *command, **options):
                clients.wait_for_creations()
        last.enter_context(activated(listener, *command, **options))
        clients.wait_for_creations()
    assert (clients.refused, clients.unanswered, clients.unconnected) == (0, 0, 0)


@pytest.mark.server
def test_store_that_cannot_be_used(tmp_path: Path) -> None:
    """A store that cannot be used is reported at once in one ERROR line; the service starts."""
    database = tmp_path / "other.db"
    with closing(sqlite3.connect(database)) as other:
        other.execute(f"CREATE TABLE plants ({COLUMNS.replace('name', 'title')})")
    for url, fault, error in (
        (UNREACHABLE, "failed", 50301),
        (f"sqlite:///{tmp_path}/missing/plants.db", "missing", 50301),
        (f"sqlite:///{database}", "table plants: it has no column name", 50303),
    ):
        with Gunicorn(PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_STORE=url) as server:
            server.wait_for(r"\[ERROR\] The store cannot be used now: .*" + fault)
            assert server.request(post(new_rose())).error == error
            assert server.log.count("The store cannot be used") == 1
            assert "hunter2" not in server.log


# An application with a store of its own that cannot be used.
OWN = """
from plantstore import MemoryStore, StoreUnavailable, create_app

class Broken(MemoryStore):
    def ping(self):
        raise StoreUnavailable("no shelf\\nis free")

app = create_app(store=Broken(), verify_token=str.upper)
"""


@pytest.mark.server
def test_own_store_that_cannot_be_used(tmp_path: Path) -> None:
    """The store of an operator's application is tested at the start, too."""
    (tmp_path / "own.py").write_text(OWN)
    with Gunicorn("--pythonpath", str(tmp_path), "own:app") as server:
        server.wait_for(r"\[ERROR\] The store cannot be used now: no shelf is free\. Until")


@pytest.mark.server
def test_token_of_raw_env_is_not_logged() -> None:
    """A token that gunicorn's option --env sets is in no log, also at the level debug."""
    with Gunicorn("--env", f"PLANTSTORE_TOKENS={TOKEN}", "--log-level", "debug") as server:
        assert server.request(post(new_rose())).status == 200
        assert TOKEN not in server.log


@pytest.mark.server
def test_other_worker_class_is_reported() -> None:
    """With another worker class, the log warns that slow clients can stop the service."""
    with Gunicorn("-k", "gthread", PLANTSTORE_TOKENS=TOKEN) as server:
        server.wait_for(
            r"\[WARNING\] Slow clients can stop the service: its worker class is not "
            r"plantstore\.server\._service_worker\.ServiceWorker\n"
        )


@pytest.mark.server
def test_statsd(tmp_path: Path) -> None:
    """With gunicorn's option for statsd, which has no effect, the log warns once.

    It does not if the operator has chosen another class for the log.
    """
    for options, count in (((), 1), (("--logger-class=gunicorn.instrument.statsd.Statsd",), 0)):
        with Gunicorn("--statsd-host=127.0.0.1:8125", *options, PLANTSTORE_TOKENS=TOKEN) as server:
            server.wait_for("Booting worker")
            assert server.log.count("[WARNING] --statsd-host has no effect: ") == count


@pytest.mark.server
def test_unknown_version_of_gunicorn(tmp_path: Path) -> None:
    """If something is missing that our worker needs, gunicorn's own serves, and the log warns."""
    (tmp_path / "own.py").write_text(
        "import select\ndel select.epoll\nfrom plantstore.server.config import *\n"
    )
    arguments = ("-c", str(tmp_path / "own.py"), "plantstore.wsgi:app")
    with Gunicorn(*arguments, PLANTSTORE_TOKENS=TOKEN) as server:
        server.wait_for(r"\[WARNING\] Slow clients can stop the service: select\.epoll is missing")
        assert server.request(post(new_rose())).status == 200


def test_without_gunicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gunicorn, `plantstore serve` says what to install."""
    monkeypatch.delitem(sys.modules, "plantstore.server", raising=False)
    monkeypatch.delattr("plantstore.server", raising=False)
    for name in [name for name in sys.modules if name.startswith("gunicorn.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gunicorn", None)
    result = invoke("serve")
    assert result.exit_code == 1
    assert result.stderr == "Error: gunicorn is missing: pip install 'plantstore[gunicorn]'\n"


def test_broken_installation_of_gunicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a module other than gunicorn is missing, `plantstore serve` does not name gunicorn."""
    monkeypatch.setitem(sys.modules, "plantstore.server", None)
    monkeypatch.delattr("plantstore.server", raising=False)
    assert isinstance(invoke("serve").exception, ModuleNotFoundError)
