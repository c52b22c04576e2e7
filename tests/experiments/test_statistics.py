"""Statistics over seeds, against SciPy and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from edgewise.experiments.paper import Published
from edgewise.experiments.statistics import (
    best_methods,
    format_mean_std,
    mean_std,
    paired_interval,
    paired_test,
    verdict,
    welch_test,
)

scores = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=2, max_size=12)


def seeds(*values):
    return dict(enumerate(values))


def test_mean_and_deviation_are_those_of_a_sample():
    assert mean_std([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == (5.0, math.sqrt(32 / 7))
    mean, std = mean_std([3.0])
    assert mean == 3.0
    assert math.isnan(std)
    assert all(map(math.isnan, mean_std([])))


def test_means_are_written_as_the_paper_does():
    assert format_mean_std([0.7898, 0.7958, 0.7838]) == "79.0 (0.6)"
    assert format_mean_std([4513.94, 4513.86], scale=1, digits=2) == "4513.90 (0.06)"


@given(st.data())
def test_paired_test_equals_scipy(data):
    a = data.draw(scores)
    b = data.draw(st.lists(st.integers(0, 1000).map(lambda n: n / 1000),
                           min_size=len(a), max_size=len(a)))  # fmt: skip
    found = paired_test(a, b)
    if np.ptp(np.subtract(a, b)) > 1e-9:
        expected = stats.ttest_rel(a, b)
        assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)
        assert found.statistic == pytest.approx(expected.statistic, rel=1e-9)
        assert (found.df, found.note) == (expected.df, "")
    else:
        assert found.note


def test_paired_test_of_two_pairs_in_closed_form():
    # One degree of freedom is Cauchy: p = 1 - 2 atan|t| / pi, here with t = 2.
    assert paired_test([3.0, 1.0], [0.0, 0.0]).p_value == pytest.approx(
        1 - 2 * math.atan(2) / math.pi
    )


def test_paired_test_where_the_textbook_divides_by_zero():
    same = paired_test([0.9, 0.8, 0.7], [0.9, 0.8, 0.7])
    assert (same.statistic, same.p_value) == (0, 1)
    # 0.1 and 0.3 - 0.2 differ in the last bit: rounding must not pass for a variance.
    constant = paired_test([0.1, 0.3, 0.9, 0.8, 0.6], [0.0, 0.2, 0.8, 0.7, 0.5])
    assert constant.p_value == 2**-4
    assert constant.statistic == math.inf
    assert "sign test" in constant.note
    assert constant.p_value == pytest.approx(stats.binomtest(5, 5).pvalue)
    assert paired_test([0.0] * 3, [0.1] * 3).statistic == -math.inf
    single = paired_test([0.9], [0.1])
    assert math.isnan(single.p_value)
    assert "two seeds" in single.note


def test_bad_scores_are_refused():
    with pytest.raises(ValueError, match="3 and 2"):
        paired_test([0.1, 0.2, 0.3], [0.1, 0.2])
    with pytest.raises(ValueError, match="finite"):
        paired_test([0.1, math.nan], [0.1, 0.2])
    with pytest.raises(ValueError, match="confidence"):
        paired_interval([0.1, 0.2], [0.2, 0.2], confidence=95)
    with pytest.raises(ValueError, match="method"):
        paired_interval([0.1, 0.2], [0.2, 0.2], method="normal")
    with pytest.raises(ValueError, match="rng"):
        paired_interval([0.1, 0.2], [0.2, 0.2], method="bootstrap")


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_interval_equals_scipy_and_agrees_with_the_test(confidence):
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.81, 0.01, 5), rng.normal(0.80, 0.01, 5)
    found = paired_interval(a, b, confidence=confidence)
    expected = stats.ttest_rel(a, b).confidence_interval(confidence)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.estimate == pytest.approx(np.mean(a - b))
    # The interval excludes 0 exactly where the test rejects at the same level.
    assert (found.low > 0 or found.high < 0) == (paired_test(a, b).p_value < 1 - confidence)


def test_bootstrap_interval_is_that_of_the_normal_law_for_many_pairs():
    rng = np.random.default_rng(1)
    a = rng.normal(0.5, 1.0, 2000)
    found = paired_interval(a, np.zeros(2000), method="bootstrap", rng=rng)
    half = 1.96 * a.std(ddof=1) / math.sqrt(2000)
    assert (found.low, found.high) == pytest.approx((a.mean() - half, a.mean() + half), abs=0.004)


def test_interval_of_one_pair_has_no_bounds():
    found = paired_interval([0.9], [0.8])
    assert found.estimate == pytest.approx(0.1)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


@given(scores, st.floats(0.5, 1), st.floats(0.01, 0.1), st.integers(2, 10))
def test_welch_equals_scipy(values, mean, std, n):
    found = welch_test(values, Published(mean, std, n))
    ours, deviation = mean_std(values)
    expected = stats.ttest_ind_from_stats(
        ours, deviation, len(values), mean, std, n, equal_var=False
    )
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert found.statistic == pytest.approx(expected.statistic, rel=1e-9)
    assert found.note == ""


def test_welch_without_a_published_deviation_takes_ours_and_says_so():
    values = [79.1, 79.6, 78.8, 79.9, 79.3]
    found = welch_test(values, Published(81.5))
    std = mean_std(values)[1]
    assert found.p_value == pytest.approx(welch_test(values, Published(81.5, std)).p_value)
    assert "deviation unknown" in found.note


def test_welch_where_nothing_can_be_tested():
    assert math.isnan(welch_test([79.0], Published(81.5, 1.0)).p_value)
    assert math.isnan(welch_test([79.0, 79.0], Published(81.5)).p_value)
    assert welch_test([79.0, 79.0], Published(79.0)).p_value == 1
    assert welch_test([79.0, 79.0], Published(81.5, 1.0)).p_value < 0.05  # one side suffices


def test_best_methods_are_the_best_and_those_not_shown_to_differ():
    table = {
        "best": seeds(0.90, 0.92, 0.91, 0.93, 0.92),
        "near": seeds(0.91, 0.90, 0.92, 0.92, 0.915),
        "steadily a little worse": seeds(0.895, 0.914, 0.905, 0.924, 0.915),
        "far": seeds(0.5, 0.6, 0.5, 0.6, 0.5),
        "untestable": {0: 0.4},
        "no common seed": {9: 0.4},
        "same where run": {0: 0.90},
        "failed": {},
    }
    assert best_methods(table) == {"best", "near", "same where run"}
    assert best_methods({}) == set()
    assert best_methods({"failed": {}}) == set()


def test_single_seeds_mark_the_best_alone_and_its_ties():
    assert best_methods({"a": {0: 0.9}, "b": {0: 0.89}, "c": {0: 0.9}}) == {"a", "c"}


def test_pairs_are_matched_by_seed_and_not_by_order():
    values = {seed: 0.5 + 0.05 * seed for seed in range(5)}
    shifted = {seed: values[seed] - 0.01 - 0.001 * (seed % 2) for seed in reversed(range(5))}
    assert best_methods({"a": values, "b": shifted}) == {"a"}


KNN = {"knn-gcn": seeds(0.92, 0.93, 0.93, 0.92, 0.93), "rf": seeds(0.5, 0.5, 0.6, 0.5, 0.5)}


def test_verdict_better():
    found = verdict({"knn-lds": seeds(0.95, 0.96, 0.97, 0.95, 0.96)}, KNN, labels="equal")
    assert found.outcome == "better"
    assert (found.learned, found.rival, found.seeds) == ("knn-lds", "knn-gcn", 5)
    assert found.difference.estimate == pytest.approx(3.2)
    assert str(found) == (
        "learned graph (knn-lds) beat the best alternative (knn-gcn) by 3.2 points "
        "(95 % CI 2.6..3.8, paired over 5 seeds), at label budget equal"
    )


def test_verdict_worse():
    found = verdict({"knn-lds": seeds(0.90, 0.91, 0.90, 0.90, 0.91)}, KNN, labels="paper")
    assert found.outcome == "worse"
    assert found.difference.high < 0
    assert "did worse than the best alternative (knn-gcn) by 2.2 points (95 % CI 1.6..2.8" in str(
        found
    )


def test_verdict_no():
    found = verdict({"knn-lds": seeds(0.99, 0.90, 0.95, 0.91, 0.92)}, KNN, labels="equal")
    assert found.outcome == "no evidence"
    assert str(found).startswith("no evidence that a learned graph helps: knn-lds minus knn-gcn")
    assert "+0.8 points (95 % CI -4.0..5.6, paired over 5 seeds)" in str(found)


def test_verdict_does_not_say_yes_on_too_little():
    one = verdict({"lds": {0: 0.99}}, {"gcn": {0: 0.5}}, labels="equal")
    assert one.outcome == "no evidence"
    assert "one seed only" in one.sentence
    # The same gain on each of three seeds: an infinite t-statistic, and yet no evidence.
    same = verdict({"lds": seeds(0.9, 0.8, 0.7)}, {"gcn": seeds(0.8, 0.7, 0.6)}, labels="equal")
    assert (same.outcome, same.p_value) == ("no evidence", 0.25)
    assert "sign test" in same.sentence


def test_verdict_corrects_for_several_learned_graphs():
    gain = {"lds": seeds(0.931, 0.932, 0.939, 0.931, 0.931)}
    alone = verdict(gain, KNN, labels="equal")
    many = verdict({**gain, "a": seeds(0.9), "b": seeds(0.8)}, KNN, labels="equal")
    assert many.p_value == pytest.approx(3 * alone.p_value)
    assert (alone.outcome, many.outcome) == ("better", "no evidence")
    assert many.difference.low < alone.difference.low
    assert "corrected for trying 3 learned-graph methods" in many.sentence


def test_verdict_without_anything_to_compare_says_so():
    with pytest.raises(ValueError, match="rivals"):
        verdict({"lds": {0: 0.9}}, {"gcn": {}}, labels="equal")
    with pytest.raises(ValueError, match="share no seed"):
        verdict({"lds": {0: 0.9}}, {"gcn": {1: 0.9}}, labels="equal")
