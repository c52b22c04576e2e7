from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgewise.graph.pairs import Pairs

directed = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40),
    )
)


def fold(edges: list[tuple[int, int]], n_nodes: int) -> Pairs:
    return Pairs.fold([i for i, _ in edges], [j for _, j in edges], n_nodes)


@given(directed)
def test_fold_keeps_each_undirected_pair_once_in_order(case):
    n_nodes, edges = case
    pairs = fold(edges, n_nodes)
    expected = sorted({(min(i, j), max(i, j)) for i, j in edges if i != j})
    assert list(zip(pairs.rows.tolist(), pairs.cols.tolist(), strict=True)) == expected
    assert pairs.n_pairs == len(expected)
    assert pairs.rows.dtype == pairs.cols.dtype == np.int64


@given(directed)
def test_fold_is_idempotent_and_blind_to_orientation(case):
    n_nodes, edges = case
    once = fold(edges, n_nodes)
    for again in (
        Pairs.fold(once.rows, once.cols, n_nodes),
        fold([(j, i) for i, j in reversed(edges)], n_nodes),
        fold(edges + [(j, i) for i, j in edges] + [(0, 0)], n_nodes),
    ):
        np.testing.assert_array_equal(again.rows, once.rows)
        np.testing.assert_array_equal(again.cols, once.cols)


def test_fold_of_many_nodes_does_not_overflow_32_bits():
    n_nodes = 3_000_000_000
    pairs = Pairs.fold([n_nodes - 1, 5], [n_nodes - 2, 7], n_nodes)
    assert pairs.rows.tolist() == [5, n_nodes - 2]
    assert pairs.cols.tolist() == [7, n_nodes - 1]
