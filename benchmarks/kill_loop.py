"""Kill a fit with SIGKILL at random moments, resume it each time, and compare with a whole one.

    python benchmarks/kill_loop.py [--kills 50] [--seed 0]

Random moments seldom hit the millisecond in which a checkpoint is written. So further kills are
aimed at it: before each of the system calls that write the first states, one after the other.

Prints how many kills hit, and whether the final result is the same to the last bit; ends with exit
code 1 if it is not. Children are forked, so that most of their life is fitting and not importing.
Linux and macOS.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from edgewise import LDSClassifier

MOST_ITERATIONS = 400
# A state is written by four calls: the file synced, the earlier one renamed, this one renamed, the
# folder synced. So the first state, and the one or two after it, are hit between all of them.
AIMED_KILLS = 12


def problem() -> tuple[np.ndarray, np.ndarray]:
    """Three overlapping groups, half of them labelled."""
    rng = np.random.default_rng(0)
    groups = np.arange(90) % 3
    features = rng.normal(size=(90, 6))
    features[np.arange(90), groups] += 2.0
    return features, np.where(np.arange(90) < 45, groups, -1)


def fitted(iterations: int, checkpoint: Path | None) -> LDSClassifier:
    classifier = LDSClassifier(
        5,
        patience=MOST_ITERATIONS,
        max_outer_iterations=iterations,
        max_inner_steps=40,
        n_samples=4,
        random_state=0,
    )
    return classifier.fit(*problem(), checkpoint=checkpoint)


def start(iterations: int, checkpoint: Path, result: Path, aim: int | None = None) -> int:
    """Fit in a child process, which may die before its `aim`-th call of what writes; its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if aim is not None:
            calls = itertools.count()
            os.fsync, os.replace = (dying(real, calls, aim) for real in (os.fsync, os.replace))
        model = fitted(iterations, checkpoint)
        # Whole, or not there: this process may be killed while it writes.
        with open(result.with_suffix(".part"), "wb") as file:
            np.savez(file, model.label_distributions_, *model.weights_)
        os.replace(result.with_suffix(".part"), result)
        code = 0
    finally:
        os._exit(code)


def dying(real: Callable[..., None], calls: Iterator[int], aim: int) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        if next(calls) == aim:
            os.kill(os.getpid(), signal.SIGKILL)
        real(*arguments)

    return call


def expected(model: LDSClassifier) -> list[np.ndarray]:
    return [model.label_distributions_, *model.weights_]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    fitted(1, None)  # compiles the kernels, for the children as well
    started = time.perf_counter()
    whole = expected(fitted(options.iterations, None))
    seconds = time.perf_counter() - started
    print(f"uninterrupted: {options.iterations} outer iterations in {seconds:.1f} s")
    # So that the fit is about half done when the last kill has come.
    longest = seconds / options.kills
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, result = Path(folder, "state"), Path(folder, "result.npz")
        hits = aimed = 0
        for aim in range(AIMED_KILLS):
            _, status = os.waitpid(start(options.iterations, checkpoint, result, aim), 0)
            aimed += os.WIFSIGNALED(status)
        for _ in range(options.kills):
            child = start(options.iterations, checkpoint, result)
            time.sleep(rng.uniform(0.0, longest))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            hits += os.WIFSIGNALED(status)
        _, status = os.waitpid(start(options.iterations, checkpoint, result), 0)
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit("the last run failed")
        with np.load(result) as stored:
            found = [stored[name] for name in stored.files]
        left = sorted(entry.name for entry in Path(folder).iterdir())
    same = all(a.tobytes() == b.tobytes() for a, b in zip(whole, found, strict=True))
    print(f"kills at random moments: {hits} of {options.kills} hit a running process")
    print(f"kills between the system calls that write: {aimed} of {AIMED_KILLS}")
    print(f"files left: {', '.join(left)}")
    print(f"the same to the last bit: {'yes' if same else 'NO'}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
