"""Free Music Archive: the 140 MFCC features of the paper, and a small stand-in of 20.

Both are standardised: the paper does not say, but the statistics of MFCCs (a kurtosis, a minimum)
differ by orders of magnitude, and euclidean neighbours would be those of two or three columns.
"""

from __future__ import annotations

import io
import zipfile
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from edgewise.datasets.dataset import Table
from edgewise.datasets.files import RemoteFile, derived, open_verified, read_verified
from edgewise.datasets.tables import standardise

FMA_FILE = RemoteFile(
    path="fma/fma_metadata.zip",
    # The README of mdeff/fma publishes the SHA-1, and no other checksum.
    digest="f0df49ffe5f2a6008d7dc83c6915b31835dfe733",
    url="https://os.unil.cloud.switch.ch/fma/fma_metadata.zip",
    home="github.com/mdeff/fma",
    algorithm="sha1",
    max_bytes=400 << 20,
)
FMA20_FILE = RemoteFile(
    path="fma20/fma_small_mfccmean20.npz",
    digest="6a2363a8b2c3c3b7076613e7d760dea0b7c365353a2307e64f0c5213fb0f7089",
    url=None,
    home="github.com/philipc02/musicmap-gnn",
)
FEATURES = "fma_metadata/features.csv"
TRACKS = "fma_metadata/tracks.csv"
MAX_MEMBER_BYTES = 2 << 30
N_MFCC = 140
DERIVED_NAME = f"fma-mfcc-1-{FMA_FILE.digest[:8]}"
# Clips of fma_small shorter than two seconds, listed in the wiki of mdeff/fma: 8,000 less these are
# the 7,994 of the paper.
TOO_SHORT = frozenset({98565, 98567, 98569, 99134, 108925, 133297})


def _read_csv(archive: zipfile.ZipFile, member: str, **options: Any) -> pd.DataFrame:
    """Parse one table straight from the archive; nothing is ever extracted to a folder."""
    try:
        info = archive.getinfo(member)
    except KeyError:
        raise ValueError(
            f"the FMA archive holds no {member}, only {archive.namelist()[:10]}. Remedy: use the "
            f"original fma_metadata.zip from {FMA_FILE.home}."
        ) from None
    # ZipFile reads no more than the size declared here, so this bounds what is unpacked.
    if info.file_size > MAX_MEMBER_BYTES:
        raise ValueError(
            f"{member} in the FMA archive would unpack to {info.file_size:,} bytes, more than the "
            f"{MAX_MEMBER_BYTES:,} admitted; it was not read."
        )
    with archive.open(info) as stream:
        table: pd.DataFrame = pd.read_csv(stream, header=None, **options)
    return table


def _header(archive: zipfile.ZipFile, member: str, n_rows: int) -> NDArray[np.object_]:
    """The header rows of a table; the row after them names the index, ``track_id``."""
    top = _read_csv(archive, member, nrows=n_rows + 1, dtype=str, keep_default_na=False)
    if top.iat[n_rows, 0] != "track_id":
        raise ValueError(
            f"{member} does not have the layout of the FMA: row {n_rows + 1} should start with "
            f"'track_id', not {top.iat[n_rows, 0]!r}"
        )
    return np.asarray(top.iloc[:n_rows], dtype=object)


def _position(header: NDArray[np.object_], *names: str) -> int:
    found = np.flatnonzero((np.array(names, dtype=object) == header.T).all(axis=1))
    if len(found) != 1:
        raise ValueError(f"{TRACKS} has {len(found)} columns {'.'.join(names)}, expected one")
    return int(found[0])


def _small_tracks(archive: zipfile.ZipFile) -> pd.Series[str]:
    """Genre of each track of the subset `small`, by track number."""
    header = _header(archive, TRACKS, 2)
    subset, genre = _position(header, "set", "subset"), _position(header, "track", "genre_top")
    tracks = _read_csv(archive, TRACKS, skiprows=3, usecols=[0, subset, genre]).set_index(0)
    chosen = (tracks[subset] == "small") & tracks[genre].notna() & ~tracks.index.isin(TOO_SHORT)
    genres: pd.Series[str] = tracks.loc[chosen, genre].sort_index()
    return genres


def read_metadata(handle: BinaryIO) -> dict[str, NDArray[Any]]:
    """MFCC features and genres of FMA-small from an ``fma_metadata.zip``.

    Parameters
    ----------
    handle : the archive, opened for reading; holds ``features.csv`` (three header rows: feature,
        statistics, number) and ``tracks.csv`` (two header rows), each followed by an index row.

    Returns
    -------
    dict of ndarray
        ``features`` (n_tracks, 140), ``labels``, ``classes``, ``feature_names``, ``track_id``;
        tracks in the order of their numbers.
    """
    with zipfile.ZipFile(handle) as archive:
        genres = _small_tracks(archive)
        header = _header(archive, FEATURES, 3)
        columns = np.flatnonzero(header[0] == "mfcc")
        if len(columns) != N_MFCC:
            raise ValueError(f"{FEATURES} has {len(columns)} mfcc columns, expected {N_MFCC}")
        options = {"skiprows": 4, "usecols": [0, *columns], "index_col": 0}
        table = _read_csv(archive, FEATURES, **options).reindex(genres.index)
    table = table[np.isfinite(table.to_numpy()).all(axis=1)]  # a track without features is left out
    classes, labels = np.unique(genres[table.index].to_numpy(dtype=str), return_inverse=True)
    return {
        "features": table.to_numpy(dtype=np.float32),
        "labels": labels.astype(np.int64),
        "classes": classes,
        "feature_names": np.array(["_".join(header[:, column]) for column in columns]),
        "track_id": table.index.to_numpy(dtype=np.int64),
    }


def _table(arrays: dict[str, NDArray[Any]], features: str, labels: str) -> Table:
    return Table(
        features=standardise(arrays[features]),
        labels=arrays[labels].astype(np.int64),
        classes=arrays["classes"],
        feature_names=tuple(str(name) for name in arrays["feature_names"]),
    )


def _build() -> dict[str, NDArray[Any]]:
    with open_verified(FMA_FILE) as handle:
        return read_metadata(handle)


def read_fma() -> Table:
    """FMA-small: 7,994 tracks of eight genres, 140 MFCC features, standardised."""
    return _table(derived(DERIVED_NAME, _build), "features", "labels")


def read_fma20() -> Table:
    """The stand-in for `read_fma`: the same tracks, means of 20 MFCCs, standardised."""
    with np.load(io.BytesIO(read_verified(FMA20_FILE)), allow_pickle=False) as stored:
        return _table(dict(stored), "X", "y")
