"""The few loops that neither PyTorch nor NumPy can express: compiled by Numba, free of any policy.

Every kernel works on plain arrays, keeps no state, and draws no random numbers: what randomness it
needs comes in as an array, so that one `numpy.random.Generator` governs a run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Sums over a block may be reordered (that is what lets them use vector registers); nothing else is
# relaxed: NaN and infinities keep their meaning.
_REORDER = {"reassoc", "contract", "nsz"}


@njit(cache=True, fastmath=_REORDER)
def block_masses(
    values: NDArray[Any],
    bounds: NDArray[np.int64],
    first: int,
    last: int,
    mass: NDArray[np.float64],
    likely: NDArray[np.int32],
) -> None:
    """For blocks first..last-1: the sum of the values up to 1/2 and the number of those above."""
    for block in range(first, last):
        own = values[bounds[block] : bounds[block + 1]]
        total = 0.0
        for e in range(len(own)):  # two loops, because only apart do they vectorise
            value = np.float64(own[e])
            total += value if value <= 0.5 else 0.0
        count = np.int32(0)
        for e in range(len(own)):
            count += np.int32(own[e] > 0.5)
        mass[block] = total
        likely[block] = count


@njit(cache=True)
def collect_likely(
    values: NDArray[Any], bounds: NDArray[np.int64], likely: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Positions of the values above 1/2, in order."""
    found = np.empty(likely.sum(), np.int64)
    n_found = 0
    for block in range(len(likely)):
        if likely[block] > 0:
            for e in range(bounds[block], bounds[block + 1]):
                if values[e] > 0.5:
                    found[n_found] = e
                    n_found += 1
    return found


@njit(cache=True)
def locate(
    values: NDArray[Any],
    bounds: NDArray[np.int64],
    cumulative: NDArray[np.float64],
    before: float,
    targets: NDArray[np.float64],
    acceptance: NDArray[np.float64],
    rate: float,
) -> NDArray[np.int64]:
    """Turn points on the line of cumulated masses into positions, thinned to the exact intensity.

    The line begins at `before`, with the first block.
    The points come sorted, and so do the positions, some of them perhaps twice. A position e is
    proposed with intensity ``rate * values[e]`` and kept with probability
    ``-log(1 - values[e]) / (rate * values[e])``.
    """
    blocks = np.empty(len(targets), np.int64)
    block = 0
    last = len(cumulative) - 1
    for k in range(len(targets)):
        # The first block whose end lies beyond the target: gallop, then bisect.
        step = 1
        while block + step < last and cumulative[block + step] <= targets[k]:
            block += step
            step *= 2
        end = min(block + step, last)
        while block < end:
            middle = (block + end) // 2
            if cumulative[middle] <= targets[k]:
                block = middle + 1
            else:
                end = middle
        blocks[k] = block
    # The blocks lie far apart in memory. With nothing to decide in between, the processor asks for
    # many of them at a time; in the scan below it would wait for each.
    heads = np.empty(len(targets), values.dtype)
    for k in range(len(targets)):
        heads[k] = values[bounds[blocks[k]]]
    kept = np.empty(len(targets), np.int64)
    n_kept = 0
    for k in range(len(targets)):
        block = blocks[k]
        rest = targets[k] - (cumulative[block - 1] if block > 0 else before)
        for e in range(bounds[block], bounds[block + 1]):
            value = np.float64(heads[k] if e == bounds[block] else values[e])
            rest -= value if value <= 0.5 else 0.0
            if rest < 0.0:
                if acceptance[k] * rate * value < -np.log1p(-value):
                    kept[n_kept] = e
                    n_kept += 1
                break
    return kept[:n_kept]


@njit(cache=True)
def normalised_csr(
    rows: NDArray[np.int64],
    cols: NDArray[np.int64],
    weights: NDArray[Any],
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    scale: NDArray[Any],
) -> None:
    """Fill the CSR arrays of D~^{-1/2} (A + I) D~^{-1/2} from sorted pairs; `scale` is D~^{-1/2}.

    `weights` has one entry a pair, or none when every edge weighs 1.
    """
    n_nodes = len(scale)
    weighted = len(weights) > 0
    degree = np.ones(n_nodes, np.float64)
    indptr[:] = 0
    for e in range(len(rows)):
        weight = np.float64(weights[e]) if weighted else 1.0
        degree[rows[e]] += weight
        degree[cols[e]] += weight
        indptr[rows[e] + 1] += 1
        indptr[cols[e] + 1] += 1
    for i in range(n_nodes):
        scale[i] = 1.0 / np.sqrt(degree[i])
        indptr[i + 1] += indptr[i] + 1
    # Sorted pairs fill each row in order: first its smaller neighbours, itself, then the larger.
    cursor = indptr[:-1].copy()
    for e in range(len(rows)):
        at = cursor[cols[e]]
        indices[at] = rows[e]
        data[at] = scale[rows[e]] * scale[cols[e]] * (weights[e] if weighted else 1.0)
        cursor[cols[e]] = at + 1
    for i in range(n_nodes):
        indices[cursor[i]] = i
        data[cursor[i]] = scale[i] * scale[i]
        cursor[i] += 1
    for e in range(len(rows)):
        at = cursor[rows[e]]
        indices[at] = cols[e]
        data[at] = scale[rows[e]] * scale[cols[e]] * (weights[e] if weighted else 1.0)
        cursor[rows[e]] = at + 1


