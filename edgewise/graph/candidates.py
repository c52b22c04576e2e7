"""A distribution on few pairs: fixed candidates, each with a probability, and no others."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit
from sklearn.preprocessing import normalize

from edgewise.graph import kernels
from edgewise.graph.distribution import (
    BLOCK,
    EdgeDistribution,
    EdgeGradient,
    check_probabilities,
    real_type,
)
from edgewise.graph.pairs import Incidence, Pairs
from edgewise.graph.sampled import Graph
from edgewise.graph.sampling import BernoulliSampler
from edgewise.snapshot import Snapshot

# Feature values of one side of the pairs that are held at a time: 32 MB in float64.
_CHUNK_VALUES = 2**22


class CandidateEdges(EdgeDistribution):
    """A free probability for each candidate pair; all other pairs are no edges, and stay none.

    Memory is linear in the number of candidates.

    Parameters
    ----------
    n_nodes : int
    pairs : Pairs
        The candidates.
    probabilities : array-like, shape (n_pairs,)
    dtype : torch.dtype, default=torch.float32
    device : str, default="cpu"

    Examples
    --------
    >>> edges = CandidateEdges(3, Pairs.fold([0, 1], [1, 2], n_nodes=3), [0.25, 1.0])
    >>> edges.expected_edges()
    1.25
    >>> edges.probability([1, 0], [0, 2])
    array([0.25, 0.  ], dtype=float32)
    """

    def __init__(
        self,
        n_nodes: int,
        pairs: Pairs,
        probabilities: ArrayLike,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        self.n_nodes = n_nodes
        self.pairs = pairs
        self.dtype = dtype
        self.device = torch.device(device)
        self._theta: NDArray[Any] = np.array(probabilities, real_type(dtype), ndmin=1)
        if self._theta.shape != (pairs.n_pairs,):
            raise ValueError(
                f"there are {pairs.n_pairs} candidate pairs but probabilities of shape "
                f"{self._theta.shape}: give one for each pair."
            )
        if not np.all(np.greater_equal(self._theta, 0) & np.less_equal(self._theta, 1)):
            raise ValueError("probabilities must lie between 0 and 1: clip them.")
        self._lay_out()

    def _lay_out(self) -> None:
        bounds = np.append(np.arange(0, len(self._theta), BLOCK), len(self._theta))
        self._sampler = BernoulliSampler(self._theta, bounds.astype(np.int64))
        self.__dict__.pop("_incidence", None)  # that of other candidates

    def __getstate__(self) -> dict[str, Any]:
        names = ("n_nodes", "pairs", "dtype", "device", "_theta")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lay_out()

    def sample(self, rng: np.random.Generator | int) -> Pairs:
        drawn = self._sampler.draw(np.random.default_rng(rng))
        return Pairs(self.pairs.rows[drawn], self.pairs.cols[drawn])

    def draw_around(
        self,
        rng: np.random.Generator,
        rows: NDArray[np.int64],
        hops: int,
        *,
        for_edges: bool,
    ) -> Graph:
        """Draws only pairs that end in what is reached, each one once.

        The derivative by the pair {i, j} multiplies a cotangent at i, to which drawn edges lead
        from `rows`, by what the network computes at j, be the pair drawn or not. So `for_edges`
        one of the steps on each way may go along any candidate.
        """
        start, slots, others = self._incidence.start, self._incidence.slots, self._incidence.others
        decided, drawn = np.zeros((2, self.pairs.n_pairs), np.bool_)
        any_pair = np.ones(self.pairs.n_pairs, np.bool_)
        near, far = np.zeros((2, self.n_nodes), np.bool_)  # far: after a step along a candidate
        at, beyond = rows, rows[:0]
        near[rows] = True
        for hop in range(hops + 1):
            asked = kernels.undecided(np.concatenate([at, beyond]), start, slots, decided)
            drawn[asked] = rng.random(len(asked)) < self._theta[asked]
            if hop == hops:  # these were drawn for the degrees only
                break
            if for_edges:
                steps = ((beyond, drawn), (at, any_pair))
                beyond = np.concatenate(
                    [
                        kernels.newly_reached(nodes, start, slots, others, pairs, far)
                        for nodes, pairs in steps
                    ]
                )
            at = kernels.newly_reached(at, start, slots, others, drawn, near)
        return self._part(np.flatnonzero(near | far), np.flatnonzero(drawn))

    def _part(self, nodes: NDArray[np.int64], drawn: NDArray[np.int64]) -> Graph:
        """The graph of some nodes of a larger one, with the degrees of that."""
        place = np.full(self.n_nodes, -1)
        place[nodes] = np.arange(len(nodes))
        first, second = place[self.pairs.rows[drawn]], place[self.pairs.cols[drawn]]
        inside = (first >= 0) & (second >= 0)
        leaving = np.maximum(first, second)[~inside]
        graph = Graph.from_pairs(
            Pairs(first[inside], second[inside]),
            len(nodes),
            further_degree=np.bincount(leaving, minlength=len(nodes)),
            dtype=self.dtype,
            device=self.device,
        )
        graph.nodes, graph.n_whole = nodes, self.n_nodes
        return graph

    @cached_property
    def _incidence(self) -> Incidence:
        return Incidence(self.pairs, self.n_nodes)

    def expected_edges(self) -> float:
        return self._sampler.expected()

    def probability(self, rows: ArrayLike, cols: ArrayLike) -> NDArray[Any]:
        first, second = np.asarray(rows, np.int64), np.asarray(cols, np.int64)
        wanted = np.minimum(first, second) * self.n_nodes + np.maximum(first, second)
        known = self.pairs.rows * self.n_nodes + self.pairs.cols
        values = np.zeros(wanted.shape, self._theta.dtype)
        if len(known):
            place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            found = known[place] == wanted
            values[found] = self._theta[place[found]]
        return values

    def descend(self, gradient: EdgeGradient, rate: float) -> None:
        np.clip(np.subtract(self._theta, rate * self._slopes(gradient)), 0.0, 1.0, out=self._theta)
        self._sampler.refresh()

    def _slopes(self, gradient: EdgeGradient) -> NDArray[Any]:
        """The derivatives at the candidates."""
        return gradient.at_pairs(self.pairs.rows, self.pairs.cols)

    def above(self, threshold: float) -> tuple[Pairs, NDArray[Any]]:
        at = np.flatnonzero(np.greater(self._theta, threshold))
        return Pairs(self.pairs.rows[at], self.pairs.cols[at]), self._theta[at]

    def copy(self) -> CandidateEdges:
        twin = object.__new__(type(self))
        twin.__setstate__({**self.__getstate__(), "_theta": self._theta.copy()})
        return twin

    def snapshot(self) -> Snapshot:
        rows, cols = self.pairs  # never changed in place
        return Snapshot({}, {"rows": rows, "cols": cols, "theta": self._theta.copy()})

    def restore(self, snapshot: Snapshot) -> None:
        pairs = Pairs(snapshot.arrays["rows"], snapshot.arrays["cols"])
        pairs.check(self.n_nodes)
        check_probabilities(snapshot.arrays["theta"], pairs.n_pairs, self.dtype)
        self.pairs = pairs
        self._theta = snapshot.arrays["theta"].copy()
        self._lay_out()


def cosine_similarities(features: Any, pairs: Pairs) -> NDArray[np.float64]:
    """Cosine of the angle between the rows of each pair; 0 where a row is zero.

    Parameters
    ----------
    features : ndarray or scipy CSR array, shape (n_nodes, n_features)
    pairs : Pairs

    Examples
    --------
    >>> import numpy as np
    >>> features = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    >>> cosine_similarities(features, Pairs.fold([0, 0], [1, 2], n_nodes=3))
    array([1., 0.])
    """
    unit = normalize(features.astype(np.float64))
    similarity = np.empty(pairs.n_pairs)
    step = max(1, _CHUNK_VALUES // max(1, features.shape[1]))
    for start in range(0, pairs.n_pairs, step):
        part = slice(start, start + step)
        terms = unit[pairs.rows[part]] * unit[pairs.cols[part]]
        similarity[part] = np.asarray(terms.sum(axis=1)).ravel()
    return similarity


def logistic_offset(
    similarity: NDArray[np.float64], *, scale: float, expected_edges: float
) -> float:
    """The offset at which ``logistic(scale (similarity - offset))`` sums to `expected_edges`.

    Parameters
    ----------
    similarity : ndarray, shape (n_pairs,)
    scale : float
        Positive. The larger, the nearer to the graph of the most similar pairs.
    expected_edges : float
        More than 0 and less than n_pairs.

    Examples
    --------
    >>> import numpy as np
    >>> round(logistic_offset(np.array([0.2, 0.4]), scale=10.0, expected_edges=1.0), 6)
    0.3
    """
    if not 0 < expected_edges < len(similarity):
        raise ValueError(
            f"{expected_edges:g} expected edges are impossible with {len(similarity)} candidate "
            "pairs: ask for a smaller degree, or for more candidates."
        )

    def surplus(offset: float) -> float:
        return float(expit(scale * (similarity - offset)).sum()) - expected_edges

    # 40 units from all similarities each probability is 0 or 1 but for e^-40.
    reach = 40.0 / scale
    return float(brentq(surplus, similarity.min() - reach, similarity.max() + reach, xtol=1e-12))


def logistic_probabilities(
    similarity: NDArray[np.float64], *, scale: float, expected_edges: float
) -> NDArray[np.float64]:
    """``logistic(scale (similarity - offset))`` with the offset of `logistic_offset`.

    Examples
    --------
    >>> import numpy as np
    >>> logistic_probabilities(np.array([0.2, 0.4]), scale=10.0, expected_edges=1.0).round(3)
    array([0.269, 0.731])
    """
    offset = logistic_offset(similarity, scale=scale, expected_edges=expected_edges)
    probabilities: NDArray[np.float64] = expit(scale * (similarity - offset))
    return probabilities
