"""Comparing methods over seeds: means, tests, intervals, and a verdict in plain words.

Accuracies are fractions in the records and percentages, or points, for the reader; each function
says which it takes. Seeds pair the methods: the same seed means the same split of the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from edgewise.experiments.paper import Published

# Differences below this are rounding of the arithmetic: an accuracy is a count over a count.
_RESOLUTION = 1e-9


class Comparison(NamedTuple):
    """The result of a significance test; `note` says where it is not the plain textbook test."""

    statistic: float
    p_value: float
    df: float
    note: str = ""


class Interval(NamedTuple):
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation (divided by n - 1).

    Parameters
    ----------
    values : sequence of float

    Returns
    -------
    (mean, std); std is NaN for fewer than two values

    Examples
    --------
    >>> mean_std([1.0, 2.0, 3.0])
    (2.0, 1.0)
    """
    array = _finite(values)
    if array.size == 0:
        return math.nan, math.nan
    return float(array.mean()), float(array.std(ddof=1)) if array.size > 1 else math.nan


def format_mean_std(values: Sequence[float], *, scale: float = 100.0, digits: int = 1) -> str:
    """Write mean and standard deviation as the paper does, by default as percentages.

    Parameters
    ----------
    values : sequence of float
    scale : float, 100 turns fractions into percentages
    digits : int, after the decimal point

    Returns
    -------
    str; without a deviation for one value, a dash for none

    Examples
    --------
    >>> format_mean_std([0.97, 0.98, 0.99]), format_mean_std([0.5]), format_mean_std([])
    ('98.0 (1.0)', '50.0', '–')
    """
    mean, std = mean_std([scale * value for value in values])
    if math.isnan(mean):
        return "–"
    return f"{mean:.{digits}f}" if math.isnan(std) else f"{mean:.{digits}f} ({std:.{digits}f})"