@njit(cache=True)
def nonzero_rows(matrix: NDArray[Any]) -> NDArray[np.int64]:
    """Indices of the rows that hold anything but zeros."""
    found = np.empty(matrix.shape[0], np.int64)
    n_found = 0
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            if matrix[i, j] != 0.0:
                found[n_found] = i
                n_found += 1
                break
    return found[:n_found]


@njit(cache=True)
def descend_rows(
    theta: NDArray[Any],
    offsets: NDArray[np.int64],
    start: int,
    band: NDArray[Any],
    shift: NDArray[Any],
    rate: float,
) -> None:
    """Projected descent on packed rows: theta_ij <- clip(theta_ij - rate (band_ij + r_i + r_j)).

    Row ``k`` of `band` belongs to node ``start + k``; its column 0 to node `start`.
    """
    n_nodes = len(shift)
    step = theta.dtype.type(rate)
    zero = theta.dtype.type(0)
    one = theta.dtype.type(1)
    for k in range(band.shape[0]):
        i = start + k
        packed = theta[offsets[i] : offsets[i + 1]]
        gradient = band[k, k + 1 :]
        column_shift = shift[i + 1 : n_nodes]
        own = shift[i]
        for j in range(len(packed)):
            value = packed[j] - step * (gradient[j] + own + column_shift[j])
            packed[j] = min(max(value, zero), one)


