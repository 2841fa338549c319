"""The README's commands work, and its tables match the code."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from plantstore.settings import SETTINGS
from tests.support.fresh import ENVIRONMENT, copy_project, run
from tests.support.readme import block, recipe, rows
from tests.support.serving import free_port, listening
from tests.support.waiting import wait_until

# Seconds that a command may take to download and install everything, on a busy machine.
INSTALLATION = 900


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project, in which packages are installed once for all tests."""
    return copy_project(tmp_path_factory.mktemp("project"))


def check_service(command: str, folder: Path) -> None:
    """Check that after a command that serves, the README's command adds a plant once."""
    for file in folder.glob("plants.db*"):
        file.unlink()
    with serving(command, folder) as port:
        add = block("add").replace(":8000/", f":{port}/")
        assert run(add, folder) == block("added").strip()
        assert run(add, folder) == block("duplicate").strip()


@pytest.mark.install
def test_commands_of_the_readme(folder: Path) -> None:
    """The README's commands, and those for a deployment, work in a fresh copy of the project."""
    check_service(block("serve"), folder)
    assert run(".venv/bin/plantstore token", folder).startswith("sha256:")
    assert '"name":"Monstera"' in run(recipe("command-line"), folder)
    for store, extra in [("postgresql", "postgresql"), ("mysql", "mysql")]:
        refused = run(f".venv/bin/plantstore export --store {store}://x/y 2>&1 || true", folder)
        assert f"pip install 'plantstore[{extra}]'" in refused
    for name in ("granian", "deployment"):
        check_service(recipe(name), folder)


@pytest.mark.parametrize("name", ["serve", "add", "added"])
def test_first_minute_of_the_documents(name: str) -> None:
    """The first page of the documents has the commands of the README, and the response."""
    assert recipe(name) == block(name)


@pytest.mark.install
def test_nursery_commands(folder: Path) -> None:
    """The example starts with the command of docs/whole-site.md, and shows what a supplier sent."""
    with serving(recipe("nursery-serve"), folder) as port:
        add = block("add").replace(":8000/plants", f":{port}/api/plants")
        assert run(add, folder) == block("added").strip()
        assert "Monstera" in run(f"curl -s http://127.0.0.1:{port}/", folder)


@pytest.mark.install
def test_install_recipe_with_frozen_versions(tmp_path: Path) -> None:
    """The installation changes no version of a site, whose requirements may have extras."""
    project = copy_project(tmp_path)
    pinned = "'flask[async]==3.1.0' Werkzeug==3.1.0"
    install = recipe("install-frozen").strip().replace(" plantstore", f" -q {project}")
    said = run(
        f"{shlex.quote(sys.executable)} -m venv env && PATH=env/bin:$PATH"
        f" && pip install -q {pinned} && {install} && pip freeze",
        tmp_path,
    )
    for name in ("Flask==3.1.0", "Werkzeug==3.1.0", "plantstore @ "):
        assert name in said


@contextmanager
def serving(command: str, folder: Path) -> Iterator[int]:
    """Run a command that serves, unchanged but on a free port; provide the port."""
    port = free_port()
    # The servers read these variables, so the command stays as it is in the README.
    ports = {name: str(port) for name in ("GRANIAN_PORT", "FLASK_RUN_PORT")}
    ports["GUNICORN_CMD_ARGS"] = f"--bind 127.0.0.1:{port}"
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


def test_table_of_settings_is_complete() -> None:
    """The table of docs/settings.md lists every setting, with its meaning and its default."""
    table = rows("name", "docs/settings.md")
    for row, setting in zip(table, SETTINGS, strict=True):
        row[1] = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", row[1])
        assert row == [setting.name, setting.meaning.strip("`"), setting.default or "none"]
