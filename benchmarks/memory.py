"""MemoryStore from 1,000 to 10,000,000 plants: bytes a plant, and what an add costs.

    python benchmarks/memory.py [PLANTS]

Plants have names of twelve characters and no tags. They are made and added a thousand at
a time, and set against the first thousand of a new store. The mean has in it whatever
the garbage collector and the growing dict took.
"""

import statistics
import sys
import time
from pathlib import Path

from plantstore import MemoryStore, Plant

BATCH = 1000


def add_batch(store: MemoryStore, first: int) -> float:
    """Make and add a batch of plants; return the microseconds that one took."""
    start = time.perf_counter()
    for id in range(first, first + BATCH):
        store.add(Plant(id, f"plant{id:07d}"))
    return (time.perf_counter() - start) / BATCH * 1e6


def memory() -> int:
    """Return the bytes of memory that this process has in use (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    """Print a line for each tenfold: bytes a plant so far, and what the new ones cost."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    first = statistics.median(add_batch(MemoryStore(), 0) for _ in range(200))
    print(f"first {BATCH} adds of a new store: {first:.3f} µs each")
    print("    plants  bytes/plant  median  (ratio)    mean  (ratio)   p99.9    max  µs/add")
    store, before, size = MemoryStore(), memory(), 0
    while size < most:
        upto = max(BATCH, size * 10)
        costs = sorted(add_batch(store, id) for id in range(size, upto, BATCH))
        size = upto
        median, mean = statistics.median(costs), statistics.mean(costs)
        print(
            f"{size:>10,}  {(memory() - before) / size:>11.0f}"
            f"  {median:6.3f}  ({median / first:5.2f})  {mean:6.3f}  ({mean / first:5.2f})"
            f"  {costs[int(len(costs) * 0.999)]:6.2f} {costs[-1]:6.1f}"
        )


if __name__ == "__main__":
    main()
