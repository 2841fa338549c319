"""The units in deploy/ that back up the plants, as far as they can be tested without systemd."""

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from plantstore import open_store
from tests.support.databases import PATH, Place, only, postgresql, postgresql_programs, sqlite
from tests.support.fresh import run
from tests.support.serving import LIMIT, ROOT
from tests.support.sites import ROSE_PLANT

pytestmark = pytest.mark.deploy

UNIT = ROOT / "deploy" / "plantstore-backup.service"
PROGRAM = "/opt/plantstore/bin/plantstore"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder, in which the program of the unit is that of this environment."""
    program = tmp_path / "plantstore"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m plantstore "$@"')
    program.chmod(0o755)
    return tmp_path


def back_up(url: str, folder: Path) -> Path:
    """Run the command of the unit in a folder, with a store; return the new file."""
    done = run_unit(url, folder)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("plants-*")
    assert re.fullmatch(r"plants-[1-7]\.(db|dump)", file.name)
    return file


def run_unit(url: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the command of the unit in a folder, with a store."""
    found = re.search(r"^ExecStart=/bin/sh -c '(.*?)'$", UNIT.read_text(), re.M | re.S)
    assert found is not None
    # What systemd does before it starts the command.
    script = found[1].replace("\\\n", " ").replace("$$", "$").replace("%%", "%")
    command = ["/bin/sh", "-c", script.replace(PROGRAM, str(folder / "plantstore"))]
    path = os.pathsep.join([str(postgresql_programs()), PATH])
    settings = {"PATH": path, "PLANTSTORE_STORE": url}
    return subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, timeout=LIMIT
    )


@only(sqlite)
def test_backup_of_sqlite(place: Place, folder: Path) -> None:
    """The unit copies an SQLite file, and replaces the copy of the same day of an earlier week."""
    with open_store(place.url) as store:
        back_up(place.url, folder)
        store.add(ROSE_PLANT)
        with closing(sqlite3.connect(back_up(place.url, folder))) as copy:
            assert copy.execute("SELECT name FROM plants").fetchall() == [(ROSE_PLANT.name,)]


@only(postgresql)
def test_backup_of_postgresql(place: Place, folder: Path) -> None:
    """The unit copies the table of PostgreSQL. A backup that fails keeps the copy of that day."""
    url = make_url(place.url).set(drivername="postgresql")
    with open_store(place.url) as store:
        store.add(ROSE_PLANT)
    before = back_up(f"{url}?connections=6", folder)
    content = before.read_bytes()
    assert run_unit(str(url.set(database="none")), folder).returncode != 0
    assert before.read_bytes() == content
    shown = run(f"{postgresql_programs()}/pg_restore --file=- {before.name}", folder)
    assert f"\t{ROSE_PLANT.name}\t" in shown


@pytest.mark.parametrize("scheme", ["mysql", "postgresql+psycopg"])
def test_backup_of_another_database(scheme: str, folder: Path) -> None:
    """The unit fails for a URL that its programs do not know, and does not show the password."""
    done = run_unit(f"{scheme}://me:hunter2@127.0.0.1/plants", folder)
    assert done.returncode == 1
    assert "begins with postgresql:// or sqlite:" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
