"""Threads that are interrupted at random moments while they add plants to an SQLite file."""

import subprocess
import sys
from pathlib import Path

import pytest

from plantstore import Plant, open_store

from ..serving import LIMIT, ROOT
from ..test_sqlite import MODES

# How many plants are added.
PLANTS = 2000

# Three threads are interrupted by asynchronous exceptions, the main thread by signals, and three
# threads are not interrupted. Each thread handles an interrupt before it gets the next one.
# Prints the ids of the plants that were acknowledged, and every exception.
THREADS = """
import ctypes, random, signal, sys
from itertools import count
from threading import Event, Thread, get_ident
from plantstore import Plant, open_store
class Interrupt(BaseException): pass
store, number, ids = open_store(sys.argv[1]), int(sys.argv[2]), count()
store.ping()
added, failed, interrupts, armed, ended = [], [], [], {}, Event()
def add():
    while (id := next(ids)) < number:
        try:
            store.add(Plant(id, ""))
            added.append(id)
        except Exception as error:
            failed.append(repr(error))
def add_and_handle_interrupts(arm, disarm):
    while True:
        try:
            arm()
            add()
            disarm()
            return
        except Interrupt:
            interrupts.append(1)
def interrupt_threads():
    while not ended.wait(random.random() / 200):
        for thread in [*armed]:
            del armed[thread]
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread), ctypes.py_object(Interrupt))
def interrupt_main(*_):
    raise Interrupt
def add_in_thread():
    add_and_handle_interrupts(
        lambda: armed.setdefault(get_ident()), lambda: armed.pop(get_ident(), None))
interrupting = Thread(target=interrupt_threads)
threads = [Thread(target=it) for it in [add] * 3 + [add_in_thread] * 3]
for thread in [interrupting, *threads]:
    thread.start()
signal.signal(signal.SIGALRM, interrupt_main)
add_and_handle_interrupts(
    lambda: signal.setitimer(signal.ITIMER_REAL, random.random() / 100 + 1e-4),
    lambda: signal.setitimer(signal.ITIMER_REAL, 0))
for thread in threads:
    thread.join()
ended.set()
interrupting.join()
store.add(Plant(-1, ""))
assert len(interrupts) > 50, interrupts
print(*added, -1)
print(len(interrupts), *failed, file=sys.stderr)
"""


@pytest.mark.parametrize("mode", MODES)
def test_interrupted_threads_cost_no_other_add(tmp_path: Path, mode: str) -> None:
    """If threads are interrupted at random moments, no other add fails, hangs or is lost.

    The store works afterwards. A store that acknowledges early would not have the last plants.
    """
    url = f"sqlite:///{tmp_path}/plants.db?journal_mode={mode}"
    command = [sys.executable, "-W", "ignore", "-c", THREADS, url, str(PLANTS)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    acknowledged = {Plant(int(id), "") for id in done.stdout.split()}
    assert len(acknowledged) > PLANTS / 2
    with open_store(url) as store:
        assert acknowledged <= set(store)
    assert "Exists" not in done.stderr
    assert "Unavailable" not in done.stderr
