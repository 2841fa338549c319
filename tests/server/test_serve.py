"""`plantstore serve`, and what the service reports when it starts."""

import re
import signal
import sys
from pathlib import Path

import pytest

from plantstore import __version__
from tests.support.commands import invoke, refused
from tests.support.databases import UNREACHABLE
from tests.support.reloading import serve
from tests.support.serving import Gunicorn, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until


@pytest.mark.server
def test_serve_from_any_folder(tmp_path: Path) -> None:
    """`plantstore serve` runs from any folder, and reports in one line each what it serves."""
    (tmp_path / "tokens").write_text("one\ntwo Flora\n")
    (tmp_path / "gunicorn.conf.py").write_text("raise SystemExit('not ours')")
    options = ("--workers=2", "--threads=3", "--store=sqlite:///plants.db")
    tokens = {"PLANTSTORE_TOKENS": TOKEN, "PLANTSTORE_TOKENS_FILE": "tokens"}
    with serve(*options, folder=tmp_path, **tokens) as server:
        assert server.request(post(new_rose())).status == 200
        for line in (
            f"plantstore {__version__}",
            f"Listening at: http://127.0.0.1:{server.port} ",
            f"Store: sqlite:///{tmp_path}/plants.db",
            "Tokens: 1 from PLANTSTORE_TOKENS, 2 from PLANTSTORE_TOKENS_FILE",
            "Operations: create",
            "Page to try requests: /docs",
            "Log: refused requests; --access-logfile - of gunicorn adds the others",
            "Workers: 2",
            "Threads of each worker: 3",
            "The store can be used.",
        ):
            server.wait_for(re.escape(f"[INFO] {line}"))
        wait_until(lambda: server.log.count("Booting worker") == 2)
        assert server.log.count("The store can be used.") == 1
        assert "was added" not in server.log  # A line for each plant would be slow.
        server.signal(signal.SIGTERM)
        server.wait_for("Shutting down: Master")
        assert server.log.count("Store: ") == 1  # Only one of the two workers reports it.


CONFIG = "python:plantstore.server.config"
# Applications in a module of one's own, and their lines of the log.
APPS = {
    "create_app({'PLANTSTORE_OPERATIONS': 'read,create'}, store=Own(), verify_token=str.upper)": (
        *("Store: Own", "Operations: read, create", "Threads of each worker: 1"),
    ),
    "ProxyFix(create_app({'PLANTSTORE_STORE': 'sqlite:///x.db'}, verify_token=str.upper))": (
        *("Store: sqlite:///FOLDER/x.db", "Operations: create", "Threads of each worker: 8"),
    ),
}


@pytest.mark.server
@pytest.mark.parametrize(("code", "report"), APPS.items(), ids=["arguments", "middleware"])
def test_report_of_another_application(tmp_path: Path, code: str, report: tuple[str, ...]) -> None:
    """An application of an operator's own module says in the log what it serves, too, once."""
    start = "from plantstore import *\nfrom werkzeug.middleware.proxy_fix import ProxyFix\n"
    (tmp_path / "own.py").write_text(f"{start}class Own(MemoryStore): pass\napp = {code}")
    lines = [re.escape(f"{line}\n".replace("FOLDER", str(tmp_path))) for line in report]
    with Gunicorn("--chdir", str(tmp_path), "-c", CONFIG, "own:app") as server:
        for line in lines:
            server.wait_for(rf"\[INFO\] {line}")
        assert server.request(post(new_rose())).status == 200
        server.signal(signal.SIGHUP)
        server.wait_for(f"(?s)({lines[0]}.*){{2}}")
        assert "Tokens: " not in server.log


@pytest.mark.server
def test_options_of_gunicorn(tmp_path: Path) -> None:
    """Options of gunicorn may follow two dashes. A token of its option --env is in no log.

    With plants in memory, the number of threads has no effect, and the log says so.
    """
    (tmp_path / "own.py").write_text("accesslog = '-'\nthreads = 5\n")
    options = ("-c", "own.py", "--log-level=debug")
    with serve("--", *options, f"--env=PLANTSTORE_TOKENS={TOKEN}", folder=tmp_path) as server:
        assert server.request(post(new_rose())).status == 200
        server.wait_for('"POST /plants HTTP/1.1" 200')
        server.wait_for("Threads of each worker: 1")
        assert "Requests: only" not in server.log
        assert "plantstore.server._service_worker.ServiceWorker" in server.log
        assert TOKEN not in server.log


