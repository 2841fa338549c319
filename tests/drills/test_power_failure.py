"""An SQLite file after a power failure at each moment, by the system calls that were recorded."""

import ast
import random
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.clients import Row
from tests.support.databases import MODES
from tests.support.serving import LIMIT, ROOT

STRACE = shutil.which("strace")
pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(STRACE is None, reason="apt-get install strace"),
]

ADDS = 6
# Adds plants, and writes the id of each one to standard output when it has been acknowledged.
ADDING = """
import os, sys
from plantstore import Plant, open_store
store = open_store(sys.argv[1])
for id in range(int(sys.argv[2])):
    store.add(Plant(id, "x" * 3000 * (id % 3)))
    os.write(1, b"%d" % id)
"""
# The same with a store that acknowledges each plant before it stores it.
EARLY = ADDING.replace("    store.add", "    os.write(1, b'%d' % id); store.add")
EARLY = EARLY.replace('    os.write(1, b"%d" % id)\n', "")

SYNCS = {"fsync", "fdatasync"}
CALLS = f"openat,write,pwrite64,ftruncate,unlink,{','.join(SYNCS)}"
# Such as: 12 pwrite64(5</folder/plants.db>, "\\x00\\x01", 2, 4096) = 2
LINE = re.compile(
    r'\d+ +(\w+)\((?:AT_FDCWD(?:<[^>]*>)?, )?(?:(\d+)<([^>]*)>|"([^"]*)")(.*)\) += \d'
)


class Call(NamedTuple):
    """A system call that changes a file, makes its changes durable, or acknowledges a plant."""

    name: str
    path: str
    data: bytes = b""
    number: int = 0


class Files(NamedTuple):
    """The contents of files by their paths, and the paths that are in the folder."""

    contents: dict[str, bytes]
    names: set[str]

    def after(self, calls: list[Call]) -> "Files":
        """Return the files after these calls."""
        contents, names = self.contents.copy(), self.names.copy()
        for name, path, data, number in calls:
            start = contents.get(path, b"")[:number].ljust(number, b"\0")
            if name == "create":
                names.add(path)
            elif name == "unlink":
                names.discard(path)
                contents.pop(path, None)
            elif name == "truncate":
                contents[path] = start
            else:
                contents[path] = start + data + contents.get(path, b"")[number + len(data) :]
        return Files(contents, names)


class Disk:
    """The files of a folder: what is durable, and the calls that a power failure may undo.

    What is in a file is durable when the file was synced, and its name when the folder was.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._durable = Files({}, set())
        self._pending: list[Call] = []

    def apply(self, call: Call) -> None:
        """Apply a call."""
        if call.name == "sync":
            synced = [change for change in self._pending if self._is_synced(change, call.path)]
            self._pending = [change for change in self._pending if change not in synced]
            self._durable = self._durable.after(synced)
        else:
            self._pending.append(call)

    def _is_synced(self, call: Call, path: str) -> bool:
        is_name = call.name in {"create", "unlink"}
        return path == (self._folder if is_name else call.path)

    def after_failures(self) -> Iterator[Files]:
        """Yield the files after power failures that undo all, none or some of the calls."""
        yield self._durable
        yield self._durable.after(self._pending)
        for _ in range(3):
            kept = [call for call in self._pending if random.random() < 0.5]
            yield self._durable.after(kept)


def record(url: str, program: str, log: Path) -> list[Call]:
    """Run a program that adds plants; return its system calls."""
    trace = [str(STRACE), "-f", "-y", "-xx", "-s", "100000", "-e", f"trace={CALLS}", "-o", str(log)]
    command = [*trace, sys.executable, "-W", "ignore", "-c", program, url, str(ADDS)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=LIMIT)
    return [call for line in log.read_text().splitlines() for call in parse(line)]


def parse(line: str) -> Iterator[Call]:
    """Yield the call in a line of strace, if it succeeded and is about a file that matters."""
    found = LINE.match(line)
    if found is None:
        return
    name, descriptor, opened, named, rest = found.groups()
    path = text(opened or named or "").decode()
    numbers = [int(number) for number in re.findall(r", (\d+)", rest)]
    data = text("".join(re.findall(r'"([^"]*)"', rest)))
    if descriptor == "1":
        yield Call("acknowledge", "", data)
    elif "plants.db" in path or name in SYNCS:
        if name == "openat" and "O_CREAT" in rest:
            yield Call("create", path)
        elif name == "pwrite64":
            yield Call("write", path, data, numbers[-1])
        elif name == "ftruncate":
            yield Call("truncate", path, number=numbers[-1])
        elif name == "unlink":
            yield Call("unlink", path)
        elif name in SYNCS:
            yield Call("sync", path)


def text(escaped: str) -> bytes:
    """Return the bytes that strace has written as escapes."""
    data: bytes = ast.literal_eval(f'b"{escaped}"')
    return data


def lost_plants(calls: list[Call], folder: Path, copy: Path) -> set[int]:
    """Return the acknowledged plants that are lost if the power fails after any of the calls."""
    disk, acknowledged, lost = Disk(folder), set[int](), set[int]()
    for call in calls:
        if call.name == "acknowledge":
            acknowledged.add(int(call.data))
        else:
            disk.apply(call)
        for files in disk.after_failures():
            lost |= acknowledged - stored(files, copy)
    assert acknowledged == {*range(ADDS)}
    return lost


def stored(files: Files, copy: Path) -> set[int]:
    """Return the ids in a database, which must be correct, after these files were opened."""
    copy.mkdir()
    for path in files.names:
        if not path.endswith("-shm"):  # It is not used after a failure.
            (copy / Path(path).name).write_bytes(files.contents.get(path, b""))
    try:
        with closing(sqlite3.connect(copy / "plants.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
                return set()
            return {id for (id,) in connection.execute("SELECT id FROM plants")}
    finally:
        shutil.rmtree(copy)


@pytest.mark.parametrize("mode", MODES)
def test_power_failure_loses_no_acknowledged_plant(tmp_path: Path, mode: str, row: Row) -> None:
    """If the power fails after any write or sync, each plant acknowledged before it is stored.

    Of what was written but not synced, nothing, some or all is lost. The file is never corrupt.
    """
    url = f"sqlite:///{tmp_path}/plants.db?journal_mode={mode}"
    calls = record(url, ADDING, tmp_path / "log")
    lost = lost_plants(calls, tmp_path, tmp_path / "copy")
    row(ADDS, ADDS, ADDS - len(lost), len(lost), 0)
    assert lost == set()


def test_drill_detects_a_store_that_acknowledges_early(tmp_path: Path) -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    calls = record(f"sqlite:///{tmp_path}/plants.db", EARLY, tmp_path / "log")
    assert lost_plants(calls, tmp_path, tmp_path / "copy") == {*range(ADDS)}
