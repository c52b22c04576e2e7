"""Fails when Edgewise has become slow: by ratios within one run, which no slow machine can raise.

The parts of a ratio are timed in turns, and the median of the ratios counts: a load on the machine
that comes or goes meets both. The limits leave room above what benchmarks/README.md reports.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from stages import dense_cycle, floor, prepare

MOST_CYCLE_TO_FLOOR = 4.0
LEAST_DENSE_TO_CYCLE = 15.0


def least_seconds(work: Callable[[], Any], repetitions: int) -> float:
    """The first repetitions after another piece of work find the caches full of that."""
    taken = []
    for _ in range(repetitions):
        started = time.thread_time()
        work()
        taken.append(time.thread_time() - started)
    return min(taken)


def median_ratio(one: Callable[[], Any], other: Callable[[], Any], rounds: int) -> float:
    """Of the least times of a few repetitions, in turns."""
    return statistics.median(least_seconds(one, 3) / least_seconds(other, 3) for _ in range(rounds))


def main() -> None:
    torch.set_num_threads(1)
    setting = prepare("cora")
    to_floor = median_ratio(setting.cycle, floor(setting)["cycle"], 9)
    dense = median_ratio(dense_cycle(setting), setting.cycle, 3)
    print(f"cycle / floor {to_floor:.2f} (at most {MOST_CYCLE_TO_FLOOR})")
    print(f"dense / cycle {dense:.1f} (at least {LEAST_DENSE_TO_CYCLE})")
    if to_floor > MOST_CYCLE_TO_FLOOR or dense < LEAST_DENSE_TO_CYCLE:
        sys.exit("Edgewise has become slower, compared with the products it consists of.")


if __name__ == "__main__":
    main()
