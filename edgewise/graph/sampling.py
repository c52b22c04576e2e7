"""Exact sampling of many independent Bernoulli variables in time proportional to those drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.graph import kernels

# A set of points thrown by a Poisson process with intensity -log(1 - theta_e) on e hits each e
# with probability theta_e, independently. We propose with the intensity RATE * theta_e, which
# needs no logarithm to sum up, and thin. On theta <= 1/2 the ratio -log(1 - theta) / theta grows
# up to 2 log 2, so RATE is the smallest constant that dominates it.
RATE = 2.0 * np.log(2.0)


class BernoulliSampler:
    """Draws the set of successes of independent Bernoulli variables, exactly.

    The variables are cut into blocks; only the sum of each block is kept. A draw costs a binary
    search and the scan of one block for each success, however many variables there are. Those
    above 1/2, for which the Poisson process would be wasteful, are drawn one by one.

    Parameters
    ----------
    values : ndarray of float32 or float64
        The probabilities. They may be changed in place; then `refresh` must be called.
    bounds : ndarray of int64
        Block b covers ``values[bounds[b]:bounds[b + 1]]``.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.array([0.0, 1.0, 1.0, 0.0])
    >>> BernoulliSampler(values, np.array([0, 2, 4])).draw(np.random.default_rng(0))
    array([1, 2])
    """

    def __init__(self, values: NDArray[Any], bounds: NDArray[np.int64]) -> None:
        n_blocks = len(bounds) - 1
        self._values = values
        self._bounds = bounds
        self._mass = np.zeros(n_blocks)
        self._likely_count = np.zeros(n_blocks, np.int32)
        self.refresh()

    def refresh(self, first: int = 0, last: int | None = None) -> None:
        """Take notice that the values of blocks first..last-1 have changed."""
        self.sum_blocks(first, len(self._mass) if last is None else last)
        self.index()

    def sum_blocks(self, first: int, last: int) -> None:
        """Sum up blocks first..last-1, best while they are in the cache; `index` must follow."""
        kernels.block_masses(
            self._values, self._bounds, first, last, self._mass, self._likely_count
        )

    def index(self) -> None:
        """Make the block sums searchable."""
        self._cumulative = np.cumsum(self._mass)
        self._likely = kernels.collect_likely(self._values, self._bounds, self._likely_count)

    def expected(self) -> float:
        """Expected number of successes."""
        unlikely = float(self._cumulative[-1]) if len(self._cumulative) else 0.0
        return unlikely + float(self._values[self._likely].sum(dtype=np.float64))

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Positions of the successes of one draw, sorted."""
        total = self._cumulative[-1] if len(self._cumulative) else 0.0
        n_proposed = rng.poisson(RATE * total)
        # The points of a Poisson process in order, so that memory is read in order: sums of
        # exponential gaps, scaled to the line.
        points = rng.standard_exponential(n_proposed + 1).cumsum()
        targets = points[:-1] * (total / points[-1])
        acceptance = rng.random(n_proposed)
        unlikely = kernels.locate(
            self._values, self._bounds, self._cumulative, targets, acceptance, RATE
        )
        likely = self._likely[rng.random(len(self._likely)) < self._values[self._likely]]
        # The process may hit a variable twice: what counts is the set.
        return kernels.merge(unlikely, likely)
