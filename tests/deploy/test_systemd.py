"""deploy/plantstore.service, as far as it can be tested without a running systemd."""

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.databases import children
from tests.support.fresh import copy_project, run
from tests.support.readme import block
from tests.support.serving import LIMIT, ROOT, Connection, free_port, listening, post
from tests.support.sites import TOKEN, new_rose
from tests.support.waiting import wait_until

ANALYZE = shutil.which("systemd-analyze")
STRACE = shutil.which("strace")
# Unlike another Python, that of the system can be used by every user.
PYTHON = "/usr/bin/python3"
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.skipif(None in {ANALYZE, STRACE}, reason="apt-get install systemd strace"),
]

UNIT = ROOT / "deploy" / "plantstore.service"
PROGRAM = "/opt/plantstore/bin/plantstore"
# A user who is not root, and owns nothing.
USER = 1234
# What is different in the commands of docs/deploy.md.
CHANGES = {
    "python3": PYTHON,
    "/opt/": "{}/",
    "/etc/plantstore": "{}",
    "/etc/systemd/system/": "{}",
    "-g plantstore": f"-g {USER}",
}


def environment(folder: Path, port: int) -> dict[str, str]:
    """Return the variables of deploy/environment.example, for files in a folder."""
    text = (ROOT / "deploy" / "environment.example").read_text()
    text = text.replace("/etc/plantstore/", f"{folder}/").replace(":8000", f":{port}")
    text = text.replace("/var/lib/plantstore/", f"{folder}/state/")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    values = [shlex.split(line)[0] for line in lines]  # As systemd and a shell read a line.
    return {"PATH": os.environ["PATH"]} | dict(value.split("=", 1) for value in values)


def command(name: str, folder: Path) -> list[str]:
    """Return the first command of an option of the unit, with the program in a folder."""
    found = re.search(f"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert found is not None
    return shlex.split(found[1].replace("/opt", str(folder)))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return the folder in which the commands of docs/deploy.md install the service.

    USER owns its folder `state`, which is empty.
    """
    with TemporaryDirectory(prefix="plantstore-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        os.chown(folder / "state", USER, USER)
        lines = block("systemd", "docs/deploy.md").splitlines()
        # The other commands change the users and the services of the machine.
        lines = [line for line in lines if not line.startswith(("adduser", "systemctl"))]
        commands = "\n".join(["set -e", "umask 022", *lines])
        for old, new in CHANGES.items():
            assert old in commands
            commands = commands.replace(old, new.format(folder))
        token = run(commands, copy_project(folder / "source")).strip()
        (folder / "token").write_text(token)
        yield folder


def analyze(*arguments: str | Path) -> str:
    """Return the output of systemd-analyze, which must succeed."""
    done = subprocess.run(
        [str(ANALYZE), *arguments], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_unit_is_valid(tmp_path: Path) -> None:
    """Systemd accepts the unit without a warning."""
    copy = tmp_path / "plantstore.service"
    copy.write_text(UNIT.read_text().replace(PROGRAM, "/bin/true"))
    assert analyze("verify", copy) == ""


def test_exposure_is_small() -> None:
    """The exposure of the unit is at most 2.0 of 10."""
    # The threshold is ten times the exposure. Above it, the command fails.
    assert "exposure" in analyze("security", "--offline=true", "--threshold=20", UNIT)


def test_commands_as_an_ordinary_user(folder: Path) -> None:
    """ExecStartPre and ExecStart work for an ordinary user in an empty folder, with the example.

    The unit permits every system call that the service makes.
    """
    port = free_port()
    calls = folder / "state" / "calls"
    as_user: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []}
    as_user |= {"env": environment(folder, port), "cwd": folder / "state"}
    check = command("ExecStartPre", folder)
    subprocess.run(check, timeout=LIMIT, check=True, capture_output=True, **as_user)
    trace = [str(STRACE), "--follow-forks", "--summary-only", "--output", str(calls)]
    with subprocess.Popen([*trace, *command("ExecStart", folder)], **as_user) as process:
        try:
            wait_until(lambda: listening(port))
            assert create(port, (folder / "token").read_text()) == 200
        finally:
            (service,) = children(process.pid)
            os.kill(service, signal.SIGTERM)
            assert process.wait(LIMIT) == 0
    made = set(re.findall(r"^ *[\d.]+ .* (\w+)$", calls.read_text(), re.MULTILINE))
    assert "execve" in made
    assert made - permitted() == {"total"}


def create(port: int, token: str) -> int:
    """Return the status of a create request."""
    with Connection(port) as connection:
        connection.send(post(new_rose()).replace(TOKEN.encode(), token.encode()))
        return connection.receive().status


def permitted() -> set[str]:
    """Return the names of the system calls that the unit permits."""
    lines = re.findall(r"^SystemCallFilter=(~?)(.*)$", UNIT.read_text(), re.MULTILINE)
    allowed: set[str] = set()
    for denied, names in lines:
        for name in names.split():
            allowed = allowed - calls_of(name) if denied else allowed | calls_of(name)
    return allowed


def calls_of(group: str) -> set[str]:
    """Return the names of the system calls of a group of systemd."""
    names = re.findall(r"^ +(@?[\w-]+)$", analyze("syscall-filter", group), re.MULTILINE)
    groups = [calls_of(name) for name in names if name.startswith("@")]
    return set(names).union(*groups)
