"""Where the graphs of a fit come from: whole ones, or the neighbourhoods of batches of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from edgewise.graph.distribution import EdgeDistribution
from edgewise.graph.sampled import Batch, Graph
from edgewise.problem import Split


def batches(rows: NDArray[np.int64], size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Parts of the rows, at most so many in one; divided anew when all were seen.

    Each part is as likely to be the next one as any other. So what a loss makes of a `Batch` has
    the loss of all rows as its mean.

    Examples
    --------
    >>> parts = batches(np.arange(5), 2, np.random.default_rng(0))
    >>> sorted(len(next(parts).rows) for _ in range(3))
    [1, 2, 2]
    """
    n_parts = -(-len(rows) // size)
    while True:
        parts = np.array_split(rng.permutation(rows), n_parts)
        # The first ones may be a row longer: without an order of their own they would come first.
        for part in rng.permutation(n_parts):
            yield Batch(np.sort(parts[part]), n_parts)


class Draws:
    """Draws the graphs that losses and their derivatives are taken under.

    Parameters
    ----------
    edges : EdgeDistribution
    rng : numpy.random.Generator
    split : Split
    batch_size : int or None
        Labelled rows a batch; None for all, under whole graphs.
    hops : int or None
        See `edgewise.nn.network.Network`.

    Attributes
    ----------
    n_parts : int
        Inner steps until all training rows were seen.
    """

    def __init__(
        self,
        edges: EdgeDistribution,
        rng: np.random.Generator,
        split: Split,
        batch_size: int | None = None,
        hops: int | None = None,
    ) -> None:
        self._edges = edges
        self._rng = rng
        self._hops = hops
        self._in_batches = batch_size is not None
        size = batch_size or max(len(split.train), len(split.validation), 1)
        self.n_parts = -(-len(split.train) // size)
        self._train = batches(split.train, size, rng)
        self._validation = batches(split.validation, size, rng)

    def whole(self) -> Graph:
        """A ~ Ber(theta)."""
        return self._edges.draw(self._rng)

    def inner(self) -> Graph:
        """For an inner step."""
        return self._around(self._train, for_edges=False)

    def inner_for_edges(self) -> Graph:
        """For the derivative of an inner step by the edges."""
        return self._around(self._train, for_edges=True)

    def outer(self) -> Graph:
        """For the derivative of the outer loss."""
        return self._around(self._validation, for_edges=True)

    def _around(self, parts: Iterator[Batch], *, for_edges: bool) -> Graph:
        if not self._in_batches:
            return self.whole()
        batch = next(parts)
        if self._hops is None:
            graph = self.whole()
        else:
            graph = self._edges.draw_around(self._rng, batch.rows, self._hops, for_edges=for_edges)
        graph.batch = batch
        return graph