@njit(cache=True)
def merge(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Union of two sorted arrays, in either of which a value may be repeated."""
    merged = np.empty(len(first) + len(second), np.int64)
    n_merged = i = j = 0
    while i < len(first) or j < len(second):
        if j == len(second) or (i < len(first) and first[i] <= second[j]):
            value = first[i]
            i += 1
        else:
            value = second[j]
            j += 1
        if n_merged == 0 or merged[n_merged - 1] != value:
            merged[n_merged] = value
            n_merged += 1
    return merged[:n_merged]


@njit(cache=True, fastmath=_REORDER)
def add_row_products(out: NDArray[Any], first: NDArray[Any], second: NDArray[Any]) -> None:
    """Add the inner product of each row of `first` with the same row of `second`."""
    for i in range(first.shape[0]):
        total = out.dtype.type(0)
        for j in range(first.shape[1]):
            total += first[i, j] * second[i, j]
        out[i] += total


@njit(cache=True)
def add_columns(band: NDArray[Any], columns: NDArray[np.int64], block: NDArray[Any]) -> None:
    """``band[:, columns] += block`` without the temporaries of fancy indexing."""
    for i in range(block.shape[0]):
        for c in range(len(columns)):
            band[i, columns[c]] += block[i, c]


@njit(cache=True)
def add_rows(band: NDArray[Any], rows: NDArray[np.int64], block: NDArray[Any]) -> None:
    """``band[rows] += block`` without the temporaries of fancy indexing."""
    for r in range(len(rows)):
        target = band[rows[r]]
        source = block[r]
        for j in range(block.shape[1]):
            target[j] += source[j]


@njit(cache=True, fastmath=_REORDER)
def add_at_pairs(
    out: NDArray[Any],
    rows: NDArray[np.int64],
    cols: NDArray[np.int64],
    position: NDArray[np.int64],
    left: NDArray[Any],
    right: NDArray[Any],
) -> None:
    """Add ``G_ij + G_ji`` of ``G = left right'`` at the given pairs.

    `left` holds only some rows: that of node i is ``left[position[i]]``, absent where negative.
    """
    for e in range(len(rows)):
        total = out.dtype.type(0)
        for i, j in ((rows[e], cols[e]), (cols[e], rows[e])):
            if position[i] >= 0:
                u = left[position[i]]
                v = right[j]
                for c in range(len(u)):
                    total += u[c] * v[c]
        out[e] += total


@njit(cache=True)
def unpack(
    positions: NDArray[np.int64], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns of sorted positions in the packed strict upper triangle."""
    rows = np.empty(len(positions), np.int64)
    cols = np.empty(len(positions), np.int64)
    row = 0
    for k in range(len(positions)):
        while positions[k] >= offsets[row + 1]:
            row += 1
        rows[k] = row
        cols[k] = positions[k] - offsets[row] + row + 1
    return rows, cols


@njit(cache=True)
def incidence(
    rows: NDArray[np.int64], cols: NDArray[np.int64], n_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each node, the positions of its pairs and their other nodes; see `pairs.Incidence`."""
    start = np.zeros(n_nodes + 1, np.int64)
    for e in range(len(rows)):
        start[rows[e] + 1] += 1
        start[cols[e] + 1] += 1
    for i in range(n_nodes):
        start[i + 1] += start[i]
    cursor = start[:-1].copy()
    slots = np.empty(2 * len(rows), np.int64)
    others = np.empty(2 * len(rows), np.int64)
    for e in range(len(rows)):
        for i, j in ((rows[e], cols[e]), (cols[e], rows[e])):
            slots[cursor[i]] = e
            others[cursor[i]] = j
            cursor[i] += 1
    return start, slots, others


@njit(cache=True)
def exclude_neighbours(
    tile: NDArray[Any],
    rows: NDArray[np.int64],
    start: int,
    neighbour_start: NDArray[np.int64],
    neighbours: NDArray[np.int64],
) -> None:
    """Set to infinity the entries of a tile whose row and column are neighbours, or the same.

    Row ``k`` of the tile belongs to node ``rows[k]``, its column ``c`` to node ``start + c``.
    """
    for k in range(len(rows)):
        i = rows[k]
        if 0 <= i - start < tile.shape[1]:
            tile[k, i - start] = np.inf
        for at in range(neighbour_start[i], neighbour_start[i + 1]):
            column = neighbours[at] - start
            if 0 <= column < tile.shape[1]:
                tile[k, column] = np.inf


@njit(cache=True)
def collect_from_tile(
    tile: NDArray[Any],
    shift: NDArray[Any],
    rows: NDArray[np.int64],
    start: int,
    is_row: NDArray[np.bool_],
    below: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """The pairs of a tile (see `exclude_neighbours`) with ``tile_kc + r_i + r_j`` below a bound.

    A pair of two nodes that have rows, in this tile or another, is taken only in that of the
    smaller node.
    """
    bound = tile.dtype.type(below)
    count = np.int64(0)
    for k in range(tile.shape[0]):
        own = shift[rows[k]]
        for c in range(tile.shape[1]):
            count += np.int64(tile[k, c] + (own + shift[start + c]) < bound)
    first = np.empty(count, np.int64)
    second = np.empty(count, np.int64)
    values = np.empty(count, tile.dtype)
    at = 0
    for k in range(tile.shape[0]):
        i = rows[k]
        own = shift[i]
        for c in range(tile.shape[1]):
            value = tile[k, c] + (own + shift[start + c])
            if value < bound:
                j = start + c
                if i < j or not is_row[j]:
                    first[at], second[at], values[at] = min(i, j), max(i, j), value
                    at += 1
    return first[:at], second[:at], values[:at]


@njit(cache=True)
def smallest_sums(
    ascending: NDArray[Any], below: float, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places a < b of sorted values whose sums are below a bound, the smallest `count` among them.

    Left out are only places with `count` others, at most as far right each, before them.
    """
    bound = ascending.dtype.type(below)
    n_values = len(ascending)
    n_found = 0
    for counting in (True, False):
        if not counting:
            first = np.empty(n_found, np.int64)
            second = np.empty(n_found, np.int64)
            n_found = 0
        for a in range(n_values - 1):
            if not ascending[a] + ascending[a + 1] < bound or (a + 1) * (a + 2) // 2 > count:
                break
            for b in range(a + 1, n_values):
                # Pairs up to (a, b): for each place up to a, those right of it up to b.
                n_before = (a + 1) * b - a * (a + 1) // 2
                if not ascending[a] + ascending[b] < bound or n_before > count:
                    break
                if not counting:
                    first[n_found], second[n_found] = a, b
                n_found += 1
    return first, second


@njit(cache=True, fastmath=_REORDER)
def entries_of_product(
    left: NDArray[Any],
    right: NDArray[Any],
    rows: NDArray[np.int64],
    cols: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """The entries (rows[e], cols[e]) of ``left right'``."""
    for e in range(len(rows)):
        u = left[rows[e]]
        v = right[cols[e]]
        total = out.dtype.type(0)
        for c in range(len(u)):
            total += u[c] * v[c]
        out[e] = total
