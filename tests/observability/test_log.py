"""The format of the log, and the address of a client behind a proxy that it shows."""

import json
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from flask import request

from plantstore import create_app
from tests.support.log import LINE
from tests.support.reloading import ANYWHERE
from tests.support.serving import LIMIT, Connection, Gunicorn, configured, post
from tests.support.sites import TOKEN, new_rose

# An application whose store fails in a way that nothing expects, and which uses the log itself.
BROKEN = """
import logging, warnings
from plantstore import MemoryStore, create_app
class Broken(MemoryStore):
    def add(self, plant):
        raise ZeroDivisionError
app = create_app(store=Broken())
warnings.warn("a warning\\nof two lines")
logging.getLogger("other").error("an error\\x1b\\u2028\\r")
logging.basicConfig(level="INFO")
"""
ADDRESS = "203.0.113.7"


@contextmanager
def broken(folder: Path, *arguments: str, **environment: str) -> Iterator[Gunicorn]:
    """Run BROKEN, to which a request is sent."""
    (folder / "own.py").write_text(BROKEN)
    options = ("--access-logfile", "-", "--pythonpath", str(folder), *arguments, "own:app")
    with Gunicorn(*options, PLANTSTORE_TOKENS=TOKEN, **environment) as server:
        assert server.request(post(new_rose(), "X-Request-ID: abc-1")).error == 50001
        server.wait_for("POST /plants HTTP/1.1.* 500 .* abc-1")
        yield server


@pytest.mark.server
def test_one_format(tmp_path: Path) -> None:
    """Each line of gunicorn, of the access log and of any package has time, process and level.

    No text can begin a line, or control a terminal. A line appears once, also if the application
    configures the root logger.
    """
    with broken(tmp_path, "--log-level", "debug", TZ="Asia/Tokyo") as server:
        forged = post(b"").replace(b"/plants", b"/%0a[2026]%1b")
        assert server.request(forged).status == 404
        server.wait_for(r'"POST /\\n\[2026\]\\u001b HTTP/1.1" 404')
        log = server.log
    lines = re.split(r"\n(?!  )", log.rstrip("\n"))  # Each with its further lines.
    assert all(LINE.match(line) for line in lines), log
    (line,) = [line for line in lines if "50001: " in line]
    assert "] [ERROR] 50001: " in line
    assert "request: abc-1)\n  Traceback (most recent call last):\n" in line
    assert TOKEN not in log
    assert sum(" 500 " in line and line.endswith(' "token-1" abc-1') for line in lines) == 1
    for text in (" Booting worker ", "an error\\u001b\\u2028\\r", "a warning\n  of two lines"):
        assert sum(text in line for line in lines) == 1


@pytest.mark.server
def test_json_lines(tmp_path: Path) -> None:
    """With PLANTSTORE_LOG=json, each line is a JSON object, also a traceback and an access."""
    with broken(tmp_path, "--env", "PLANTSTORE_LOG=json") as server:
        assert server.request(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").status == 404
        server.wait_for("GET / HTTP/1.1.* 404 ")
        lines = [json.loads(line) for line in server.log.splitlines()]
    for line in lines:
        assert {"time", "process", "level", "message"} <= {*line}
        assert line["time"].endswith("+00:00")
    assert any("a warning\nof two lines" in line["message"] for line in lines)
    (line,) = [line for line in lines if line["message"].startswith("50001: ")]
    assert line["level"] == "ERROR"
    about = {"client": "token-1", "address": "127.0.0.1", "request_id": "abc-1"}
    assert about.items() <= line.items()
    access, other = [line for line in lines if "status" in line]
    assert (other["status"], other.get("client")) == (404, None)
    request = {"method": "POST", "path": "/plants", "status": 500}
    assert (about | request).items() <= access.items()
    assert 0 < access["seconds"] < LIMIT
    assert line["traceback"].startswith("Traceback (most recent call last):\n")


def test_lines_appear_once_under_another_server() -> None:
    """A line of the service appears once if its server logs all loggers, as Waitress does."""
    code = "from plantstore.wsgi import app; import logging; logging.basicConfig(level='INFO')"
    command = [sys.executable, "-c", f"{code}; app.test_client().get('/other')"]
    environment = {**os.environ, **ANYWHERE, "PLANTSTORE_TOKENS": TOKEN}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stderr.splitlines() if "40401: " in line]
    assert LINE.match(line)


