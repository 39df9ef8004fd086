"""How long reading a header takes: medians of `read_model` and `check_loadable`, and the memory they add.

python benchmarks/gguf_open.py MODEL.gguf [MODEL.gguf ...]
"""

from __future__ import annotations

import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from models.gguf import check_loadable, read_model

RUNS = 15


def median_ms(work: Callable[[Path], object], path: Path) -> float:
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work(path)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def peak_mib(work: Callable[[Path], object], path: Path) -> float:
    tracemalloc.start()
    work(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    print(f"{'file':48} {'tokens':>9} {'read':>9} {'check':>9} {'read':>9} {'check':>9}")
    for name in sys.argv[1:]:
        path = Path(name)
        info = read_model(path)
        times = [f"{median_ms(work, path):6.1f} ms" for work in (read_model, check_loadable)]
        peaks = [f"{peak_mib(work, path):5.1f} MiB" for work in (read_model, check_loadable)]
        print(f"{path.name[:48]:48} {info.n_vocab:>9,} {' '.join(times + peaks)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
