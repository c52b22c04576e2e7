"""Derivatives by parts of a graph, put together as what they are: derivatives by the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edgewise.bilevel.lowrank import Factors, LowRank
from edgewise.graph.sampled import Graph


def total_of_parts(graphs: Sequence[Graph], parts: Sequence[LowRank]) -> LowRank:
    """The sum of derivatives, each by a graph that may be a part of one that all have in common.

    They are added up in the numbers of the nodes that any of them knows, and then spread out.
    """
    if all(graph.nodes is None for graph in graphs):
        return LowRank.total(parts)
    n_nodes = graphs[0].n_whole
    known = [np.arange(n_nodes) if graph.nodes is None else graph.nodes for graph in graphs]
    nodes = np.unique(np.concatenate(known))
    local = [
        LowRank(*_renumbered(part.parts, part.shift, np.searchsorted(nodes, own), len(nodes)))
        for part, own in zip(parts, known, strict=True)
    ]
    merged = LowRank.total(local)
    total = LowRank(*_renumbered(merged.factors, merged.shift, nodes, n_nodes))
    total.factors = total.parts  # merged where there was less to merge
    return total


def _renumbered(
    parts: Sequence[Factors], shift: NDArray[Any], numbers: NDArray[np.int64], n_nodes: int
) -> tuple[list[Factors], NDArray[Any]]:
    """The same derivative where node i has the number ``numbers[i]`` among more nodes."""
    at = torch.from_numpy(numbers)
    spread = []
    for part in parts:
        right = part.right.new_zeros(n_nodes, part.rank)
        right[at] = part.right if part.scale is None else part.right * part.scale[:, None]
        spread.append(Factors(numbers[part.rows], part.left, right))
    wide_shift = np.zeros(n_nodes, shift.dtype)
    wide_shift[numbers] = shift
    return spread, wide_shift
