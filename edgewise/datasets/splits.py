"""Which rows train, validate, stop and test: stratified, by seed, also for a handful of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgewise.problem import Split

Indices = NDArray[np.int64]


def allocate(size: int, shares: NDArray[np.float64], available: Indices) -> Indices:
    """How many rows of each class a part of `size` rows takes: largest remainder, nobody left out.

    Parameters
    ----------
    size : rows of the part
    shares : ndarray, shape (n_classes,); the share each class should have, summing to 1
    available : ndarray, shape (n_classes,); rows of each class that may still be taken

    Returns
    -------
    ndarray of int64, shape (n_classes,)
        sums to `size`; at least one of every class that has rows left, where `size` permits.

    Examples
    --------
    >>> import numpy as np
    >>> allocate(10, np.array([0.33, 0.4, 0.27]), np.array([59, 71, 48]))
    array([3, 4, 3])
    >>> allocate(4, np.array([0.9, 0.06, 0.04]), np.array([90, 6, 4]))
    array([2, 1, 1])
    """
    if size > available.sum():
        raise ValueError(
            f"a part of {size} rows cannot be drawn: only {available.sum()} labelled rows are left"
        )
    quota = size * shares
    taken = np.minimum(np.floor(quota).astype(np.int64), available)
    while taken.sum() < size:
        # The class furthest below its quota; a class without rows left cannot be it.
        shortfall = np.where(taken < available, quota - taken, -np.inf)
        taken[np.argmax(shortfall)] += 1
    while (missing := np.flatnonzero((taken == 0) & (available > 0))).size and taken.max() > 1:
        taken[np.argmax(taken)] -= 1
        taken[missing[0]] += 1
    return taken


def stratified_parts(
    labels: Indices, sizes: Sequence[int], generator: np.random.Generator
) -> list[Indices]:
    """Draw disjoint parts whose classes are mixed as in all the labelled rows.

    Parameters
    ----------
    labels : ndarray of int64, shape (n_nodes,); rows labelled -1 belong to no part
    sizes : rows of each part
    generator : source of randomness

    Returns
    -------
    list of ndarray of int64
        one sorted index array per size, and a last one with the labelled rows left over.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.array([0, 0, 0, 0, 1, 1, 1, 1, -1])
    >>> parts = stratified_parts(labels, [2, 4], np.random.default_rng(0))
    >>> [labels[part].tolist() for part in parts]
    [[0, 1], [0, 0, 1, 1], [0, 1]]
    """
    classes = np.unique(labels[labels >= 0])
    pools = [generator.permutation(np.flatnonzero(labels == c)) for c in classes]
    counts = np.array([len(pool) for pool in pools], dtype=np.int64)
    start = np.zeros_like(counts)
    parts = []
    for size in sizes:
        stop = start + allocate(size, counts / counts.sum(), counts - start)
        parts.append(_gather(pools, start, stop))
        start = stop
    return [*parts, _gather(pools, start, counts)]


def _gather(pools: list[Indices], start: Indices, stop: Indices) -> Indices:
    slices = [pool[a:b] for pool, a, b in zip(pools, start, stop, strict=True)]
    return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *slices]))


def stratified_split(labels: Indices, size: int, seed: int) -> tuple[Split, Indices]:
    """The paper's split of a table: three parts of `size` rows, the rest is test."""
    generator = np.random.default_rng(seed)
    train, validation, early_stopping, test = stratified_parts(labels, [size] * 3, generator)
    return Split(train, validation, early_stopping), test


def halve(train: Indices, validation: Indices, seed: int) -> Split:
    """The paper's use of public validation rows: a random half for the outer loss, one to stop."""
    order = np.random.default_rng(seed).permutation(validation)
    half = len(order) // 2
    return Split(np.sort(train), np.sort(order[:half]), np.sort(order[half:]))


def random_public_sizes(
    labels: Indices,
    number: int,
    *,
    per_class: int = 20,
    n_validation: int = 500,
    n_test: int = 1000,
) -> tuple[Indices, Indices, Indices]:
    """A random split of the public split's sizes: 20 a class train, 500 validate, 1,000 test.

    `number` names the split; the same number is the same split for every seed and method.
    """
    # A sequence, so that no `seed` of `halve` starts the same stream of random numbers.
    generator = np.random.default_rng([number, 1])
    order = generator.permutation(np.flatnonzero(labels >= 0))
    train = np.concatenate(
        [order[labels[order] == c][:per_class] for c in np.unique(labels[order])]
    )
    rest = order[~np.isin(order, train)]
    validation, test = rest[:n_validation], rest[n_validation : n_validation + n_test]
    return np.sort(train), np.sort(validation), np.sort(test)
