"""The files by which processes share metrics: their number, and their counts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest
from prometheus_client import Metric

from plantstore.observability.shared_files import has_ended, prepare_file, read_files
from tests.support.reloading import ANYWHERE
from tests.support.serving import LIMIT
from tests.support.waiting import wait_until

# A process that shares metrics, has five requests, and then waits for the end of its input.
PROCESS = """
import sys
from plantstore import create_app
client = create_app({"PLANTSTORE_TOKENS": "s3cret", "PLANTSTORE_METRICS": "1"}).test_client()
for _ in range(5):
    client.get("/other")
sys.stdin.read()
"""
SIZE = 512 << 10


@contextmanager
def processes(folder: Path, number: int) -> Iterator[list[str]]:
    """Run processes that share metrics in a folder. Yield the names of their files."""
    environment = {**os.environ, **ANYWHERE, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    command = [sys.executable, "-c", PROCESS]
    with ExitStack() as stack:
        before = count(read_files(str(folder)))
        running = []
        for _ in range(number):
            process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE)
            running.append(stack.enter_context(process))
            stack.callback(process.kill)
        wait_until(lambda: count(read_files(str(folder))) == before + 5 * number)
        yield sorted(f"histogram_{process.pid}.db" for process in running)


def count(metrics: list[Metric]) -> float:
    """Return the number of the requests for paths that do not exist."""
    samples = [sample for metric in metrics for sample in metric.samples]
    return sum(
        sample.value
        for sample in samples
        if sample.name.endswith("_count") and sample.labels["outcome"] == "40401"
    )


def names(folder: Path) -> list[str]:
    """Return the names of the files."""
    return sorted(file.name for file in folder.iterdir())


def ended() -> int:
    """Return the id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait(LIMIT)
    return process.pid


@pytest.mark.posix
def test_new_process_goes_on_with_a_file(tmp_path: Path) -> None:
    """Two new processes go on with the files of two that were killed, and with their counts."""
    for total in (10, 20):
        with processes(tmp_path, 2) as files:
            assert names(tmp_path) == files
            assert count(read_files(str(tmp_path))) == total


def test_files_of_others_stay(tmp_path: Path) -> None:
    """A process takes no file of a living process, of another kind, or of an impossible number.

    Its new file has all of its space on the disk, which may be full later.
    """
    kept = [f"gauge_livesum_{ended()}.db", "histogram_1.db", f"histogram_{10**30}.db", "x.db.new"]
    for name in kept:
        (tmp_path / name).write_bytes(bytes(SIZE))
    prepare_file(str(tmp_path))
    own = tmp_path / f"histogram_{os.getpid()}.db"
    assert names(tmp_path) == sorted([*kept, own.name])
    assert (own.stat().st_size, own.stat().st_blocks * 512 >= SIZE) == (SIZE, True)


def test_counts_while_files_are_renamed(tmp_path: Path) -> None:
    """While a new process goes on with a file, no count is missing or added twice."""
    with processes(tmp_path, 2) as (name, _), ThreadPoolExecutor(1) as thread:
        is_over = Event()
        renamed = thread.submit(rename, tmp_path / name, is_over)
        try:
            assert {count(read_files(str(tmp_path))) for _ in range(500)} == {10}
        finally:
            is_over.set()
        assert renamed.result() > 10


def rename(file: Path, is_over: Event) -> int:
    """Rename a file, as many new processes do one after the other; return how often."""
    number = 1 << 22  # Larger than that of any process.
    while not is_over.wait(0.001):
        file = file.rename(file.with_name(f"histogram_{number}.db"))
        number += 1
    return number - (1 << 22)


def test_file_that_cannot_be_found(tmp_path: Path) -> None:
    """A file that is listed but can never be opened is an error, and not an endless wait."""
    (tmp_path / "histogram_1.db").symlink_to("missing")
    with pytest.raises(OSError, match="cannot be found"):
        read_files(str(tmp_path))


@pytest.mark.posix
def test_no_space_for_a_new_file(tmp_path: Path) -> None:
    """A file that cannot be made completely is removed, so that it takes no space."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            prepare_file(str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == []


@pytest.mark.posix
def test_processes_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has ended if no process has its id. On Windows, this is not known."""
    other = ended()
    assert [has_ended(process) for process in (other, os.getpid(), 1)] == [True, False, False]
    monkeypatch.delattr(os, "fork", raising=False)
    assert not has_ended(other)