def paired_test(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """Test whether two methods differ, by a two-sided paired t-test over seeds.

    Identical values give p = 1, one pair gives NaN. Where every pair differs by the same non-zero
    amount the t-statistic is infinite, which with accuracies is an artefact of their coarse steps:
    then the sign test, p = 2^(1 - n), stands in.

    Parameters
    ----------
    a, b : sequences of float, the same seeds in the same order

    Returns
    -------
    Comparison

    Examples
    --------
    >>> round(paired_test([0.9, 0.8, 0.9], [0.8, 0.75, 0.7]).p_value, 3)
    0.118
    >>> paired_test([0.9, 0.8], [0.8, 0.7]).p_value
    0.5
    """
    difference = _paired(a, b)
    n = difference.size
    if n < 2:
        return Comparison(math.nan, math.nan, math.nan, "a paired test needs two seeds or more")
    if np.ptp(difference) < _RESOLUTION:
        if abs(difference[0]) < _RESOLUTION:
            return Comparison(0.0, 1.0, n - 1, "identical on every seed")
        note = "every seed differs by the same amount: sign test"
        return Comparison(math.copysign(math.inf, difference[0]), 2.0 ** (1 - n), n - 1, note)
    statistic = float(difference.mean() / (difference.std(ddof=1) / math.sqrt(n)))
    return Comparison(statistic, float(2 * stats.t.sf(abs(statistic), n - 1)), n - 1)


def paired_interval(
    a: Sequence[float],
    b: Sequence[float],
    *,
    confidence: float = 0.95,
    method: Literal["t", "bootstrap"] = "t",
    rng: np.random.Generator | None = None,
) -> Interval:
    """Estimate the mean of ``a - b`` with a confidence interval, paired over seeds.

    Parameters
    ----------
    a, b : sequences of float, the same seeds in the same order
    confidence : float in (0, 1)
    method : "t", or "bootstrap" (percentiles of resampled means: no normality assumed, but too
        narrow below some ten seeds)
    rng : numpy.random.Generator, for the bootstrap

    Returns
    -------
    Interval; with NaN bounds for fewer than two pairs

    Examples
    --------
    >>> interval = paired_interval([0.9, 0.8, 0.9], [0.8, 0.75, 0.7])
    >>> [round(float(x), 3) for x in interval]
    [0.117, -0.073, 0.306]
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if method not in ("t", "bootstrap"):
        raise ValueError(f"method must be 't' or 'bootstrap', got {method!r}")
    difference = _paired(a, b)
    mean = float(difference.mean())
    if difference.size < 2:
        return Interval(mean, math.nan, math.nan)
    if method == "bootstrap":
        if rng is None:
            raise ValueError("the bootstrap draws at random: give rng=numpy.random.default_rng(0)")
        drawn = rng.choice(difference, size=(10_000, difference.size)).mean(axis=1)
        low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
        return Interval(mean, float(low), float(high))
    error = difference.std(ddof=1) / math.sqrt(difference.size)
    half = float(stats.t.ppf((1 + confidence) / 2, difference.size - 1) * error)
    return Interval(mean, mean - half, mean + half)


def welch_test(values: Sequence[float], published: Published) -> Comparison:
    """Test whether our mean differs from a published one, by Welch's two-sided t-test.

    Parameters
    ----------
    values : sequence of float, in the unit of the published numbers (percentages)
    published : Published; where its deviation is unknown ours is taken for it, and `note` says so

    Returns
    -------
    Comparison

    Examples
    --------
    >>> test = welch_test([79.1, 79.6, 78.8, 79.9, 79.3], Published(78.98, 0.6))
    >>> round(test.p_value, 2), test.note
    (0.31, '')
    >>> welch_test([79.1, 79.6], Published(81.5)).note
    'published deviation unknown: ours taken for it'
    """
    array = _finite(values)
    if array.size < 2:
        return Comparison(math.nan, math.nan, math.nan, "the test needs two seeds or more")
    mean, std = mean_std(values)
    note, theirs = "", published.std
    if theirs is None:
        note, theirs = "published deviation unknown: ours taken for it", std
    ours_squared, theirs_squared = std**2 / array.size, theirs**2 / published.n
    if math.sqrt(ours_squared + theirs_squared) < _RESOLUTION:
        # No spread on either side leaves nothing to test against but equality itself.
        same = abs(mean - published.mean) < _RESOLUTION
        return Comparison(math.nan, 1.0 if same else math.nan, math.nan, "no spread: not testable")
    statistic = (mean - published.mean) / math.sqrt(ours_squared + theirs_squared)
    df = (ours_squared + theirs_squared) ** 2 / (
        ours_squared**2 / (array.size - 1) + theirs_squared**2 / (published.n - 1)
    )
    return Comparison(float(statistic), float(2 * stats.t.sf(abs(statistic), df)), float(df), note)


def best_methods(scores: Mapping[str, Mapping[int, float]], *, alpha: float = 0.05) -> set[str]:
    """Return the best method and those not significantly different from it: a table's bold ones.

    Compared by `paired_test` over the seeds that a method shares with the best. A method that
    shares fewer than two cannot be tested and is not marked, unless its values are the same.

    Parameters
    ----------
    scores : mapping of method to a mapping of seed to accuracy
    alpha : float, level of the test

    Returns
    -------
    set of str, empty without scores

    Examples
    --------
    >>> sorted(best_methods({
    ...     "rf": {0: 0.90, 1: 0.91, 2: 0.92},
    ...     "lp": {0: 0.91, 1: 0.90, 2: 0.915},
    ...     "gcn": {0: 0.50, 1: 0.52, 2: 0.51},
    ... }))
    ['lp', 'rf']
    """
    means = {name: mean_std(list(seeds.values()))[0] for name, seeds in scores.items() if seeds}
    if not means:
        return set()
    best = max(means, key=lambda name: means[name])
    marked = set()
    for name in means:
        a, b = _shared(scores[best], scores[name])
        is_same = bool(a) and np.allclose(a, b, rtol=0, atol=_RESOLUTION)
        if name == best or is_same or (len(a) > 1 and not paired_test(a, b).p_value < alpha):
            marked.add(name)
    return marked


@dataclass(frozen=True)
class Verdict:
    """The answer to "did learning a graph help?".

    Attributes
    ----------
    outcome : {"better", "worse", "no evidence"}
    sentence : str, the answer in plain words
    learned, rival : str, the methods compared
    difference : Interval of learned minus rival, in percentage points
    p_value : float, corrected for the number of learned-graph methods tried
    seeds : int
    """

    outcome: Literal["better", "worse", "no evidence"]
    sentence: str
    learned: str
    rival: str
    difference: Interval
    p_value: float
    seeds: int

    def __str__(self) -> str:
        return self.sentence


def verdict(
    learned: Mapping[str, Mapping[int, float]],
    rivals: Mapping[str, Mapping[int, float]],
    *,
    labels: str,
    alpha: float = 0.05,
) -> Verdict:
    """Say whether the best learned graph beats the best alternative, and how sure that is.

    Care is taken that a "yes" can be trusted. The best rival is picked by the same scores, which
    favours the rival. Where several learned-graph methods compete, picking the best favours the
    learned graph, so level and interval are corrected for their number (Bonferroni).

    Parameters
    ----------
    learned, rivals : mapping of method to a mapping of seed to test accuracy, a fraction
    labels : str, the label budget to state
    alpha : float, level of the test

    Returns
    -------
    Verdict

    Examples
    --------
    >>> print(verdict({"knn-lds": {0: 0.95, 1: 0.96, 2: 0.97, 3: 0.96}},
    ...               {"knn-gcn": {0: 0.92, 1: 0.93, 2: 0.93, 3: 0.92}}, labels="equal"))
    learned graph (knn-lds) beat the best alternative (knn-gcn) by 3.5 points (95 % CI 2.6..4.4,
    paired over 4 seeds), at label budget equal
    """
    best, rival = _best(learned, "learned"), _best(rivals, "rivals")
    a, b = _shared(learned[best], rivals[rival])
    if not a:
        raise ValueError(f"{best} and {rival} share no seed: run both on the same seeds")
    tried = len(learned)
    test = paired_test(a, b)
    p_value = min(1.0, tried * test.p_value)  # NaN stays NaN
    interval = paired_interval(a, b, confidence=1 - alpha / tried)
    difference = Interval(*(100 * float(x) for x in interval))
    outcome: Literal["better", "worse", "no evidence"] = "no evidence"
    if p_value < alpha:
        outcome = "better" if difference.estimate > 0 else "worse"
    sentence = _sentence(outcome, best, rival, difference, _basis(test, difference, len(a), alpha))
    if tried > 1:
        sentence += f", corrected for trying {tried} learned-graph methods"
    sentence += f", at label budget {labels}"
    return Verdict(outcome, sentence, best, rival, difference, p_value, len(a))


def _sentence(outcome: str, best: str, rival: str, difference: Interval, basis: str) -> str:
    if outcome == "no evidence":
        return (
            f"no evidence that a learned graph helps: {best} minus {rival}, the best alternative, "
            f"is {difference.estimate:+.1f} points ({basis})"
        )
    verb = "beat" if outcome == "better" else "did worse than"
    return (
        f"learned graph ({best}) {verb} the best alternative ({rival}) "
        f"by {abs(difference.estimate):.1f} points ({basis})"
    )


def _basis(test: Comparison, difference: Interval, seeds: int, alpha: float) -> str:
    """Say what a verdict rests on, and what it lacks."""
    if seeds < 2:
        return "one seed only: run five or more"
    if test.note:
        return f"{test.note}, over {seeds} seeds"
    low, high = difference.low, difference.high
    if high < 0:  # worse: a loss is written without its sign, as "worse by 2 points (1..3)"
        low, high = -high, -low
    return f"{100 * (1 - alpha):g} % CI {low:.1f}..{high:.1f}, paired over {seeds} seeds"


def _best(scores: Mapping[str, Mapping[int, float]], name: str) -> str:
    filled = {method: seeds for method, seeds in scores.items() if seeds}
    if not filled:
        raise ValueError(f"{name} holds no scores: at least one method must have finished")
    return max(filled, key=lambda method: mean_std(list(filled[method].values()))[0])


def _shared(a: Mapping[int, float], b: Mapping[int, float]) -> tuple[list[float], list[float]]:
    seeds = sorted(set(a) & set(b))
    return [a[seed] for seed in seeds], [b[seed] for seed in seeds]


def _paired(a: Sequence[float], b: Sequence[float]) -> NDArray[np.float64]:
    first, second = _finite(a), _finite(b)
    if first.shape != second.shape or not first.size:
        raise ValueError(
            f"a paired comparison needs equally many values, got {first.size} and {second.size}"
        )
    return first - second


def _finite(values: Sequence[float]) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"scores must be a flat list of finite numbers, got {values!r}")
    return array
