"""Reloads (SIGHUP) of the service under gunicorn, and workers that are replaced."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from shutil import rmtree

import pytest

from tests.support.reloading import (
    ANYWHERE,
    REFUSED,
    kill_workers,
    reload,
    served,
    status,
    workers,
    write,
)
from tests.support.serving import LIMIT, Server, free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.server


def test_reload_reads_the_file_of_tokens(tmp_path: Path) -> None:
    """SIGHUP replaces the workers, and the new ones accept the tokens of the changed file."""
    with served(tmp_path) as server:
        old = workers(server)
        write(tmp_path / "tokens", "two\n")
        server.signal(signal.SIGHUP)
        wait_until(lambda: not old & workers(server))
        assert (status(server, "one"), status(server, "two")) == (401, 200)
        for line in ("Store: sqlite:///plants.db", "Operations: create", "Workers: 2"):
            wait_until(lambda line=line: server.log.count(line) == 2)  # type: ignore[misc]


@pytest.mark.parametrize("fault", ["", "# none\n", "two\nthr#ee\n", None])
def test_broken_file_of_tokens(tmp_path: Path, fault: str | None) -> None:
    """A reload with a broken, empty or missing file of tokens is refused in one line.

    The old tokens stay in use, also in workers that replace killed ones, until the file is right.
    """
    with served(tmp_path) as server:
        old = workers(server)
        if fault is None:
            (tmp_path / "tokens").unlink()
        else:
            write(tmp_path / "tokens", fault)
        reload(server, REFUSED)
        assert workers(server) == old
        assert re.search(r"\[ERROR\] plantstore: PLANTSTORE_TOKENS_FILE: \w.*\n", server.log)
        has_line = "PLANTSTORE_TOKENS_FILE: line 2 is neither" in server.log
        assert has_line == (fault == "two\nthr#ee\n")
        kill_workers(server)
        assert {status(server, "one") for _ in range(10)} == {200}
        assert status(server, "two") == 401
        write(tmp_path / "tokens", "two\n")
        wait_until(lambda: {status(server, "two") for _ in range(10)} == {200})
        assert "Traceback" not in server.log


def test_revoked_token_stays_revoked(tmp_path: Path) -> None:
    """Workers that start while the file is broken accept the tokens that were read last.

    These are not the tokens of the start if the file has changed since without a signal.
    """
    with served(tmp_path) as server:
        write(tmp_path / "tokens", "two\n")
        wait_until(lambda: status(server, "two") == 200)
        write(tmp_path / "tokens", "")
        kill_workers(server)
        assert {status(server, "one") for _ in range(10)} == {401}
        assert {status(server, "two") for _ in range(10)} == {200}


# Configurations that a reload must refuse, and what the log says.
WRONG = [
    ("raise ValueError('no such garden')", "no such garden"),
    ("if", "SyntaxError"),
    ("raise SystemExit(0)", "Correct what is wrong"),
    ("import os; os._exit(0)", "Correct what is wrong"),
    ("worker_tmp_dir = '/missing'", "/missing"),
    ("threads = 0", "must be at least 1"),
    ("worker_connections = 0", "must be at least 1"),
    ("reuse_port = True", "cannot change bind, pidfile or reuse_port"),
    ("def pre_fork(server, worker): raise ValueError('no worker')", "ValueError: no worker"),
    ("def post_fork(server, worker): raise ValueError('no fork')", "ValueError: no fork"),
    ("def post_worker_init(worker): raise ValueError('not ready')", "ValueError: not ready"),
    ("def on_reload(server): raise ValueError('no reload')", "ValueError: no reload"),
    ("threads = 'many'", "Invalid value for threads"),
    ("worker_class = 'no.such.Worker'", "class uri 'no.such.Worker' invalid"),
    ("certfile = 'missing.pem'", "No such file or directory"),
    ("certfile = keyfile = 'own.py'", "ssl.SSLError"),
    ("user = 'nobody-at-all'", "No such user"),
    ("pidfile = 'missing/pid'", "cannot change bind, pidfile or reuse_port"),
    ("raw_env = ['PLANTSTORE_MAX_BODY=1 MB']", "PLANTSTORE_MAX_BODY: must be a whole number"),
    ("raw_env = ['PLANTSTORE_LOG=xml']", "PLANTSTORE_LOG: must be text or json"),
    ("raw_env = ['PLANTSTORE_STORE=memory://']", "can have only one worker, not 2"),
    ("wsgi_app = 'missing:app'", "No module named 'missing'"),
]


def test_reload_with_a_wrong_setting(tmp_path: Path) -> None:
    """A reload with a wrong setting of any kind is refused, and the service continues."""
    with served(tmp_path) as server:
        old = workers(server)
        for config, message in WRONG:
            before = len(server.log)
            (tmp_path / "own.py").write_text(config)
            reload(server, REFUSED)
            assert message in server.log[before:]
            assert workers(server) == old
        assert status(server, "one") == 200
        (tmp_path / "own.py").write_text("")
        reload(server, "Worker exiting")
        assert status(server, "one") == 200


def test_reload_without_options(tmp_path: Path) -> None:
    """A reload that would change the address, which old workers use, or end them, is refused."""
    config = tmp_path / "own.py"
    config.write_text(f"from plantstore.server.config import *\nbind = '127.0.0.1:{free_port()}'")
    command = ("gunicorn", "-c", str(config))
    with Server(*command, PLANTSTORE_TOKENS="one") as server:
        for line, message in (
            (
                f"bind = [bind, '127.0.0.1:{free_port()}']",
                "A reload cannot change bind",
            ),
            ("workers = 0", "workers, threads and worker_connections must be at least 1"),
        ):
            right = config.read_text()
            config.write_text(f"{right}\n{line}")
            reload(server, REFUSED)
            assert message in server.log
            assert status(server, "one") == 200
            config.write_text(right)


def test_reload_of_an_application_that_fails(tmp_path: Path) -> None:
    """A reload is refused if the module of the operator cannot be imported any more."""
    module = tmp_path / "garden.py"
    module.write_text("from plantstore import create_app\napp = create_app()\n")
    command = ("gunicorn", "-b", "127.0.0.1:0", "-c", "python:plantstore.server.config")
    arguments = (*command, "garden:app")
    with Server(*arguments, cwd=tmp_path, **ANYWHERE, PLANTSTORE_TOKENS="one") as server:
        assert status(server, "one") == 200
        module.write_text("app = create_app()\n")
        reload(server, REFUSED)
        assert "NameError: name 'create_app' is not defined" in server.log
        assert status(server, "one") == 200


def test_reload_that_fails_in_the_main_process(tmp_path: Path) -> None:
    """If a reload fails although a worker could start, the old configuration stays in use."""
    (tmp_path / "run").mkdir()
    with served(tmp_path, config="pidfile = 'run/pid'") as server:
        rmtree(tmp_path / "run")
        hook = "\ndef post_fork(server, worker): server.log.info('the new hook')"
        (tmp_path / "own.py").write_text(f"pidfile = 'run/pid'{hook}")
        reload(server, REFUSED)
        assert "The reload has failed: RuntimeError(" in server.log
        assert status(server, "one") == 200
        kill_workers(server)
        assert status(server, "one") == 200
        assert server.log.count("the new hook") == 1  # In the copy.


def test_operator_who_replaces_on_starting(tmp_path: Path) -> None:
    """The log warns if a configuration of the operator turns the protection off."""
    warning = r"\[WARNING\] A wrong reload can end the service: on_starting must call "
    with served(tmp_path, config="def on_starting(server): pass") as server:
        server.wait_for(warning)
    config = (
        "from plantstore.server.config import on_starting as ours\n"
        "def on_starting(server): ours(server)\n"
    )
    with served(tmp_path, config=config) as server:
        assert re.search(warning, server.log) is None


def test_preloaded_application_uses_the_newest_tokens(tmp_path: Path) -> None:
    """With preload_app, a new worker does not accept a token that was revoked since the start."""
    with served(tmp_path, config="preload_app = True") as server:
        write(tmp_path / "tokens", "two\n")
        wait_until(lambda: {status(server, "two") for _ in range(10)} == {200})
        (tmp_path / "tokens").write_text("two\nthree\n")
        kill_workers(server)
        assert {status(server, "one") for _ in range(10)} == {401}


def test_file_that_the_workers_cannot_read(public_folder: Path) -> None:
    """The service does not start if its workers, as another user, cannot read the tokens."""
    if os.geteuid() != 0:
        pytest.skip("only root can start workers as another user")
    path = public_folder / "tokens"
    path.write_text("one\n")
    path.chmod(0o600)
    command = ("plantstore", "serve", "--bind", "127.0.0.1:0", "--", "--user", "nobody")
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=public_folder,
        env={**os.environ, **ANYWHERE, "PLANTSTORE_TOKENS_FILE": "tokens"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode != 0
    assert f"PLANTSTORE_TOKENS_FILE: {os.strerror(13)}" in done.stderr


BREAK = """
import os

