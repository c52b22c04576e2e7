from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import zipfile

import numpy as np
import pytest

from edgewise.datasets import ChecksumError, describe, fma, load
from edgewise.datasets.fma import FEATURES, TRACKS, read_fma20, read_metadata

STATISTICS = ("kurtosis", "max", "mean", "median", "min", "skew", "std")
BLOCKS = (("chroma_cens", 12), ("mfcc", 20), ("zcr", 1))
COLUMNS = [
    (block, statistic, f"{number:02d}")
    for block, count in BLOCKS
    for statistic in STATISTICS
    for number in range(1, count + 1)
]
MFCC = [position for position, column in enumerate(COLUMNS) if column[0] == "mfcc"]
# track, subset, genre; 98565 is one of the clips that are too short
TRACK_ROWS = [
    (2, "small", "Hip-Hop"),
    (3, "medium", "Hip-Hop"),
    (5, "small", "Folk"),
    (10, "small", ""),
    (20, "large", ""),
    (140, "small", "Folk"),
    (98565, "small", "Folk"),
    (155000, "small", "Rock"),
]
VALUES = np.random.default_rng(0).normal(size=(len(TRACK_ROWS), len(COLUMNS))).astype(np.float32)


def as_csv(rows) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def features_csv() -> str:
    header = [
        [name, *(column[level] for column in COLUMNS)]
        for level, name in enumerate(("feature", "statistics", "number"))
    ]
    index = [["track_id", *([""] * len(COLUMNS))]]
    rows = [[track[0], *row] for track, row in zip(TRACK_ROWS, VALUES, strict=True)]
    # The order of the rows in the two tables is not relied upon.
    return as_csv(header + index + rows[::-1])


def tracks_csv() -> str:
    header = [
        ["", "album", "album", "set", "set", "track", "track"],
        ["", "comments", "information", "split", "subset", "genre_top", "title"],
        ["track_id", "", "", "", "", "", ""],
    ]
    rows = [
        [track, 0, 'liner "notes",\nin two lines', "training", subset, genre, "a, b"]
        for track, subset, genre in TRACK_ROWS
    ]
    return as_csv(header + rows)


def archive(**members: str) -> io.BytesIO:
    content = {FEATURES: features_csv(), TRACKS: tracks_csv()}
    content |= {f"fma_metadata/{name}.csv": text for name, text in members.items()}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in content.items():
            if text:
                file.writestr(name, text)
    packed.seek(0)
    return packed


def test_mfcc_block_of_the_small_subset():
    arrays = read_metadata(archive())
    assert arrays["track_id"].tolist() == [2, 5, 140, 155000]
    assert arrays["classes"].tolist() == ["Folk", "Hip-Hop", "Rock"]
    assert arrays["labels"].tolist() == [1, 0, 0, 2]
    assert arrays["features"].shape == (4, 140)
    np.testing.assert_allclose(arrays["features"], VALUES[[0, 2, 5, 7]][:, MFCC], rtol=1e-6)
    assert arrays["feature_names"][0] == "mfcc_kurtosis_01"
    assert arrays["feature_names"][-1] == "mfcc_std_20"


def test_track_without_features_is_left_out(monkeypatch):
    holed = VALUES.copy()
    holed[2, MFCC[3]] = np.nan
    monkeypatch.setattr(f"{__name__}.VALUES", holed)
    assert read_metadata(archive())["track_id"].tolist() == [2, 140, 155000]


@pytest.mark.parametrize(
    ("member", "text", "message"),
    [
        ("features", "", "holds no fma_metadata/features.csv"),
        ("tracks", "", "holds no fma_metadata/tracks.csv"),
        ("features", "feature,mfcc\nstatistics,max\nnumber,01\n2,0.5\n", "row 4 should start"),
        ("features", "feature,mfcc\nstatistics,max\nnumber,01\ntrack_id,\n2,0.5\n", "1 mfcc col"),
        ("tracks", ",set\n,split\ntrack_id,\n2,training\n", "0 columns set.subset"),
    ],
)
def test_other_layouts_are_refused(member, text, message):
    with pytest.raises(ValueError, match=message):
        read_metadata(archive(**{member: text}))


def test_oversized_member_is_refused(monkeypatch):
    monkeypatch.setattr(fma, "MAX_MEMBER_BYTES", len(tracks_csv()))
    with pytest.raises(ValueError, match="would unpack to"):
        read_metadata(archive())


def test_load_reads_the_verified_archive_and_keeps_the_arrays(folder, cache, monkeypatch):
    content = archive().getvalue()
    path = folder / fma.FMA_FILE.path
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ChecksumError, match="sha1"):
        load("fma")
    digest = hashlib.sha1(content).hexdigest()
    monkeypatch.setattr(fma, "FMA_FILE", dataclasses.replace(fma.FMA_FILE, digest=digest))
    table = fma.read_fma()
    np.testing.assert_allclose(table.features.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(table.features.std(axis=0), 1, rtol=1e-5)
    path.unlink()
    np.testing.assert_array_equal(fma.read_fma().features, table.features)
    at_hand = {line.statistics.name: line.at_hand for line in describe()}
    assert at_hand["fma"]
    assert not at_hand["fma20"]


@pytest.mark.data
def test_fma20(data_folder):
    table = read_fma20()
    assert table.features.shape == (7994, 20)
    np.testing.assert_allclose(table.features.std(axis=0), 1, rtol=1e-4)
    assert table.classes.tolist()[:3] == ["Electronic", "Experimental", "Folk"]
    assert table.feature_names is not None
    assert table.feature_names[0] == "mfcc_mean_01"