@pytest.mark.server
@pytest.mark.parametrize(
    ("options", "prefix"),
    [([], rb"gunicorn\.wsgi\.app"), (["--log-syslog-prefix=garden"], rb"gunicorn\.garden")],
)
def test_syslog(tmp_path: Path, options: list[str], prefix: bytes) -> None:
    """Lines for syslog have the format of the log, after the prefix that they have by gunicorn."""
    path, log = tmp_path / "syslog", b""
    options += ["--log-syslog", f"--log-syslog-to=unix://{path}#dgram"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog, ExitStack() as running:
        syslog.bind(str(path))
        syslog.settimeout(LIMIT)
        # The system keeps only a few lines, so they are read while the service starts.
        server = Gunicorn(*options, "wsgi:app", PLANTSTORE_TOKENS=TOKEN)
        running.callback(server.stop)
        while b"The store can be used" not in log:
            log += syslog.recv(10_000)
        server.wait_until_ready()
        assert server.request(b"GET /%0a HTTP/1.1\r\nHost: x\r\n\r\n").status == 404
        while b'"GET /' not in log:
            log += syslog.recv(10_000)
    start = rb">%s\.%s: \[.*\] \[\d+\] \[INFO\] "
    assert re.search(start % (prefix, b"error") + b"40401: ", log)
    access = rb"127\.0\.0\.1 \"GET /\\n HTTP/1\.1\" 404"
    assert re.search(start % (prefix, b"access") + access, log)


@pytest.mark.server
def test_logging_configuration_of_the_operator(tmp_path: Path) -> None:
    """If the operator configures all loggers of gunicorn, those of the service are left alone."""
    config = {"loggers": {"plantstore": {"level": "ERROR"}}}
    code = f"from plantstore.server.config import *\nlogconfig_dict = {config}"
    (tmp_path / "own.py").write_text(code)
    arguments = ("-c", str(tmp_path / "own.py"))
    with Gunicorn(*arguments, "wsgi:app", PLANTSTORE_TOKENS=TOKEN) as server:
        assert server.request(post(b"{")).error == 40002


@pytest.mark.parametrize(
    ("name", "value", "module", "extra"),
    [
        ("PLANTSTORE_LOG", "json", "pythonjsonlogger", "gunicorn"),
        ("PLANTSTORE_METRICS", "1", "prometheus_client", "metrics"),
    ],
)
def test_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, module: str, extra: str
) -> None:
    """If the library of a setting is missing, the service says what to install."""
    for missing in (module, f"{module}.json"):
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ValueError, match=f"^{name}: .*pip install 'plantstore\\[{extra}]'$"):
        create_app({name: value, "PLANTSTORE_TOKENS": TOKEN})


@pytest.mark.server
def test_limit_of_threads(tmp_path: Path) -> None:
    """While no thread can be started, a worker says so in one line, and another one tries again."""
    limit = """
import threading
def start(thread):
    raise RuntimeError("can't start new thread")
def post_fork(server, worker):
    worker.is_first = True
    if worker.age == 1:
        threading.Thread.start = start
"""
    with configured(tmp_path, limit) as server:
        assert server.request(post(new_rose())).status == 200
        assert server.log.count("[ERROR] No thread can be started: raise ") == 1


@pytest.mark.server
def test_application_that_cannot_be_loaded(tmp_path: Path) -> None:
    """A fault of an application at its start ends the service, and its traceback is in the log."""
    (tmp_path / "own.py").write_text("raise RuntimeError('own')")
    command = [sys.executable, "-m", "gunicorn", "-c", "python:plantstore.server.config", "own:app"]
    environment = {**os.environ, **ANYWHERE, "PORT": "0"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert (done.returncode, b"RuntimeError: own" in done.stderr) == (3, True)


@pytest.mark.parametrize(
    ("proxies", "sent", "expected"),
    [
        (0, ADDRESS, "127.0.0.1"),  # By default, no client can choose the address in the log.
        (1, f"192.0.2.1, x, {ADDRESS} ", ADDRESS),
        (2, f"192.0.2.1, {ADDRESS}, 192.0.2.2", ADDRESS),
        (2, ADDRESS, "127.0.0.1"),
        (1, "", "127.0.0.1"),
        (1, "1' client: 'x\x1b", "1' client: 'x\\x1b"),  # It cannot look like another part.
    ],
)
def test_address_that_a_proxy_sends(
    proxies: int, sent: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The address in the log is that of the first proxy, or of the connection; no URL changes."""
    caplog.set_level(logging.INFO)
    app = create_app({"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_PROXIES": proxies})
    app.add_url_rule("/url", view_func=lambda: f"{request.url} {request.script_root}")
    names = ("Proto", "Host", "Port", "Prefix")
    headers = {"X-Forwarded-For": sent, **{f"X-Forwarded-{name}": "https" for name in names}}
    assert app.test_client().get("/url", headers=headers).text == "http://localhost/url "
    app.test_client().get("/plants", headers=headers)
    assert re.search(rf"address: ['\"]{re.escape(expected)}['\"], request: ", caplog.text)


@pytest.mark.server
def test_address_of_the_client_is_that_of_the_last_proxy(tmp_path: Path) -> None:
    """Both lines of the log have the address that a proxy names, also on a Unix socket."""
    path = tmp_path / "socket"
    binds = ("--bind=[::]:0", f"--bind=unix:{path}")
    settings = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_PROXIES": "1"}
    with Gunicorn("--access-logfile=-", *binds, **settings) as server:
        port = int(server.wait_for(r"http://\[::\]:(\d+)")[1])
        for socket, headers, expected in (
            (None, [f"X-Forwarded-For: {ADDRESS}"], ADDRESS),
            (None, ["X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: ::1"], "::1"),
            (None, [], "127.0.0.1"),
            (path, [f"X-Forwarded-For: {ADDRESS}"], ADDRESS),
        ):
            with Connection(port, socket) as connection:
                connection.send(post(b"{}", *headers))
                id = connection.receive().headers["x-request-id"]
            server.wait_for(rf"40003: .*, address: '{expected}', request: {id}\)")
            server.wait_for(rf'(?m)\] {expected} "POST /plants HTTP/1.1" .* {id}$')
