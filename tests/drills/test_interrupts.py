"""A thread that is interrupted at random moments while threads add plants to an SQLite file."""

import subprocess
import sys

import pytest

from plantstore import Plant, open_store
from tests.support.serving import LIMIT, ROOT

pytestmark = pytest.mark.drill

# How often the thread is interrupted.
INTERRUPTS = 1000

# The main thread is interrupted by signals, and six threads are not. It handles an interrupt before
# it gets the next one. It is interrupted in the modules of the store only, since the semaphores
# of Python are not safe for interrupts.
# Prints the ids of the plants that were acknowledged, and every exception.
THREADS = """
import faulthandler, random, signal, sys
from itertools import count
from threading import Thread
from plantstore import Plant, open_store
class Interrupt(BaseException): pass
store, number, ids = open_store(sys.argv[1]), int(sys.argv[2]), count()
store.add_all([])
added, failed, interrupts, armed = [], [], 0, False
def add(before=lambda: None):
    while interrupts < number:
        id = next(ids)
        try:
            before()
            store.add(Plant(id, ""))
            added.append(id)
        except Exception as error:
            failed.append(repr(error))
def is_safe(frame):
    return frame.f_code.co_filename.endswith(("_executors.py", "_lanes.py", "_jobs.py"))
def arm():
    global armed
    if not armed:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, 1e-4 + random.random() / 500)
def interrupt(_, frame):
    global armed, interrupts
    armed = False
    if not is_safe(frame):
        arm()
    elif interrupts < number:
        interrupts += 1
        raise Interrupt
faulthandler.dump_traceback_later(int(sys.argv[3]), exit=True)
threads = [Thread(target=add) for _ in range(6)]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, interrupt)
while interrupts < number:
    try:
        add(arm)
    except Interrupt:
        pass
for thread in threads:
    thread.join()
store.add(Plant(-1, ""))
print(*added, -1)
print(*failed, file=sys.stderr)
"""


def test_interrupted_thread_costs_no_other_add(url: str) -> None:
    """If a thread is interrupted at random moments, no other add fails, hangs or is lost.

    The store works afterwards. A store that acknowledges early would not have the last plants.
    """
    command = [sys.executable, "-W", "ignore", "-c", THREADS, url, str(INTERRUPTS), str(LIMIT - 10)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not any(name in done.stderr for name in ("Error", "PlantExists", "StoreUnavailable"))
    acknowledged = {Plant(int(id), "") for id in done.stdout.split()}
    with open_store(url) as store:
        assert acknowledged <= set(store)
