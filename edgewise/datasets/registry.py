"""The data sets by name: what they are, how they are read, how their rows are split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from edgewise.datasets import fma, newsgroups
from edgewise.datasets.dataset import Dataset, Statistics, Table
from edgewise.datasets.files import RemoteFile, derived_path, find
from edgewise.datasets.planetoid import planetoid_files, read_planetoid
from edgewise.datasets.splits import halve, random_public_sizes, stratified_split
from edgewise.datasets.tables import read_cancer, read_digits, read_wine


@dataclass(frozen=True)
class _Entry:
    """How a data set is made, and its known figures, so that listing reads no file."""

    about: str
    figures: Statistics
    read: Callable[[], Table]
    files: tuple[RemoteFile, ...] = ()
    derived: str | None = None  # the cached arrays that stand in for the files

    def at_hand(self) -> bool:
        if self.derived is not None and derived_path(self.derived).is_file():
            return True
        return all(find(file) is not None for file in self.files)


def _citation(about: str, figures: Statistics) -> _Entry:
    files = tuple(planetoid_files(figures.name).values())
    return _Entry(about, figures, partial(read_planetoid, figures.name), files)


# Statistics: name, nodes, features, classes, edges, train, validation, early_stopping, test.
_ENTRIES = (
    _Entry(
        "wines of three cultivars by their chemistry; standardised",
        Statistics("wine", 178, 13, 3, None, 10, 10, 10, 148),
        read_wine,
    ),
    _Entry(
        "breast tumours, malignant or benign (Wisconsin); standardised",
        Statistics("cancer", 569, 30, 2, None, 10, 10, 10, 539),
        read_cancer,
    ),
    _Entry(
        "handwritten digits of 8 x 8 pixels; raw",
        Statistics("digits", 1797, 64, 10, None, 50, 50, 50, 1647),
        read_digits,
    ),
    _citation(
        "citations among machine-learning papers; words, rows sum to 1",
        Statistics("cora", 2708, 1433, 7, 5278, 140, 250, 250, 1000),
    ),
    _citation(
        "citations among computer-science papers; words, rows sum to 1",
        Statistics("citeseer", 3327, 3703, 6, 4552, 120, 250, 250, 1000),
    ),
    _citation(
        "citations among diabetes papers; TF-IDF, rows sum to 1",
        Statistics("pubmed", 19717, 500, 3, 44324, 60, 250, 250, 1000),
    ),
    _Entry(
        "posts to ten newsgroups; TF-IDF",
        Statistics("20news", 9607, 236, 10, None, 100, 100, 100, 9307),
        newsgroups.read_newsgroups,
        (newsgroups.NEWSGROUPS_FILE,),
        newsgroups.DERIVED_NAME,
    ),
    _Entry(
        "music of eight genres (Free Music Archive, small); 140 MFCC features, standardised",
        Statistics("fma", 7994, 140, 8, None, 160, 160, 160, 7514),
        fma.read_fma,
        (fma.FMA_FILE,),
        fma.DERIVED_NAME,
    ),
    _Entry(
        "the tracks of fma with 20 mean MFCCs only, a stand-in; standardised",
        Statistics("fma20", 7994, 20, 8, None, 160, 160, 160, 7514),
        fma.read_fma20,
        (fma.FMA20_FILE,),
    ),
)
_REGISTRY = {entry.figures.name: entry for entry in _ENTRIES}


@dataclass(frozen=True)
class Description:
    """A line of ``edgewise datasets``.

    Attributes
    ----------
    statistics : Statistics
    about : what the data are and how they are pre-processed
    at_hand : whether `load` needs no download
    source : where the files come from
    """

    statistics: Statistics
    about: str
    at_hand: bool
    source: str


def available() -> tuple[str, ...]:
    """The names that `load` knows.

    Examples
    --------
    >>> from edgewise.datasets import available
    >>> available()
    ('wine', 'cancer', 'digits', 'cora', 'citeseer', 'pubmed', '20news', 'fma', 'fma20')
    """
    return tuple(_REGISTRY)


def describe() -> tuple[Description, ...]:
    """What each data set is and whether it is at hand; reads and downloads nothing.

    Examples
    --------
    >>> from edgewise.datasets import describe
    >>> wine = describe()[0]
    >>> wine.statistics.name, wine.statistics.nodes, wine.at_hand, wine.source
    ('wine', 178, True, 'ships with scikit-learn')
    """
    return tuple(
        Description(
            statistics=entry.figures,
            about=entry.about,
            at_hand=entry.at_hand(),
            source=entry.files[0].home if entry.files else "ships with scikit-learn",
        )
        for entry in _ENTRIES
    )


def load(name: str, *, seed: int = 0, random_split: int | None = None) -> Dataset:
    """Load a data set with the paper's pre-processing and the paper's split of this seed.

    Tables are split at random, stratified by class. Citation graphs have their public split, whose
    validation rows the seed halves at random.

    Parameters
    ----------
    name : one of `available()`
    seed : int
        decides the split of a table, and the halves of the validation rows of a citation graph.
    random_split : int, optional
        number of a random split that replaces the public one of a citation graph, of the same
        sizes: 20 a class to train, 500 to validate (halved by `seed`), 1,000 to test.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        if the name is unknown, or `random_split` is asked of a data set without a public split.
    DataUnavailableError
        if a file is neither at hand nor downloadable.
    ChecksumError
        if a file is not the one that was published.

    Examples
    --------
    >>> from edgewise.datasets import load
    >>> wine = load("wine", seed=1)
    >>> wine.features.shape, wine.split.train.shape, wine.test.shape
    ((178, 13), (10,), (148,))
    """
    if name not in _REGISTRY:
        raise ValueError(f"there is no data set {name!r}; known are {', '.join(available())}")
    entry = _REGISTRY[name]
    if random_split is not None and entry.figures.edges is None:
        raise ValueError(
            f"{name} has no public split that random_split could replace: its split is random "
            "already. Remedy: choose it with seed."
        )
    table = entry.read()
    if table.public is None:
        split, test = stratified_split(table.labels, entry.figures.train, seed)
    else:
        train, validation, test = (
            table.public
            if random_split is None
            else random_public_sizes(table.labels, random_split)
        )
        split = halve(train, validation, seed)
    return Dataset(
        name=name,
        features=table.features,
        labels=table.labels,
        classes=table.classes,
        pairs=table.pairs,
        split=split,
        test=test,
        feature_names=table.feature_names,
    )
