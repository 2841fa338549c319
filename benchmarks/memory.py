"""MemoryStore from 1,000 to 10,000,000 plants: bytes a plant, and what an add costs.

    python benchmarks/memory.py [PLANTS]

Plants have names of twelve characters, and every second one a tag of its own. Adds are
timed a thousand at a time, with all that the garbage collector and the growing dicts
take among them, and set against the first thousand of a new store.
"""

import statistics
import sys
import time
from pathlib import Path

from plantstore import MemoryStore, Plant

BATCH = 1000


def add_batch(store: MemoryStore, first: int) -> float:
    """Add a batch of plants; return the microseconds that one add took."""
    ids = range(first, first + BATCH)
    plants = [Plant(id, f"plant{id:07d}", f"tag{id:07d}" if id % 2 else None) for id in ids]
    start = time.perf_counter()
    for plant in plants:
        store.add(plant)
    return (time.perf_counter() - start) / BATCH * 1e6


def memory() -> int:
    """Return the bytes of memory that this process has in use (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main() -> None:
    """Print a line for each tenfold of plants: what those added since the last one cost."""
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
