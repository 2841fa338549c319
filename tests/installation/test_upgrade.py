"""An upgrade of the service while clients use it."""

import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from plantstore import open_store
from tests.support.activation import activation
from tests.support.clients import Clients
from tests.support.fresh import ENVIRONMENT, copy_project, run
from tests.support.upgrade import NEW, OLD, message, wheel_of_another_version
from tests.support.waiting import program

pytestmark = pytest.mark.install

COMMAND = ("env/bin/plantstore", "serve", "--workers=2")
SETTINGS = {"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_STORE": "sqlite:///plants.db"}


def test_upgrade_under_load(tmp_path: Path) -> None:
    """An installation and a restart bring a new version, without a request that fails."""
    project = copy_project(tmp_path / "project")
    run(f"python3 -m venv env && env/bin/pip install -q '{project}[gunicorn,sqlite]'", tmp_path)
    wheel = wheel_of_another_version(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as last:
        port = listener.getsockname()[1]
        command = activation(listener, *COMMAND)
        options: dict[str, Any] = {"cwd": tmp_path, "env": ENVIRONMENT | SETTINGS}
        options["pass_fds"] = [listener.fileno()]
        with Clients(port, kept=False) as clients:
            with program(port, command, **options) as old:
                clients.wait_for_creations()
                run(f"env/bin/pip install -q --no-deps {wheel}", tmp_path)
                clients.wait_for_creations()
                assert OLD in message(port)
            assert old.returncode == 0
            last.enter_context(program(port, command, **options))
            clients.wait_for_creations()
            assert NEW in message(port)
    assert (clients.refused, clients.unanswered, clients.unconnected) == (0, 0, 0)
    with open_store(f"sqlite:///{tmp_path}/plants.db") as store:
        assert {*store} == clients.acknowledged
