"""A thread that is interrupted at random moments while threads add plants to an SQLite file."""

import subprocess
import sys
from pathlib import Path

import pytest

from plantstore import Plant, open_store

from ..serving import LIMIT, ROOT
from ..test_sqlite import MODES

# How often the thread is interrupted.
INTERRUPTS = 1000

# The main thread is interrupted by signals, and six threads are not. It handles an interrupt before
# it gets the next one. There is no interrupt in the connection pool and in the locks of Python:
# they are not safe for it.
# Prints the ids of the plants that were acknowledged, and every exception.
THREADS = """
import random, signal, sys
from itertools import count
from threading import Thread
from plantstore import Plant, open_store
class Interrupt(BaseException): pass
store, number, ids = open_store(sys.argv[1]), int(sys.argv[2]), count()
store.ping()
added, failed, interrupts = [], [], 0
def add():
    while interrupts < number:
        id = next(ids)
        try:
            store.add(Plant(id, ""))
            added.append(id)
        except Exception as error:
            failed.append(repr(error))
def is_safe(frame):
    while frame is not None:
        if any(it in frame.f_code.co_filename for it in ("pool", "queue", "threading", "logging")):
            return False
        frame = frame.f_back
    return True
def arm():
    signal.setitimer(signal.ITIMER_REAL, 1e-4 + random.random() / 500)
def interrupt(number, frame):
    if is_safe(frame):
        raise Interrupt
    arm()
threads = [Thread(target=add) for _ in range(6)]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, interrupt)
while interrupts < number:
    try:
        arm()
        add()
    except Interrupt:
        interrupts += 1
for thread in threads:
    thread.join()
store.add(Plant(-1, ""))
print(*added, -1)
print(*failed, file=sys.stderr)
"""


@pytest.mark.parametrize("mode", MODES)
def test_interrupted_thread_costs_no_other_add(tmp_path: Path, mode: str) -> None:
    """If a thread is interrupted at random moments, no other add fails, hangs or is lost.

    The store works afterwards. A store that acknowledges early would not have the last plants.
    """
    url = f"sqlite:///{tmp_path}/plants.db?journal_mode={mode}"
    command = [sys.executable, "-W", "ignore", "-c", THREADS, url, str(INTERRUPTS)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert "PlantExists" not in done.stderr
    assert "StoreUnavailable" not in done.stderr
    acknowledged = {Plant(int(id), "") for id in done.stdout.split()}
    with open_store(url) as store:
        assert acknowledged <= set(store)
