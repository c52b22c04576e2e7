"""Exact sampling of many independent Bernoulli variables in time proportional to those drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.graph import kernels

# A set of points thrown by a Poisson process with intensity -log(1 - theta_e) on e hits each e
# with probability theta_e, independently. We propose with the intensity RATE * theta_e, which
# needs no logarithm to sum up, and thin. On theta <= 1/2 the ratio -log(1 - theta) / theta grows
# up to 2 log 2, so RATE is the smallest constant that dominates it.
RATE = 2.0 * np.log(2.0)
# Blocks to an entry of the table that says where to look for a point.
GUIDED_BLOCKS = 4


class BernoulliSampler:
    """Draws the set of successes of independent Bernoulli variables, exactly.

    The variables are cut into blocks; only the sum of each block is kept. A draw costs a look
    into a table and the scan of one block for each success, however many variables there are. Those
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
        self._before = 0.0  # where the line of cumulated masses begins
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
        steps = self._mass.copy()
        steps[:1] += self._before
        self._cumulative = steps.cumsum(out=steps)
        n_entries = len(self._mass) // GUIDED_BLOCKS + 1
        self._guide = kernels.guide(self._cumulative, self._before, n_entries)
        self._likely = kernels.collect_likely(self._values, self._bounds, self._likely_count)

    def expected(self) -> float:
        """Expected number of successes."""
        unlikely = float(self._cumulative[-1]) if len(self._cumulative) else 0.0
        return unlikely + float(self._values[self._likely].sum(dtype=np.float64))

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Positions of the successes of one draw, sorted."""
        total = self._cumulative[-1] if len(self._cumulative) else 0.0
        targets, acceptance = propose(total, rng)
        return self._successes(targets, acceptance, rng.random(len(self._likely)))

    def _successes(
        self,
        targets: NDArray[np.float64],
        acceptance: NDArray[np.float64],
        luck: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Positions of those up to 1/2 that the points hit, and of those above 1/2 in luck."""
        line = self._cumulative, self._before
        blocks = kernels.locate_blocks(*line, self._guide, targets)
        unlikely = kernels.locate(
            self._values, self._bounds, *line, blocks, targets, acceptance, RATE
        )
        likely = self._likely[luck < self._values[self._likely]]
        # The process may hit a variable twice: what counts is the set.
        return kernels.merge(unlikely, likely)


class Extent(NamedTuple):
    """How much there is of variables: the mass of those up to 1/2, number and sum of the others."""

    mass: float = 0.0
    n_likely: int = 0
    likely_sum: float = 0.0


class BernoulliSegment(BernoulliSampler):
    """A stretch of a longer row of variables, the other stretches being somewhere else.

    With equal generators, the stretches draw what one sampler would draw of the whole row, to the
    last bit, if their blocks are its blocks. First each of them must learn what comes `before` it
    and what all amount to: `begin`, one stretch after the other, then `complete`.

    Examples
    --------
    >>> values, bounds = np.array([0.4, 1.0, 0.3, 0.2]), np.array([0, 2, 4])
    >>> whole = BernoulliSampler(values, bounds)
    >>> left = BernoulliSegment(values[:2], bounds[:2])
    >>> right = BernoulliSegment(values[2:], bounds[:2])
    >>> total = right.begin(left.begin(Extent()))
    >>> left.complete(total), right.complete(total)
    (None, None)
    >>> parts = [part.draw(np.random.default_rng(1)) for part in (left, right)]
    >>> whole.draw(np.random.default_rng(1)), parts
    (array([1, 3]), [array([1]), array([1])])
    """

    def begin(self, before: Extent) -> Extent:
        """Index this stretch behind what comes before it; what there is up to its end."""
        self._before = before.mass
        self._first_likely = before.n_likely
        self.index()
        own = float(self._values[self._likely].sum(dtype=np.float64))
        n_likely = before.n_likely + len(self._likely)
        return Extent(float(self._cumulative[-1]), n_likely, before.likely_sum + own)

    def complete(self, total: Extent) -> None:
        """Take notice of what all stretches amount to."""
        self._total = total

    def expected(self) -> float:
        """Expected number of successes in all stretches."""
        return self._total.mass + self._total.likely_sum

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Positions of the successes in this stretch of one draw, sorted."""
        targets, acceptance = propose(self._total.mass, rng)
        luck = rng.random(self._total.n_likely)
        end = self._cumulative[-1]
        first, last = np.searchsorted(targets, [self._before, end])
        if end == self._total.mass:  # rounding may put a point on the very end
            last = len(targets)
        own = slice(self._first_likely, self._first_likely + len(self._likely))
        return self._successes(targets[first:last], acceptance[first:last], luck[own])


def propose(
    total: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points of a Poisson process of intensity RATE on a line of length `total`, sorted.

    And for each of them a uniform number, to thin the process by.
    """
    n_proposed = rng.poisson(RATE * total)
    # The points of a Poisson process in order, so that memory is read in order: sums of
    # exponential gaps, scaled to the line.
    points = rng.standard_exponential(n_proposed + 1).cumsum()
    return points[:-1] * (total / points[-1]), rng.random(n_proposed)