def on_reload(server):
    if os.getpid() == server.pid:  # Not in the copy, which has checked the file before.
        with open("tokens", "w") as file:
            file.write("two#hunter2")
"""


def test_file_of_tokens_that_breaks_during_a_reload(tmp_path: Path) -> None:
    """The new workers of a reload use the tokens that it has checked, if the file breaks then.

    Each of them reports the fault within a few seconds, although no request comes.
    """
    with served(tmp_path) as server:
        old = workers(server)
        (tmp_path / "own.py").write_text(BREAK)
        write(tmp_path / "tokens", "one\ntwo\n")
        server.signal(signal.SIGHUP)
        fault = "The file of tokens cannot be used: line 1 is neither"
        wait_until(lambda: not old & workers(server) and server.log.count(fault) >= 2)
        assert server.log.count("The earlier tokens (2) stay in use.") >= 2
        assert {status(server, token) for token in ("one", "two") for _ in range(5)} == {200}
        assert "Worker exited" not in server.log
        assert "The reload has failed" not in server.log
        assert "hunter2" not in server.log


# A reload may take a second. An earlier program may have changed what the signal does.
IMPATIENT = """
import signal
from plantstore.server import _reloading
_reloading._TIMEOUT = 1
signal.signal(signal.SIGALRM, signal.SIG_IGN)
"""


def test_reload_that_hangs(tmp_path: Path) -> None:
    """A reload whose configuration does not end is refused after some time."""
    with served(tmp_path, config=IMPATIENT) as server:
        (tmp_path / "own.py").write_text("import signal\nsignal.pause()")
        reload(server, REFUSED)
        assert "[ERROR] A worker could not start within 1 seconds" in server.log
        assert status(server, "one") == 200


def test_tokens_that_are_fewer(tmp_path: Path) -> None:
    """While the file is broken, new workers accept no token that it does not have any more."""
    with served(tmp_path) as server:
        write(tmp_path / "tokens", "four the greenhouse\ntwo\nthree\n")
        wait_until(lambda: {status(server, "four") for _ in range(10)} == {200})
        write(tmp_path / "tokens", "two\n")
        wait_until(lambda: {status(server, "three") for _ in range(10)} == {401})
        write(tmp_path / "tokens", "")
        kill_workers(server)
        assert {status(server, "two") for _ in range(10)} == {200}
        assert {status(server, token) for token in ("three", "four") for _ in range(5)} == {401}
