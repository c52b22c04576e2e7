"""The few loops that neither PyTorch nor NumPy can express: compiled by Numba, free of any policy.

Every kernel works on plain arrays, keeps no state, and draws no random numbers: what randomness it
needs comes in as an array, so that one `numpy.random.Generator` governs a run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.compiled import njit

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
def guide(cumulative: NDArray[np.float64], before: float, n_entries: int) -> NDArray[np.int32]:
    """Where to look on a line of cumulated masses cut into `n_entries` pieces of equal length.

    Entry g is the first block that ends beyond the start of piece g. The line begins at `before`.
    """
    entries = np.zeros(n_entries, np.int32)
    if len(cumulative) == 0:
        return entries
    last = len(cumulative) - 1
    block = 0
    for g in range(n_entries):
        start = before + (cumulative[last] - before) * g / n_entries
        while block < last and cumulative[block] <= start:
            block += 1
        entries[g] = block
    return entries


@njit(cache=True, error_model="numpy")  # there may be points at the end of a line without length
def locate_blocks(
    cumulative: NDArray[np.float64],
    before: float,
    guide: NDArray[np.int32],
    targets: NDArray[np.float64],
) -> NDArray[np.int32]:
    """The first block that ends beyond each point on the line of cumulated masses."""
    blocks = np.empty(len(targets), np.int32)
    if len(targets) == 0:  # perhaps because there is no mass at all
        return blocks
    last = len(cumulative) - 1
    pieces = len(guide) / (cumulative[last] - before)
    for k in range(len(targets)):
        piece = int((targets[k] - before) * pieces)
        block = guide[min(max(piece, 0), len(guide) - 1)]
        while block > 0 and cumulative[block - 1] > targets[k]:  # rounding at a piece's start
            block -= 1
        while block < last and cumulative[block] <= targets[k]:
            block += 1
        blocks[k] = block
    return blocks


@njit(cache=True, fastmath=_REORDER)
def _unlikely_mass(values: NDArray[Any], start: int, stop: int) -> float:
    total = 0.0
    for e in range(start, stop):
        value = np.float64(values[e])
        total += value if value <= 0.5 else 0.0
    return total


@njit(cache=True)
def locate(
    values: NDArray[Any],
    bounds: NDArray[np.int64],
    cumulative: NDArray[np.float64],
    before: float,
    blocks: NDArray[np.int32],
    targets: NDArray[np.float64],
    acceptance: NDArray[np.float64],
    rate: float,
) -> NDArray[np.int64]:
    """Turn points on the line of cumulated masses into positions, thinned to the exact intensity.

    The line begins at `before`, with the first block. The points come sorted, with their blocks,
    and so do the positions, some of them perhaps twice. A position e is proposed with intensity
    ``rate * values[e]`` and kept with probability ``-log(1 - values[e]) / (rate * values[e])``.
    """
    # The blocks lie far apart in memory. With nothing to decide in between, the processor asks for
    # many of them at a time; in the scan below it would wait for each.
    heads = np.empty(len(targets), np.float64)
    for k in range(len(targets)):
        first, stop = bounds[blocks[k]], bounds[blocks[k] + 1]
        heads[k] = _unlikely_mass(values, first, first + (stop - first) // 2)
    kept = np.empty(len(targets), np.int64)
    n_kept = 0
    for k in range(len(targets)):
        block = blocks[k]
        first, stop = bounds[block], bounds[block + 1]
        rest = targets[k] - (cumulative[block - 1] if block > 0 else before)
        if rest >= heads[k]:
            rest -= heads[k]
            first += (stop - first) // 2
        for e in range(first, stop):
            value = np.float64(values[e])
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
    degree: NDArray[np.float64],
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    scale: NDArray[Any],
) -> None:
    """Fill the CSR arrays of D~^{-1/2} (A + I) D~^{-1/2} from sorted pairs; `scale` is D~^{-1/2}.

    `weights` has one entry a pair, or none when every edge weighs 1. `degree` holds what there is
    besides the pairs, the self-loop at least, and is added to.
    """
    n_nodes = len(scale)
    weighted = len(weights) > 0
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
def neighbourhood(
    indptr: NDArray[np.int32], indices: NDArray[np.int32], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The columns that some rows of a CSR matrix have entries in, sorted."""
    reached = np.zeros(len(indptr) - 1, np.bool_)
    count = 0
    for k in range(len(rows)):
        for e in range(indptr[rows[k]], indptr[rows[k] + 1]):
            count += not reached[indices[e]]
            reached[indices[e]] = True
    found = np.empty(count, np.int64)
    at = 0
    for i in range(len(reached)):
        if reached[i]:
            found[at] = i
            at += 1
    return found


@njit(cache=True, fastmath=_REORDER)
def rows_of_product(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    rows: NDArray[np.int64],
    dense: NDArray[Any],
) -> NDArray[Any]:
    """``(M dense)[rows]`` for a CSR matrix M."""
    width = dense.shape[1]
    out = np.zeros((len(rows), width), dense.dtype)
    for k in range(len(rows)):
        for e in range(indptr[rows[k]], indptr[rows[k] + 1]):
            value = data[e]
            source = indices[e]
            for c in range(width):
                out[k, c] += value * dense[source, c]
    return out


@njit(cache=True, fastmath=_REORDER)
def product_of_rows(
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: NDArray[Any],
    rows: NDArray[np.int64],
    values: NDArray[Any],
) -> NDArray[Any]:
    """``M dense`` for a symmetric CSR matrix M and a `dense` that is zero but on `rows`."""
    width = values.shape[1]
    out = np.zeros((len(indptr) - 1, width), values.dtype)
    for k in range(len(rows)):
        for e in range(indptr[rows[k]], indptr[rows[k] + 1]):
            value = data[e]
            target = indices[e]
            for c in range(width):
                out[target, c] += value * values[k, c]
    return out


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
def add_row_products(
    out: NDArray[Any], rows: NDArray[np.int64], first: NDArray[Any], second: NDArray[Any]
) -> None:
    """``out[rows[k]] += <first[k], second[k]>``."""
    for k in range(len(rows)):
        total = out.dtype.type(0)
        for c in range(first.shape[1]):
            total += first[k, c] * second[k, c]
        out[rows[k]] += total


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
def undecided(
    nodes: NDArray[np.int64],
    start: NDArray[np.int64],
    slots: NDArray[np.int64],
    decided: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Pairs of some nodes (see `incidence`) that are not decided yet; from now on they are."""
    room = 0
    for i in nodes:
        room += start[i + 1] - start[i]
    found = np.empty(room, np.int64)
    n_found = 0
    for i in nodes:
        for at in range(start[i], start[i + 1]):
            if not decided[slots[at]]:
                decided[slots[at]] = True
                found[n_found] = slots[at]
                n_found += 1
    return found[:n_found]


@njit(cache=True)
def newly_reached(
    nodes: NDArray[np.int64],
    start: NDArray[np.int64],
    slots: NDArray[np.int64],
    others: NDArray[np.int64],
    open_pairs: NDArray[np.bool_],
    reached: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """Nodes joined to some nodes by open pairs, and not reached yet; from now on they are."""
    found = np.empty(len(reached), np.int64)
    n_found = 0
    for i in nodes:
        for at in range(start[i], start[i + 1]):
            j = others[at]
            if open_pairs[slots[at]] and not reached[j]:
                reached[j] = True
                found[n_found] = j
                n_found += 1
    return found[:n_found].copy()


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
