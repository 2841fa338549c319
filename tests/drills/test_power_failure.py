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

from tests.support.databases import MODES, installed
from tests.support.serving import LIMIT, ROOT

pytestmark = pytest.mark.drill

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

SYNCS, NAMES = {"fsync", "fdatasync"}, {"create", "unlink"}
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


def after(calls: list[Call]) -> dict[str, bytes]:
    """Return the contents of the files that a folder has after these calls."""
    contents, names = dict[str, bytes](), set[str]()
    for name, path, data, number in calls:
        old = contents.get(path, b"")
        if name == "create":
            names.add(path)
        elif name == "unlink":
            names.discard(path)
            contents.pop(path, None)
        else:
            contents[path] = old[:number].ljust(number, b"\0") + data
            contents[path] += old[number + len(data) :] if name == "write" else b""
    return {path: contents.get(path, b"") for path in names}


def power_failures(calls: list[Call], folder: str) -> Iterator[tuple[set[int], dict[str, bytes]]]:
    """Yield the acknowledged plants, and the files after power failures at each moment.

    What is in a file is durable when the file was synced, and its name when the folder was. Of the
    other calls, a failure undoes all, none or some.
    """
    acknowledged, durable, pending = set[int](), list[Call](), list[Call]()
    for call in calls:
        if call.name == "acknowledge":
            acknowledged.add(int(call.data))
        elif call.name == "sync":
            synced = [
                it for it in pending if call.path == (folder if it.name in NAMES else it.path)
            ]
            durable += synced
            pending = [it for it in pending if it not in synced]
        else:
            pending.append(call)
        some = [[it for it in pending if random.random() < 0.5] for _ in range(3)]
        for kept in ([], pending, *some):
            yield acknowledged, after(durable + kept)
    assert acknowledged == {*range(ADDS)}


def record(url: str, program: str, log: Path) -> list[Call]:
    """Run a program that adds plants; return its system calls."""
    trace = [installed("strace", "strace"), "-f", "-y", "-xx", "-s", "100000"]
    trace += ["-e", f"trace={CALLS}", "-o", str(log)]
    command = [*trace, sys.executable, "-W", "ignore", "-c", program, url, str(ADDS)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=LIMIT)
    return [call for line in log.read_text().splitlines() for call in parse(line)]


def parse(line: str) -> Iterator[Call]:
    """Yield the call in a line of strace, if it succeeded and is about a file that matters."""
    found = LINE.match(line)
    if found is None:
        return
    name, descriptor, opened, named, rest = found.groups()
    numbers = [int(number) for number in re.findall(r", (\d+)", rest)]
    # strace has written all bytes as escapes.
    data = ast.literal_eval('b"' + "".join(re.findall('"([^"]*)"', rest)) + '"')
    path = ast.literal_eval(f'"{opened or named or ""}"')
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


def lost_plants(calls: list[Call], folder: Path) -> set[int]:
    """Return the acknowledged plants that are lost if the power fails after any of the calls."""
    lost, copy = set[int](), folder / "copy"
    for acknowledged, files in power_failures(calls, str(folder)):
        lost |= acknowledged - stored(files, copy)
    return lost


def stored(files: dict[str, bytes], copy: Path) -> set[int]:
    """Return the ids in a database, which must be correct, after these files were opened."""
    copy.mkdir()
    for path, content in files.items():
        if not path.endswith("-shm"):  # It is not used after a failure.
            (copy / Path(path).name).write_bytes(content)
    try:
        with closing(sqlite3.connect(copy / "plants.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
                return set()
            return {id for (id,) in connection.execute("SELECT id FROM plants")}
    finally:
        shutil.rmtree(copy)


@pytest.mark.parametrize("mode", MODES)
def test_power_failure_loses_no_acknowledged_plant(tmp_path: Path, mode: str) -> None:
    """If the power fails after any write or sync, each plant acknowledged before it is stored.

    Of what was written but not synced, nothing, some or all is lost. The file is never corrupt.
    """
    url = f"sqlite:///{tmp_path}/plants.db?journal_mode={mode}"
    calls = record(url, ADDING, tmp_path / "log")
    assert lost_plants(calls, tmp_path) == set()


def test_drill_detects_a_store_that_acknowledges_early(tmp_path: Path) -> None:
    """The drill fails for a store that acknowledges plants before it stores them."""
    calls = record(f"sqlite:///{tmp_path}/plants.db", EARLY, tmp_path / "log")
    assert lost_plants(calls, tmp_path) == {*range(ADDS)}
