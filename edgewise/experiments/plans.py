"""What to run for each table and figure of the paper: ordered lists of runs, and their grids.

The order is that of usefulness: should time run out, the tables hold the cells that tell most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, NamedTuple, TypeAlias

from edgewise.experiments.protocol import Labels, Record, Run, choose, trial_labels

GridName: TypeAlias = Literal["full", "reduced", "default"]
#: Values to try of each parameter, all combinations of them.
Space: TypeAlias = Mapping[str, tuple[Any, ...]]
#: A union of spaces.
Grid: TypeAlias = tuple[Space, ...]

SEEDS = 5
RANDOM_SPLITS = 10
KEPT_EDGES = (0.25, 0.5, 0.75, 1.0)
TAUS = (0, 1, 5, 20)
CITATION = ("cora", "citeseer")
# 20 newsgroups and the music take longest, so they come last. The paper's FMA needs a file that is
# not freely at hand; `fma20` is a stand-in with other features, and so a column of its own.
TABLE1_DATASETS = ("wine", "cancer", "digits", "cora", "citeseer", "20news", "fma20")
EDGES_METHODS = ("gcn", "gcn-rnd", "lds")
# The rival first, then what the paper is about, then the rest of its table by falling interest.
TABLE1_METHODS = (
    "knn-gcn",
    "knn-lds",
    "soft-knn-gcn",
    "logreg",
    "linear-svm",
    "rbf-svm",
    "rf",
    "ffnn",
    "lp",
    "manireg",
    "semiemb",
    "sparse-gcn",
    "dense-gcn",
    "rbf-gcn",
    "knn-lds-dense",
)
LARGE = ("20news", "fma20", "fma")
TRACES = ("probabilities", "histograms", "misclassified", "embeddings")

_RATES: Space = {"learning_rate": (0.01, 0.02)}
_BOTH_METRICS: Space = {"metric": ("euclidean", "cosine")}
_COSINE: Space = {"metric": ("cosine",)}
_EUCLIDEAN: Space = {"metric": ("euclidean",)}
_ROUGH: Space = {"smoothness": (0.01, 0.1)}
_MANIFOLD: Space = {"k": (10,), "ridge": (1e-2,), "smoothness": (1.0, 10.0, 100.0)}
_LDS: Space = {"tau": (5,), "outer_learning_rate": (1.0,), "inner_learning_rate": (0.02,)}
# The paper waits 20 outer iterations for a better early-stopping accuracy.
_IMPATIENT: Space = {"patience": (5,)}

# The stated smaller grid: what fits a night on two processors, where the paper's takes weeks.
_REDUCED: Mapping[str, Grid] = {
    "logreg": ({"C": (0.01, 0.1, 1.0, 10.0, 100.0)},),
    "linear-svm": ({"C": (0.01, 0.1, 1.0, 10.0, 100.0)},),
    "rbf-svm": ({"C": (1.0, 10.0, 100.0), "gamma_scale": (0.1, 1.0, 10.0)},),
    "rf": ({"n_estimators": (300,), "max_features": ("sqrt", "log2"), "max_depth": (None, 10)},),
    "ffnn": ({"learning_rate": (0.005, 0.01, 0.02)},),
    "lp": (
        {"kernel": ("rbf",), "gamma_scale": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)},
        {"kernel": ("knn",), "k": (5, 10, 20)},
    ),
    "manireg": (
        {"kernel": ("rbf",), **_MANIFOLD, **_BOTH_METRICS, "gamma_scale": (0.3, 1.0)},
        {"kernel": ("linear",), **_MANIFOLD, **_BOTH_METRICS},
        # Many labels, and classes of different size, ask for less smoothness.
        {"kernel": ("rbf",), **_MANIFOLD, **_ROUGH, **_EUCLIDEAN, "gamma_scale": (1.0,)},
        {"kernel": ("linear",), **_MANIFOLD, **_ROUGH, **_EUCLIDEAN},
    ),
    "semiemb": (
        {
            "k": (10, 20),
            **_BOTH_METRICS,
            "embedding_weight": (1.0, 10.0, 100.0),
            "learning_rate": (0.02,),
        },
    ),
    "sparse-gcn": ({"expected_degree": (1.0, 5.0), **_RATES},),
    "dense-gcn": ({"learning_rate": (0.005, 0.01, 0.02)},),
    "rbf-gcn": ({"gamma_scale": (1.0, 10.0, 100.0), "learning_rate": (0.02,)},),
    "knn-gcn": ({"k": (3, 5, 10, 20), **_BOTH_METRICS, **_RATES},),
    "gcn": ({"learning_rate": (0.005, 0.01, 0.02)},),
    "gcn-rnd": ({"share": (0.1, 0.3, 1.0), "learning_rate": (0.01,)},),
    "soft-knn-gcn": ({"expected_degree": (4.0, 7.0, 15.0), "scale": (10.0, 20.0)},),
    "lds": ({**_LDS, "inner_learning_rate": (0.02, 0.01), **_IMPATIENT},),
    "knn-lds": ({"k": (10, 20), **_BOTH_METRICS, **_LDS, **_IMPATIENT},),
    "knn-lds-dense": ({"k": (10,), **_COSINE, **_LDS, **_IMPATIENT},),
}
# Parameters that mean nothing under a kernel.
_UNUSED = {("lp", "rbf"): "k", ("lp", "knn"): "gamma_scale", ("manireg", "linear"): "gamma_scale"}
# Where runs are cheap the grid can be larger, and the patience the paper's.
_TINY_LDS: Space = {"k": (10, 20), **_BOTH_METRICS, **_LDS, "inner_learning_rate": (0.01, 0.02)}
_REDUCED_FOR: Mapping[tuple[str, str], Grid] = {
    **{("knn-lds", name): (_TINY_LDS,) for name in ("wine", "cancer")},
    **{("knn-lds-dense", name): (_TINY_LDS,) for name in ("wine", "cancer")},
    ("knn-lds-dense", "digits"): ({"k": (10,), **_BOTH_METRICS, **_LDS, **_IMPATIENT},),
    # A system of as many equations as rows takes a minute there.
    **{
        ("manireg", name): (
            {"kernel": ("rbf",), **_MANIFOLD, **_COSINE, "gamma_scale": (0.3,)},
            {"kernel": ("linear",), **_MANIFOLD, **_COSINE},
        )
        for name in ("20news", "fma20")
    },
    **{
        ("knn-lds", name): ({"k": (10,), **_COSINE, **_LDS, **_IMPATIENT},)
        for name in ("20news", "fma20")
    },
}


def settings(method: str, dataset: str, grid: GridName = "reduced") -> list[dict[str, Any]]:
    """Return the parameters to try, most usual first.

    Parameters
    ----------
    method, dataset : str
    grid : {"full", "reduced", "default"}
        "full" is the paper's; "reduced" a smaller one; "default" the defaults alone, untuned.

    Returns
    -------
    list of dict

    Examples
    --------
    >>> settings("gcn", "cora")
    [{'learning_rate': 0.005}, {'learning_rate': 0.01}, {'learning_rate': 0.02}]
    >>> settings("gcn", "cora", "default")
    [{}]
    >>> len(settings("knn-lds", "cora", "full"))
    48
    """
    from edgewise.baselines import get_method

    space = get_method(method).search_space
    if grid == "default":
        return [{}]
    if grid == "full":
        return _combinations(_full(method, space))
    if grid != "reduced":
        raise ValueError(f"there is no grid {grid!r}: use 'full', 'reduced' or 'default'")
    return _combinations(_REDUCED_FOR.get((method, dataset), _REDUCED[method]))


def _full(method: str, space: Space) -> Grid:
    """The whole search space; a parameter that a kernel does not have is not varied under it."""
    if "kernel" not in space:
        return (space,)
    return tuple(
        {
            "kernel": (kernel,),
            **{
                name: values
                for name, values in space.items()
                if name not in ("kernel", _UNUSED.get((method, kernel)))
            },
        }
        for kernel in space["kernel"]
    )


def _combinations(grid: Grid) -> list[dict[str, Any]]:
    return [
        dict(zip(space, values, strict=True))
        for space in grid
        for values in product(*space.values())
    ]


@dataclass(frozen=True)
class Selection:
    """Which part of a plan to run.

    Attributes
    ----------
    seeds : int, the seeds 0, 1, ..., or None for the plan's own number
    datasets, methods : tuple of str, or None for those of the plan
    grid : {"full", "reduced", "default"}
    """

    seeds: int | None = None
    datasets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    grid: GridName = "reduced"


def plan(what: str, selection: Selection | None = None) -> list[Run]:
    """Return the runs of one table or figure, at the paper's label budget, most useful first.

    Parameters
    ----------
    what : str, one of `PLANS`
    selection : Selection, optional; by default everything, with the reduced grid

    Returns
    -------
    list of Run, each once

    Examples
    --------
    >>> runs = plan("edges", Selection(seeds=1, datasets=("cora",), methods=("gcn",)))
    >>> len(runs), runs[0].method, dict(runs[0].variant)
    (12, 'gcn', {'keep_edges': 0.25})
    """
    if what not in PLANS:
        raise ValueError(f"there is no plan for {what!r}; there are plans for {', '.join(PLANS)}")
    return list(dict.fromkeys(PLANS[what](selection or Selection())))


def _check_names(selection: Selection) -> None:
    from edgewise.baselines import get_method
    from edgewise.datasets import available

    for name in selection.methods or ():
        get_method(name)  # which says what is known
    for name in selection.datasets or ():
        if name not in available():
            raise ValueError(f"there is no data set {name!r}; known are {', '.join(available())}")


def _listed(names: tuple[str, ...] | None) -> str:
    return "of its own" if names is None else ", ".join(names)


def _grid_of_runs(
    selection: Selection,
    datasets: Sequence[str],
    methods: Sequence[str],
    variants: Sequence[Mapping[str, Any]] = ({},),
    seeds: int = SEEDS,
) -> Iterable[Run]:
    number = seeds if selection.seeds is None else selection.seeds
    for dataset in _kept(datasets, selection.datasets):
        for method in _kept(methods, selection.methods):
            for parameters in settings(method, dataset, selection.grid):
                for variant, seed in product(variants, range(number)):
                    yield Run(method, dataset, parameters, seed, variant=variant)


def _kept(names: Sequence[str], wanted: tuple[str, ...] | None) -> list[str]:
    return [name for name in names if wanted is None or name in wanted]


def _edges(selection: Selection) -> Iterable[Run]:
    variants = [{"keep_edges": share} for share in KEPT_EDGES]
    return _grid_of_runs(selection, CITATION, EDGES_METHODS, variants)


def _edge_counts(selection: Selection) -> Iterable[Run]:
    return (run for run in _edges(selection) if run.method == "lds")


def _table1(selection: Selection) -> Iterable[Run]:
    # Asked for by name, and with its file at hand, the paper's own FMA can be run.
    asked = ("fma",) if "fma" in (selection.datasets or ()) else ()
    return _grid_of_runs(selection, (*TABLE1_DATASETS, *asked), TABLE1_METHODS)


def _tau(selection: Selection) -> Iterable[Run]:
    """Runs of LDS on Citeseer for every tau; reduced, with the first rates of the grid alone."""
    tuned = settings("lds", "citeseer", selection.grid)
    others = [{**parameters, "tau": None} for parameters in tuned]
    others = [parameters for i, parameters in enumerate(others) if parameters not in others[:i]]
    if selection.grid == "reduced":
        others = others[:1]
    variants = [{"keep_edges": share} for share in KEPT_EDGES]
    untuned = replace(selection, grid="default")
    for parameters in others:
        for run in _grid_of_runs(untuned, ("citeseer",), ("lds",), variants):
            yield from (replace(run, parameters={**parameters, "tau": tau}) for tau in TAUS)


def _random_splits(selection: Selection) -> Iterable[Run]:
    return _grid_of_runs(
        selection, CITATION, EDGES_METHODS, [{"split": "random"}], seeds=RANDOM_SPLITS
    )


#: The tables and figures that are made of runs in the store.
PLANS: Mapping[str, Callable[[Selection], Iterable[Run]]] = {
    "edges": _edges,
    "table1": _table1,
    "tau": _tau,
    "edge-counts": _edge_counts,
    "random-splits": _random_splits,
}
# Those that a comparison at equal label budget is about.
COMPARISONS = ("edges", "table1", "random-splits")
EVERYTHING = (*PLANS, "equal", *TRACES, "datasets", "all")


class EqualRuns(NamedTuple):
    """The runs at equal label budget that can be made now, and how many must wait for others."""

    runs: list[Run]
    waiting: int


def equal_runs(tuned: Iterable[Run], records: Iterable[Record]) -> EqualRuns:
    """Return the runs at equal label budget.

    They are those at the paper's, with the other budget: parameters are chosen anew, as many labels
    may ask for others than few. Only LDS is judged alike at both budgets (see
    `protocol.trial_labels`), so that it runs its chosen settings alone, once a seed.

    Parameters
    ----------
    tuned : iterable of Run, those that the hyperparameters are chosen among
    records : iterable of Record

    Returns
    -------
    EqualRuns

    Examples
    --------
    >>> tuned = [Run("lds", "cora", {"tau": tau}) for tau in (5, 16)]
    >>> done = [Record(run, accuracies={"early_stopping": run.parameters["tau"] / 100})
    ...         for run in tuned]
    >>> equal_runs(tuned, done[:1])
    EqualRuns(runs=[], waiting=1)
    >>> equal_runs(tuned, done).runs[0].parameters, equal_runs(tuned, done).runs[0].labels
    (Settings({"tau":16}), 'equal')
    >>> [run.labels for run in equal_runs([Run("gcn", "cora")], []).runs]
    ['equal']
    """
    known = {record.key: record for record in records}
    groups: dict[tuple[Any, int], list[Run]] = {}
    for run in tuned:
        groups.setdefault((run.cell, run.seed), []).append(run)
    runs, waiting = [], 0
    for group in groups.values():
        if trial_labels(group[0].method, "equal") == "equal":
            runs += [replace(run, labels="equal") for run in group]
            continue
        found = [known[run.key] for run in group if run.key in known]
        if len(found) < len(group):
            waiting += 1
            continue
        for choice in choose(found).values():  # none, if all of them failed
            key = choice.keys[group[0].seed]
            runs.append(replace(known[key].run, labels="equal"))
    return EqualRuns(runs, waiting)


class Stage(NamedTuple):
    """Runs to be made together.

    Attributes
    ----------
    runs : list of Run, at the paper's label budget
    equal : bool, whether `equal_runs` follow
    """

    runs: list[Run]
    equal: bool


def stages(what: str, selection: Selection | None = None, labels: Labels = "paper") -> list[Stage]:
    """Return what to run, one stage after the other, for a table or figure, or for all of them.

    Parameters
    ----------
    what : str, one of `EVERYTHING`
    selection : Selection, optional; by default everything, with the reduced grid
    labels : {"paper", "equal"}

    Returns
    -------
    list of Stage; empty for what is not made of runs in the store

    Examples
    --------
    >>> [(len(stage.runs), stage.equal) for stage in stages("tau", Selection(seeds=1))]
    [(16, False)]
    >>> stages("datasets")
    []
    """
    if what not in EVERYTHING:
        raise ValueError(f"there is no {what!r}; there are {', '.join(EVERYTHING)}")
    chosen = selection or Selection()
    _check_names(chosen)
    if labels == "equal" and what not in (*COMPARISONS, "equal", "all"):
        raise ValueError(f"{what} is at the paper's label budget; leave out labels='equal'")
    if what in (*TRACES, "datasets"):
        return []
    found = [stage for stage in _stages(what, chosen, labels) if stage.runs]
    if not found:
        raise ValueError(
            f"{what} holds no runs of methods {_listed(chosen.methods)} "
            f"on data sets {_listed(chosen.datasets)}"
        )
    return found


def _stages(what: str, selection: Selection, labels: Labels) -> list[Stage]:
    if what in PLANS:
        return [Stage(plan(what, selection), labels == "equal")]
    table1 = plan("table1", selection)
    small = [run for run in table1 if run.dataset not in LARGE]
    large = [run for run in table1 if run.dataset in LARGE]
    tau = [Stage(plan("tau", selection), False)] if what == "all" else []
    return [
        Stage([*plan("edges", selection), *small], True),
        *tau,
        Stage(plan("random-splits", selection), True),
        Stage(large, True),
    ]
