"""Edge probabilities as a function of the features, with few parameters that generalise."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from edgewise.graph.candidates import CandidateEdges, logistic_offset
from edgewise.graph.construct import Metric, knn_pairs, nearest_neighbours
from edgewise.graph.distribution import EdgeGradient, real_type
from edgewise.graph.pairs import Pairs
from edgewise.snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Self

N_CANDIDATES = 30
# Feature values of one side of the pairs that are held at a time: 32 MB in float64.
_CHUNK_VALUES = 2**22


class PairProducts:
    """Weighted inner products ``sum_f w_f x_if x_jf`` of many pairs of rows, and their adjoint.

    Parameters
    ----------
    features : ndarray or scipy CSR array, shape (n_nodes, n_features)
    pairs : Pairs
    """

    def __init__(self, features: Any, pairs: Pairs) -> None:
        self._features = features
        self._pairs = pairs
        # Of two sparse rows few columns overlap: those products are kept, one row a pair.
        self._overlap = None if isinstance(features, np.ndarray) else _overlaps(features, pairs)
        self.squares = features * features

    def inner(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The products of all pairs."""
        if self._overlap is not None:
            return np.asarray(self._overlap @ weights)
        products = np.empty(self._pairs.n_pairs)
        step = max(1, _CHUNK_VALUES // self._features.shape[1])
        for start in range(0, len(products), step):
            rows, cols = (ends[start : start + step] for ends in self._pairs)
            weighted = self._features[rows] * weights
            products[start : start + step] = (weighted * self._features[cols]).sum(axis=1)
        return products

    def adjoint(self, slopes: NDArray[np.float64]) -> NDArray[np.float64]:
        """``sum_e slopes_e x_if x_jf`` for each feature f."""
        if self._overlap is not None:
            return np.asarray(self._overlap.T @ slopes)
        n_nodes = self._features.shape[0]
        matrix = sparse.coo_array((slopes, tuple(self._pairs)), shape=(n_nodes, n_nodes)).tocsr()
        summed: NDArray[np.float64] = (self._features * (matrix @ self._features)).sum(axis=0)
        return summed


def _overlaps(features: Any, pairs: Pairs) -> Any:
    """The products of the entries of two sparse rows, a row for each pair."""
    step = max(1, _CHUNK_VALUES * features.shape[0] // max(1, features.nnz))
    chunks = [
        features[pairs.rows[start : start + step]] * features[pairs.cols[start : start + step]]
        for start in range(0, max(1, pairs.n_pairs), step)
    ]
    return sparse.csr_array(sparse.vstack(chunks, format="csr"))


def _similarity(
    metric: Metric,
    inner: NDArray[np.float64],
    norms: NDArray[np.float64],
    pairs: Pairs,
) -> NDArray[np.float64]:
    """Cosine, or minus the squared distance, from inner products and squared norms."""
    first, second = norms[pairs.rows], norms[pairs.cols]
    if metric == "euclidean":
        return np.asarray(2.0 * inner - first - second)
    length = np.sqrt(first * second)
    return np.divide(inner, length, out=np.zeros_like(inner), where=length > 0)


class SimilarityEdges(CandidateEdges):
    """The probability of a candidate pair is a logistic function of a learned similarity.

    ``theta_ij = logistic(scale (similarity_w(x_i, x_j) - offset))`` with a weight exp(u_f) for
    each feature f: the weighted cosine, or minus the weighted squared distance in units of the
    candidates' median at the start. The n_features + 2 parameters descend along the hypergradient
    by the chain rule and Adam, so the distribution also knows the edges of rows it never saw.

    Parameters
    ----------
    features : ndarray or scipy CSR array, shape (n_nodes, n_features)
    n_candidates : int, default=30
        Candidates are the pairs of which one is among the nearest so many of the other.
    expected_degree : float, default=10
        The offset is set so that a node has so many edges at the start.
    metric : {"cosine", "euclidean"}, default="cosine"
    scale : float, default=20.0
        At the start. The larger, the nearer to a graph without randomness.
    learning_rates : tuple of float, default=(0.01, 0.1, 0.001)
        Of u, scale and offset; `descend` multiplies them by its own.
    pull : float, default=0.0
        Derivative of a penalty ``pull / 2 |u|^2`` that draws the metric to the initial one.

    Examples
    --------
    >>> import numpy as np
    >>> features = np.random.default_rng(0).normal(size=(50, 4))
    >>> edges = SimilarityEdges(features, n_candidates=10, expected_degree=5, metric="euclidean")
    >>> round(edges.expected_edges(), 3)
    125.0
    """

    def __init__(
        self,
        features: Any,
        *,
        n_candidates: int = N_CANDIDATES,
        expected_degree: float = 10.0,
        metric: Metric = "cosine",
        scale: float = 20.0,
        learning_rates: tuple[float, float, float] = (0.01, 0.1, 0.001),
        pull: float = 0.0,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        n_nodes = features.shape[0]
        self.n_candidates = min(n_candidates, n_nodes - 1)
        self.metric = metric
        self.learning_rates = learning_rates
        self.pull = pull
        pairs = knn_pairs(features, self.n_candidates, metric=metric)
        self._features = features.astype(np.float64)
        self._products = PairProducts(self._features, pairs)
        weights = np.ones(features.shape[1])
        norms = self._products.squares @ weights
        similarity = _similarity(metric, self._products.inner(weights), norms, pairs)
        # Squared distances have a scale of their own; cosines have not.
        self._unit = 1.0 if metric == "cosine" else float(-np.median(similarity)) or 1.0
        offset = logistic_offset(
            similarity / self._unit, scale=scale, expected_edges=expected_degree * n_nodes / 2
        )
        self._start_parameters(np.zeros(features.shape[1]), scale, offset)
        super().__init__(n_nodes, pairs, np.zeros(pairs.n_pairs), dtype=dtype, device=device)
        self._set_probabilities()

    @classmethod
    def _without_state(
        cls, n_nodes: int, features: Any, dtype: torch.dtype, device: torch.device
    ) -> Self:
        made = super()._without_state(n_nodes, features, dtype, device)
        made._features = features.astype(np.float64)
        return made

    def _start_parameters(self, log_weights: Any, scale: Any, offset: Any) -> None:
        self._parameters = [
            torch.tensor(value, dtype=torch.float64) for value in (log_weights, scale, offset)
        ]
        self._optimizer = torch.optim.Adam(
            [
                {"params": [parameter], "lr": rate}
                for parameter, rate in zip(self._parameters, self.learning_rates, strict=True)
            ]
        )

    @property
    def parameters(self) -> tuple[NDArray[np.float64], float, float]:
        """Logarithms of the features' weights, scale, and offset."""
        log_weights, scale, offset = self._parameters
        return log_weights.numpy().copy(), float(scale), float(offset)

    def _set_probabilities(self) -> None:
        log_weights, scale, offset = self.parameters
        weights = np.exp(log_weights)
        norms = self._products.squares @ weights
        inner = self._products.inner(weights)
        self._similarity = _similarity(self.metric, inner, norms, self.pairs) / self._unit
        self._theta[:] = expit(scale * (self._similarity - offset))
        self._sampler.refresh()

    def descend(self, gradient: EdgeGradient, rate: float) -> None:
        log_weights, scale, offset = self.parameters
        theta = self._theta.astype(np.float64)
        by_theta = gradient.at_pairs(self.pairs.rows, self.pairs.cols).astype(np.float64)
        by_logit = by_theta * theta * (1.0 - theta)
        by_similarity = by_logit * scale / self._unit
        slopes = (
            self._by_log_weights(by_similarity, np.exp(log_weights)) + self.pull * log_weights,
            np.sum(by_logit * (self._similarity - offset)),
            -scale * np.sum(by_logit),
        )
        for parameter, slope in zip(self._parameters, slopes, strict=True):
            parameter.grad = torch.as_tensor(slope, dtype=torch.float64)
        for group, base in zip(self._optimizer.param_groups, self.learning_rates, strict=True):
            group["lr"] = rate * base
        self._optimizer.step()
        self._set_probabilities()

    def _by_log_weights(
        self, slopes: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Pull derivatives by the (raw) similarities back to the logarithms of the weights."""
        squares, pairs = self._products.squares, self.pairs
        ends = np.concatenate(pairs)
        if self.metric == "euclidean":
            # -|x_i - x_j|_w^2 = 2 <x_i, x_j>_w - |x_i|_w^2 - |x_j|_w^2
            by_norm = -np.bincount(ends, np.tile(slopes, 2), minlength=self.n_nodes)
            by_weights = 2.0 * self._products.adjoint(slopes) + squares.T @ by_norm
        else:
            norms = squares @ weights
            length = np.sqrt(norms[pairs.rows] * norms[pairs.cols])
            own = np.divide(slopes, length, out=np.zeros_like(slopes), where=length > 0)
            cosine = self._similarity * self._unit
            halves = -0.5 * np.bincount(ends, np.tile(slopes * cosine, 2), minlength=self.n_nodes)
            by_norm = np.divide(halves, norms, out=np.zeros_like(norms), where=norms > 0)
            by_weights = self._products.adjoint(own) + squares.T @ by_norm
        return np.asarray(weights * by_weights)

    def attach(self, queries: Any, features: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Candidate neighbours of new rows among the fitted ones, and the edges' probabilities.

        Both of shape (n_queries, n_candidates); places without a candidate hold -1.
        """
        found, _ = nearest_neighbours(queries, features, self.n_candidates, self.metric)
        log_weights, scale, offset = self.parameters
        weights = np.exp(log_weights)
        new, place = np.nonzero(found >= 0)
        pairs = Pairs(new, found[new, place])
        wide, known = queries.astype(np.float64), self._features
        both = (
            sparse.vstack([wide, known]).tocsr()
            if not isinstance(wide, np.ndarray)
            else np.vstack([wide, known])
        )
        shifted = Pairs(new, pairs.cols + wide.shape[0])
        products = PairProducts(both, shifted)
        norms = products.squares @ weights
        similarity = _similarity(self.metric, products.inner(weights), norms, shifted)
        probability = np.zeros(found.shape)
        probability[new, place] = expit(scale * (similarity / self._unit - offset))
        return found, probability

    def copy(self) -> SimilarityEdges:
        twin = copy(self)
        twin._theta = self._theta.copy()
        twin._lay_out()
        twin._start_parameters(*self.parameters)
        # Loading such a state does not copy its tensors, which steps change in place.
        twin._optimizer.load_state_dict(deepcopy(self._optimizer.state_dict()))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        own = ("n_candidates", "metric", "learning_rates", "pull", "_features", "_unit")
        return {
            **super().__getstate__(),
            **{name: getattr(self, name) for name in own},
            "parameters": self.parameters,
            "adam": self._optimizer.state_dict(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        parameters, adam = state.pop("parameters"), state.pop("adam")
        super().__setstate__(state)
        self._products = PairProducts(self._features, self.pairs)
        self._start_parameters(*parameters)
        self._optimizer.load_state_dict(adam)
        self._set_probabilities()

    def snapshot(self) -> Snapshot:
        """Parameters, Adam's memory and the candidates: probabilities follow from them."""
        log_weights, scale, offset = self.parameters
        settings = {
            "n_candidates": self.n_candidates,
            "metric": self.metric,
            "learning_rates": list(self.learning_rates),
            "pull": self.pull,
            "unit": self._unit,
            "scale": scale,
            "offset": offset,
        }
        arrays = {"rows": self.pairs.rows, "cols": self.pairs.cols, "log_weights": log_weights}
        for number, memory in self._optimizer.state_dict()["state"].items():
            for name, value in memory.items():
                arrays[f"adam.{number}.{name}"] = value.numpy().copy()
        return Snapshot(settings, arrays)

    def restore(self, snapshot: Snapshot) -> None:
        settings, arrays = snapshot
        pairs = Pairs(arrays["rows"], arrays["cols"])
        pairs.check(self.n_nodes)
        log_weights, unit = arrays["log_weights"], float(settings["unit"])
        numbers = [unit, float(settings["scale"]), float(settings["offset"]), *log_weights]
        if log_weights.shape != (self._features.shape[1],) or not np.isfinite(numbers).all():
            raise ValueError("a snapshot must hold a finite parameter for each feature.")
        if settings["metric"] not in ("cosine", "euclidean") or unit == 0:
            raise ValueError("a snapshot must name the metric, and its unit must not be 0.")
        self.n_candidates = min(max(1, int(settings["n_candidates"])), self.n_nodes - 1)
        self.metric = settings["metric"]
        of_weights, of_scale, of_offset = map(float, settings["learning_rates"])
        self.learning_rates = (of_weights, of_scale, of_offset)
        self.pull = float(settings["pull"])
        self._unit = unit
        self.pairs = pairs
        self._products = PairProducts(self._features, pairs)
        self._start_parameters(log_weights, settings["scale"], settings["offset"])
        self._restore_adam(arrays)
        self._theta = np.zeros(pairs.n_pairs, real_type(self.dtype))
        self._lay_out()
        self._set_probabilities()

    def _restore_adam(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        memory: dict[int, dict[str, torch.Tensor]] = {}
        for number, parameter in enumerate(self._parameters):
            for name in ("step", "exp_avg", "exp_avg_sq"):
                if (value := arrays.get(f"adam.{number}.{name}")) is not None:
                    shape = () if name == "step" else parameter.shape
                    # A file may hold a scalar as an array of one entry.
                    tensor = torch.from_numpy(np.array(value)).reshape(shape)
                    memory.setdefault(number, {})[name] = tensor
        # Rates and betas as they are: `descend` sets the rates, and nobody the rest.
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": memory, "param_groups": groups})
