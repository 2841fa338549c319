"""The README's commands work, and its tables match the code."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import indent

import pytest

from plantstore import Plant, open_store
from plantstore.settings import SETTINGS
from tests.support.fresh import ENVIRONMENT, copy_project, run
from tests.support.readme import block, recipe, rows
from tests.support.serving import ROOT, free_port, listening
from tests.support.waiting import wait_until

# Seconds that a command may take to download and install everything, on a busy machine.
INSTALLATION = 900


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project, in which packages are installed once for all tests."""
    return copy_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def folder(copy: Path) -> Path:
    """Return the copy of the project without plants, in which the README's commands run."""
    for file in copy.glob("plants.db*"):
        file.unlink()
    return copy


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return a folder with a .venv whose programs are those of this environment."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, module in (
        ("python", ""),
        ("gunicorn", "-m gunicorn"),
        ("plantstore", "-m plantstore"),
    ):
        program = programs / name
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {module} "$@"\n'
        )
        program.chmod(0o755)
    return tmp_path


@pytest.mark.skipif(shutil.which("curl") is None, reason="apt-get install curl")
def test_commands_without_installation(environment: Path) -> None:
    """The README's commands serve, add and administer plants, also without an installation."""
    _, _, command = block("serve").rpartition(" && ")
    with serving(f"{command.strip()} -c '{ROOT / 'gunicorn.conf.py'}'", environment) as port:
        add = block("add").replace(":8000/", f":{port}/")
        assert run(add, environment) == block("added").strip()
        assert run(add, environment) == block("duplicate").strip()
    assert run(recipe("command-line"), environment).splitlines()[-1] == "1\tMonstera\tindoor"


def test_pipe_from_one_store_to_another(environment: Path) -> None:
    """The pipe of docs/command-line.md copies all plants."""
    old, new = (f"sqlite:///{environment}/{name}.db" for name in ("old", "new"))
    with open_store(old) as store:
        store.add(Plant(1, "Monstera"))
    command = f"OLD_STORE={old} NEW_STORE={new}\n{recipe('pipe')}"
    assert run(command, environment) == "1 added\n"
    with open_store(new) as store:
        assert [*store] == [Plant(1, "Monstera")]


@pytest.mark.install
def test_serve_and_add_commands(folder: Path) -> None:
    """The README's commands to serve, add and administer work in a fresh copy of the project."""
    with serving(block("serve"), folder) as port:
        add = block("add").replace(":8000/", f":{port}/")
        assert run(add, folder) == block("added").strip()
        assert run(add, folder) == block("duplicate").strip()
        token, digest = run(".venv/bin/plantstore token", folder).splitlines()
        assert digest.startswith("sha256:")
        assert run(recipe("command-line"), folder).splitlines()[-1] == "1\tMonstera\tindoor"
        for store, extra in [("postgresql", "postgresql"), ("mysql", "mysql")]:
            refused = run(f".venv/bin/plantstore count --store {store}://x/y 2>&1 || true", folder)
            assert f"pip install 'plantstore[{extra}]'" in refused
    with serving(recipe("granian"), folder) as port:
        add = block("add").replace(":8000/", f":{port}/")
        assert run(add, folder) == block("added").strip()


@pytest.mark.install
def test_deployment_commands(folder: Path) -> None:
    """The commands for a deployment work in a fresh copy of the project."""
    assert block("deployment") == block("deployment", "docs/deploy.md")
    with serving(block("deployment"), folder) as port:
        add = block("add").replace(":8000/", f":{port}/")
        assert run(add, folder) == block("added").strip()


@pytest.mark.install
def test_nursery_commands(folder: Path) -> None:
    """The example starts with the command of docs/whole-site.md, and contains its six lines."""
    lines = recipe("nursery")
    assert len(lines.splitlines()) == 6
    source = (ROOT / "examples" / "nursery" / "app.py").read_text()
    assert indent(lines, " " * 4) in source
    with serving(recipe("nursery-serve"), folder) as port:
        add = block("add").replace(":8000/plants", f":{port}/api/plants")
        assert run(add, folder) == block("added").strip()
        assert "Monstera" in run(f"curl -s http://127.0.0.1:{port}/", folder)


@contextmanager
def serving(command: str, folder: Path) -> Iterator[int]:
    """Run a command that serves, unchanged but on a free port; provide the port."""
    port = free_port()
    # The servers read these variables, so the command stays as it is in the README.
    ports = {
        "GUNICORN_CMD_ARGS": f"--bind 127.0.0.1:{port}",
        "GRANIAN_PORT": str(port),
        "FLASK_RUN_PORT": str(port),
    }
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=ENVIRONMENT | ports, start_new_session=True
    ) as server:
        try:
            wait_until(lambda: server.poll() is not None or listening(port), INSTALLATION)
            assert server.poll() is None, "the command ended"
            yield port
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            wait_until(lambda: not listening(port))


def test_test_command_is_the_command_of_ci() -> None:
    """Continuous integration runs the README's test command word for word."""
    test = block("test")
    assert re.fullmatch(r"python3 .*pytest\n", test)
    assert "grep -m 1 '^python3 .*pytest$' README.md" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("file", ["README.md", "docs/durability.md"])
def test_table_of_stores_has_valid_urls(file: str) -> None:
    """open_store accepts every URL of the tables of stores."""
    for url, *_ in rows("store", file):
        assert open_store(url).one_process == (url == "memory://")


def test_table_of_settings_is_complete() -> None:
    """The table of docs/settings.md lists every setting, with its meaning and its default."""
    table = [
        (name, re.sub(r"\[(.*?)\]\(.*?\)", r"\1", meaning), default)
        for name, meaning, default in rows("name", "docs/settings.md")
    ]
    assert table == [
        (setting.name, setting.meaning.strip("`"), setting.default or "none")
        for setting in SETTINGS
    ]