# Options of `plantstore serve`, and what its message says.
WRONG_OPTIONS = [
    ("wsgi:app", "plantstore serve has no argument wsgi:app"),
    ("--bind=", "--bind needs an address"),
    ("--bind=127.0.0.1:99999", "0-65535"),
    ("--bind=fd://x", "'x' is not a valid file descriptor"),
    ("--bind=fd://99", "Bad file descriptor"),
    ("--bind=unix:tokens", "'tokens' is not a socket"),
    ("-- --certfile=missing.pem", "No such file or directory (missing.pem, None)"),
    ("-- --certfile=tokens", "plantstore: no certificate can be read: [SSL] "),
    ("-- -k gevent", f"plantstore serve has no option -k: use gunicorn -c {CONFIG}"),
]
NO_TOKEN = "no token is configured: set PLANTSTORE_TOKENS"
OURS, OTHER = f"gunicorn -c {CONFIG}", "gunicorn plantstore.wsgi:app"
# Commands after a variable that is wrong, and what the message says.
WRONG_SETTINGS = [
    ("PLANTSTORE_TOKENS= plantstore serve", NO_TOKEN),
    ("WEB_CONCURRENCY=x plantstore serve", "WEB_CONCURRENCY must be a number"),
    ("PORT=abc plantstore serve", "Error: 'abc' is not a valid port number."),
    ("PLANTSTORE_LOG=xml plantstore serve", "PLANTSTORE_LOG: must be text or json"),
    (f"WEB_CONCURRENCY=2 {OURS} -w 4", "can have only one worker, not 4"),
    (f"PLANTSTORE_STORE=foo://me:hunter2@host/db {OURS}", "PLANTSTORE_STORE: not the URL of a"),
    (f"PLANTSTORE_TOKENS= {OTHER}", NO_TOKEN),
]
WRONG = [(f"PORT=0 plantstore serve {options}", message) for options, message in WRONG_OPTIONS]


@pytest.mark.parametrize(("line", "message"), [*WRONG, *WRONG_SETTINGS])
def test_wrong_setting_is_refused_in_one_line(tmp_path: Path, line: str, message: str) -> None:
    """A wrong setting is refused in one line, also by gunicorn without our configuration."""
    (tmp_path / "tokens").write_text("t")
    setting, *command = line.split()
    name, _, value = setting.partition("=")
    if name != "PORT":
        command += ["--bind=127.0.0.1:0"]  # The usual port may be in use.
    if OTHER in line:
        command += ["--no-control-socket"]
    refusal = refused(*command, folder=tmp_path, **{"PLANTSTORE_TOKENS": "t", name: value})
    assert message in refusal
    assert "hunter2" not in refusal


@pytest.mark.server
def test_store_that_cannot_be_used() -> None:
    """A store that cannot be used is reported at once, and requests are refused."""
    with Gunicorn(PLANTSTORE_TOKENS=TOKEN, PLANTSTORE_STORE=UNREACHABLE) as server:
        server.wait_for(r"\[ERROR\] The store cannot be used now: .*failed")
        assert server.request(post(new_rose())).error == 50301
        assert server.log.count("The store cannot be used") == 1
        assert "hunter2" not in server.log


@pytest.mark.server
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("-k gthread", "its worker class is not plantstore.server._service_worker.ServiceWorker\n"),
        # Something is missing that our worker needs, as with another version of gunicorn.
        ("-c {}/own.py plantstore.wsgi:app", "cannot import name 'epoll' from 'select'"),
    ],
)
def test_warning_at_the_start(tmp_path: Path, options: str, reason: str) -> None:
    """If an option of gunicorn weakens the service, the log warns."""
    code = "import select\ndel select.epoll\nfrom plantstore.server.config import *\n"
    (tmp_path / "own.py").write_text(code)
    with Gunicorn(*options.format(tmp_path).split(), PLANTSTORE_TOKENS=TOKEN) as server:
        server.wait_for(rf"\[WARNING\] Slow clients can stop the service: {reason}")
        assert server.request(post(new_rose())).status == 200


def test_without_gunicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gunicorn, `plantstore serve` says what to install; without another module, it fails.

    Then, its traceback names the module.
    """
    monkeypatch.delattr("plantstore.server", raising=False)
    monkeypatch.setitem(sys.modules, "plantstore.server", None)
    assert isinstance(invoke("serve").exception, ModuleNotFoundError)
    monkeypatch.delitem(sys.modules, "plantstore.server")
    for name in [name for name in sys.modules if name.startswith("gunicorn.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "gunicorn", None)
    missing = "Error: gunicorn is missing: pip install 'plantstore[gunicorn]'\n"
    result = invoke("serve")
    assert (result.exit_code, result.stderr) == (1, missing)
