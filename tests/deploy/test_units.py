"""The units in deploy/, as far as they can be tested without a running systemd."""

import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from plantstore import open_store
from tests.support.activation import activation
from tests.support.databases import (
    PATH,
    Place,
    children,
    installed,
    only,
    postgresql,
    postgresql_programs,
    sqlite,
)
from tests.support.fresh import attempt, copy_project, run
from tests.support.readme import block
from tests.support.serving import LIMIT, ROOT, Connection, post
from tests.support.sites import ROSE_PLANT, TOKEN, new_rose

pytestmark = pytest.mark.deploy

UNIT = ROOT / "deploy" / "plantstore.service"
SOCKET = ROOT / "deploy" / "plantstore.socket"
BACKUP = ROOT / "deploy" / "plantstore-backup.service"
PROGRAM = "/opt/plantstore/bin/plantstore"
# A user who is not root, and owns nothing.
USER = 1234
# What is different in the commands of docs/deploy.md.
CHANGES = {
    # Unlike another Python, that of the system can be used by every user.
    "python3": "/usr/bin/python3",
    "/opt/": "{}/",
    "/etc/plantstore": "{}",
    "/etc/systemd/system/": "{}",
    "-g plantstore": f"-g {USER}",
}


# What reads such files for users is the reader of EnvironmentFile=, and prints what it has read.
READER = "/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator"


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of the file of the service, which systemd and a shell read alike."""
    (folder / "environment.d").mkdir()
    shutil.copy(folder / "environment", folder / "environment.d" / "plantstore.conf")
    systemd = f"XDG_CONFIG_HOME='{folder}' {installed(READER, 'systemd')}"
    printed = [run(f"env -i {it}", folder) for it in (systemd, "sh -c '. ./environment; set'")]
    read = [dict(re.findall(r"(\w+)=(.*)", "\n".join(shlex.split(text)))) for text in printed]
    names = re.findall(r"(?m)^(\w+)=", (folder / "environment").read_text())
    assert [read[0][name] for name in names] == [read[1][name] for name in names]
    return {"PATH": os.environ["PATH"]} | {name: read[0][name] for name in names}


def command(name: str, folder: Path) -> list[str]:
    """Return the first command of an option of the unit, with the program in a folder."""
    first, *_ = re.findall(f"(?m)^{name}=(.*)$", UNIT.read_text())
    return shlex.split(first.replace("/opt", str(folder)))


@pytest.fixture
def folder(public_folder: Path) -> Path:
    """Return the folder in which the commands of docs/deploy.md install the service."""
    (public_folder / "state").mkdir()
    os.chown(public_folder / "state", USER, USER)
    copy_project(public_folder / "source")
    (public_folder / "token").write_text(run_block("systemd", public_folder).split()[-1])
    settings = public_folder / "environment"  # deploy/environment.example.
    text = settings.read_text().replace("/etc/plantstore/", f"{public_folder}/")
    settings.write_text(text.replace("/var/lib/plantstore/", f"{public_folder}/state/"))
    return public_folder


def run_block(name: str, folder: Path) -> str:
    """Run commands of docs/deploy.md in a folder; return their output."""
    lines = block(name, "docs/deploy.md").splitlines()
    # The other commands change the users and the services of the machine.
    lines = [line for line in lines if not line.startswith(("adduser", "systemctl"))]
    commands = "\n".join(["set -e", "umask 022", "exec 2>&1", *lines])
    for old, new in CHANGES.items():
        commands = commands.replace(old, new.format(folder))
    assert str(folder) in commands
    return run(commands, folder / "source" / "plantstore")


def analyze(arguments: str) -> str:
    """Return the output of systemd-analyze, which must succeed."""
    program = installed("systemd-analyze", "systemd")
    return run(f"{program} {arguments} 2>&1", ROOT / "deploy")


def test_units_are_valid(tmp_path: Path) -> None:
    """Systemd accepts the units. The exposure is at most 2.0, and the service has its socket."""
    units = [UNIT, SOCKET, *(ROOT / "deploy").glob("plantstore-backup.*")]
    units.append(ROOT / "deploy" / "patroni" / "patroni.service")
    for unit in units:
        text = re.sub(r"/(opt|sbin)/[/\w]+", "/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text)
    # There may be warnings about the units of other packages.
    warnings = analyze("verify " + " ".join(f"{tmp_path}/{unit.name}" for unit in units))
    assert not re.search("plantstore|patroni", warnings.replace(str(tmp_path), ""))
    # The threshold is ten times the exposure. Above it, the command fails.
    assert "exposure" in analyze(f"security --offline=true --threshold=20 {UNIT.name}")
    lines = UNIT.read_text().splitlines()
    (after,) = [line for line in lines if line.startswith("After=")]
    assert SOCKET.name in after
    assert {f"Requires={SOCKET.name}", f"Also={SOCKET.name}"} <= {*lines}
    assert "ListenStream=127.0.0.1:8000" in SOCKET.read_text().splitlines()


def test_commands_as_an_ordinary_user(folder: Path) -> None:
    """The unit and docs/deploy.md work for an ordinary user, with the system calls of the unit."""
    calls = folder / "state" / "calls"
    as_user: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []}
    # systemd makes the folder of the metrics, which is empty at each start.
    (name, path) = re.findall(r"(?m)^Environment=(\w+)=%t/(.*)$", UNIT.read_text())[0]
    assert f"RuntimeDirectory={path}" in UNIT.read_text().splitlines()
    shared = {name: str(folder / "state")}
    as_user |= {"env": environment(folder) | shared, "cwd": folder / "state"}
    check = command("ExecStartPre", folder)
    subprocess.run(check, timeout=LIMIT, check=True, capture_output=True, **as_user)
    trace = [installed("strace", "strace"), "--follow-forks", "--summary-only", f"--output={calls}"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        started = [*trace, *activation(listener, *command("ExecStart", folder))]
        with subprocess.Popen(started, pass_fds=[listener.fileno()], **as_user) as process:
            try:
                with Connection(listener.getsockname()[1]) as connection:
                    token = (folder / "token").read_bytes()
                    request = post(new_rose()).replace(TOKEN.encode(), token)
                    assert connection.request(request).status == 200
                    assert [*(folder / "state").glob("histogram_*.db")]
            finally:
                (service,) = children(process.pid)
                os.kill(service, signal.SIGTERM)
                assert process.wait(LIMIT) == 0
    made = set(re.findall(r"^ *[\d.]+ .* (\w+)$", calls.read_text(), re.MULTILINE))
    assert "execve" in made
    assert made - permitted() == {"total"}
    assert "ok     Store: sqlite:///" in run_block("upgrade", folder)


def test_url_with_several_options(tmp_path: Path) -> None:
    """With the commands of step 4, systemd and the check get the whole of a URL that has ``&``."""
    shutil.copy(ROOT / "deploy" / "environment.example", tmp_path / "environment")
    url = "postgresql://plantstore@/plantstore?host=one,two&port=5432,5432"
    commands = block("postgresql-settings", "docs/deploy.md").replace("/etc/plantstore", ".")
    commands = commands.replace("postgresql://plantstore@127.0.0.1/plantstore", url)
    run(commands.replace("-o plantstore ", ""), tmp_path)
    assert environment(tmp_path)["PLANTSTORE_STORE"] == url


def permitted() -> set[str]:
    """Return the names of the system calls that the unit permits."""
    allowed: set[str] = set()
    for denied, names in re.findall(r"(?m)^SystemCallFilter=(~?)(.*)$", UNIT.read_text()):
        for name in names.split():
            allowed = allowed - calls_of(name) if denied else allowed | calls_of(name)
    return allowed


def calls_of(name: str) -> set[str]:
    """Return the system calls for which a name in a filter of systemd stands."""
    if not name.startswith("@"):
        return {name}
    names = re.findall(r"^ +(@?[\w-]+)$", analyze(f"syscall-filter {name}"), re.MULTILINE)
    return set[str]().union(*map(calls_of, names))


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    """Return an empty folder, in which the program of the unit is that of this environment."""
    program = tmp_path / "plantstore"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m plantstore "$@"')
    program.chmod(0o755)
    return tmp_path


def back_up(url: str, backups: Path) -> Path:
    """Run the command of the unit of backups in a folder, with a store; return the new file."""
    done = run_unit(url, backups)
    assert done.returncode == 0, done.stderr
    (file,) = backups.glob("plants-*")
    assert re.fullmatch(r"plants-[1-7]\.(db|dump)", file.name)
    return file


def run_unit(url: str, backups: Path) -> "subprocess.CompletedProcess[str]":
    """Run the command of the unit of backups in a folder, with a store."""
    found = re.search(r"^ExecStart=/bin/sh -c '(.*?)'$", BACKUP.read_text(), re.M | re.S)
    assert found is not None
    # What systemd does before it starts the command.
    script = found[1].replace("\\\n", " ").replace("$$", "$").replace("%%", "%")
    command = ["/bin/sh", "-c", script.replace(PROGRAM, str(backups / "plantstore"))]
    path = os.pathsep.join([str(postgresql_programs()), PATH])
    return attempt(command, cwd=backups, env={"PATH": path, "PLANTSTORE_STORE": url})


@only(sqlite)
def test_backup_of_sqlite(place: Place, backups: Path) -> None:
    """The unit copies an SQLite file, and replaces the copy of the same day of an earlier week."""
    with open_store(place.url) as store:
        back_up(place.url, backups)
        store.add(ROSE_PLANT)
        with closing(sqlite3.connect(back_up(place.url, backups))) as copy:
            assert copy.execute("SELECT name FROM plants").fetchall() == [(ROSE_PLANT.name,)]


@only(postgresql)
def test_backup_of_postgresql(place: Place, backups: Path) -> None:
    """The unit copies the table of PostgreSQL. A backup that fails keeps the copy of that day."""
    url = make_url(place.url).set(drivername="postgresql")
    with open_store(place.url) as store:
        store.add(ROSE_PLANT)
    # A platform gives the other scheme.
    before = back_up(f"{url}?connections=6".replace("postgresql", "postgres"), backups)
    content = before.read_bytes()
    assert run_unit(str(url.set(database="none")), backups).returncode != 0
    assert before.read_bytes() == content
    shown = run(f"{postgresql_programs()}/pg_restore --file=- {before.name}", backups)
    assert f"\t{ROSE_PLANT.name}\t" in shown
    several = f"?host=127.0.0.1,127.0.0.1&port=1,{url.port}"
    back_up(f"postgresql://plants@/postgres{several}", backups)


def test_backup_of_another_database(backups: Path) -> None:
    """The unit fails for a URL that its programs do not know, and does not show the password."""
    for scheme in ("mysql", "postgresql+psycopg"):
        done = run_unit(f"{scheme}://me:hunter2@127.0.0.1/plants", backups)
        assert done.returncode == 1
        assert "begins with postgresql:// or sqlite:" in done.stderr
        assert "hunter2" not in done.stdout + done.stderr
