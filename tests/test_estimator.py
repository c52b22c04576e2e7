"""LDSClassifier as scikit-learn's users know estimators: whatever form the input has, and again."""

from __future__ import annotations

import pickle
import warnings

import joblib
import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from edgewise import LDSClassifier, estimator, memory
from edgewise.graph.construct import knn_pairs, random_pairs
from edgewise.graph.distribution import DenseEdges
from edgewise.graph.sampled import Graph
from edgewise.inputs import EdgewiseWarning
from edgewise.learn import Callback
from edgewise.nn.gcn import GCN
from edgewise.nn.network import Network

QUICK = {"k": 3, "max_outer_iterations": 2, "max_inner_steps": 60, "n_samples": 4}


# Where it is only asked whether two fits are the same, which shows after a few steps.
BRIEF = {"max_outer_iterations": 1, "max_inner_steps": 15}


def make(**parameters):
    return LDSClassifier(**{"random_state": 0, "metric": "euclidean", **QUICK, **parameters})


def problem(n_rows=40, n_classes=2, labelled=15, seed=0):
    """Clusters that are easy to tell apart, with labels for the first rows."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n_rows) % n_classes
    X = rng.normal(size=(n_rows, 4)) + 4 * np.eye(4)[truth]
    y = np.where(np.arange(n_rows) < labelled, truth, -1)
    return X, y, truth


def assert_same(first, second):
    assert_array_equal(first.label_distributions_, second.label_distributions_)
    assert_array_equal(first.edges_.above(0.0)[0], second.edges_.above(0.0)[0])
    assert_array_equal(first.edges_.above(0.0)[1], second.edges_.above(0.0)[1])


# ------------------------------------------------------------------ scikit-learn's contract

# Among the labels of this check is -1, which here, as in scikit-learn's own semi-supervised
# classifiers, says that a row is unlabelled.
EXEMPT = {"check_classifiers_classes": "-1 means unlabelled"}


@parametrize_with_checks(
    [
        LDSClassifier(**QUICK),
        LDSClassifier(**QUICK, storage="sparse"),
    ],
    expected_failed_checks=lambda _: EXEMPT,
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        # The checks leave classes with too few rows for three parts, which is worth a warning.
        warnings.simplefilter("ignore", EdgewiseWarning)
        check(estimator)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_large_values_are_rescaled_for_the_network(layout):
    X, y, _ = problem()
    X = 64 * X / np.sqrt((X**2).sum(axis=1).mean())
    settings = {**BRIEF, "dtype": "float64"}
    unit = make(**settings).fit(layout(X / 64), y)
    model = make(**settings).fit(layout(X), y)
    assert_allclose(model.label_distributions_, unit.label_distributions_, atol=1e-9)
    new = 1.01 * X[:5]
    assert_allclose(model.predict_proba(new), unit.predict_proba(new / 64), atol=1e-9)
    raw = make(rescale=False, **settings).fit(layout(X), y)
    assert not np.allclose(raw.label_distributions_, unit.label_distributions_)


def test_parameters_are_stored_as_given():
    network, callbacks = GCN(3), [Callback()]
    classifier = LDSClassifier(7, network=network, callbacks=callbacks, tau=None)
    assert classifier.get_params()["k"] == 7
    assert classifier.network is network
    assert classifier.callbacks is callbacks
    assert clone(classifier).get_params()["tau"] is None


@pytest.mark.parametrize(
    "parameters",
    [
        {"k": 0},
        {"metric": "taxi"},
        {"tau": -1},
        {"tau": 2.5},
        {"outer_learning_rate": 0.0},
        {"dropout": 1.0},
        {"inner_optimizer": "rprop"},
        {"dtype": "float16"},
        {"patience": 0},
        {"network": "gcn"},
    ],
)
def test_impossible_parameters_are_refused_by_name(parameters):
    X, y, _ = problem()
    with pytest.raises(ValueError, match=f"'{next(iter(parameters))}' parameter"):
        make(**parameters).fit(X, y)


def test_learned_attributes_agree_with_each_other():
    X, y, truth = problem(n_classes=3)
    classifier = make().fit(X, y)
    assert_array_equal(classifier.classes_, [0, 1, 2])
    assert classifier.label_distributions_.shape == (40, 3)
    assert_allclose(classifier.label_distributions_.sum(axis=1), 1.0)
    assert_array_equal(
        classifier.transduction_,
        classifier.classes_[classifier.label_distributions_.argmax(axis=1)],
    )
    assert_array_equal(classifier.predict(X), classifier.transduction_)
    assert_array_equal(classifier.predict_proba(X), classifier.label_distributions_)
    assert classifier.score(X, truth) > 0.9
    assert len(classifier.history_) == classifier.n_iter_ == 2
    assert 1 <= classifier.best_iteration_ <= 2
    best = classifier.history_[classifier.best_iteration_ - 1]
    assert classifier.edges_.expected_edges() == best["expected_edges"]
    assert classifier.validation_score_.accuracy == best["early_stopping_accuracy"]
    assert classifier.n_features_in_ == 4


# ----------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("names", "unlabelled"),
    [
        ((0, 1), -1),
        ((3, 10), -1),
        ((0.0, 1.0), -1.0),
        ((0.0, 1.0), np.nan),
        (("ham", "spam"), None),
        (("ham", "spam"), ""),
        (("ham", "spam"), np.nan),
        (("ham", "spam"), pd.NA),
        ((0, 1), None),
        ((False, True), None),
    ],
)
def test_labels_and_missing_labels_of_every_kind(names, unlabelled):
    X, y, _ = problem()
    named = [unlabelled if code < 0 else names[code] for code in y]
    reference = make(**BRIEF).fit(X, y)
    for given in (named, np.array(named, dtype=object), pd.Series(named, dtype=object)):
        classifier = make(**BRIEF).fit(X, given)
        assert classifier.classes_.tolist() == list(names)
        assert_same(classifier, reference)
        expected = [names[code] for code in reference.transduction_]
        assert classifier.transduction_.tolist() == expected
        assert classifier.predict(X).tolist() == expected


def test_string_arrays_and_categories():
    X, y, _ = problem()
    text = np.array(["", "ham", "spam"])[y + 1]
    category = pd.Series(text).replace("", None).astype("category")
    assert_same(make(**BRIEF).fit(X, text), make(**BRIEF).fit(X, category))


def test_the_one_class_there_is_is_predicted():
    X, y, _ = problem()
    classifier = make().fit(X, np.where(y == 0, 5, -1))
    assert_array_equal(classifier.classes_, [5])
    assert_array_equal(classifier.transduction_, np.full(40, 5))
    assert_allclose(classifier.label_distributions_, 1.0)


def test_a_part_of_one_class_gives_finite_numbers():
    X, y, _ = problem()
    labelled = np.flatnonzero(y >= 0)
    zeros = labelled[y[labelled] == 0]
    classifier = make().fit(X, y, validation=zeros[:2], early_stopping=zeros[2:4])
    assert np.isfinite(classifier.label_distributions_).all()
    assert all(np.isfinite(list(record.values())).all() for record in classifier.history_)


def test_too_few_labels_are_refused():
    X, y, _ = problem(labelled=2)
    with pytest.raises(ValueError, match="label at least 3 rows"):
        make().fit(X, y)


# ------------------------------------------------------------------------------------ parts


def test_masks_and_indices_mean_the_same():
    X, y, _ = problem()
    outer, stop = np.array([1, 4, 7, 10]), np.array([0, 2, 5, 9, 12])
    reference = make().fit(X, y, validation=outer, early_stopping=stop)
    assert_array_equal(reference.split_.validation, outer)
    assert_array_equal(reference.split_.early_stopping, stop)
    assert_array_equal(reference.split_.train, [3, 6, 8, 11, 13, 14])
    for first, second in (
        (np.isin(np.arange(40), outer), np.isin(np.arange(40), stop)),
        (outer[::-1].tolist(), torch.from_numpy(stop)),
        (pd.Series(np.isin(np.arange(40), outer)), stop),
    ):
        assert_same(make().fit(X, y, validation=first, early_stopping=second), reference)


def test_without_masks_every_labelled_row_has_one_role():
    X, y, _ = problem()
    split = make().fit(X, y).split_
    together = np.concatenate([split.train, split.validation, split.early_stopping])
    assert_array_equal(np.sort(together), np.flatnonzero(y >= 0))
    for part in (split.train, split.validation, split.early_stopping):
        assert_array_equal(np.unique(y[part]), [0, 1])


def test_labels_are_used_in_their_roles_only():
    X, y, _ = problem()
    masks = {"validation": [1, 4, 7, 10], "early_stopping": [0, 2, 5, 9, 12]}

    def weights_of_one_inner_problem(y):
        classifier = make(max_outer_iterations=1, tau=None).fit(X, y, **masks)
        return classifier.weights_

    def changed(row):
        return np.where(np.arange(40) == row, 1 - y, y)

    # Updates come after the last inner step here, so that weights know the training labels alone.
    reference = weights_of_one_inner_problem(y)
    for row, same in ((1, True), (0, True), (3, False)):
        weights = weights_of_one_inner_problem(changed(row))
        equal = all(np.array_equal(a, b) for a, b in zip(weights, reference, strict=True))
        assert equal is same


# ------------------------------------------------------------------------------------ graph


def graphs():
    pairs = random_pairs(40, n_pairs=70, rng=np.random.default_rng(1))
    dense = np.zeros((40, 40))
    dense[pairs.rows, pairs.cols] = dense[pairs.cols, pairs.rows] = 1.0
    edges = np.stack(pairs, axis=1)
    named = networkx.Graph(edges.tolist())
    named.add_nodes_from(range(40))
    return pairs, {
        "dense": dense,
        "dense integers": dense.astype(int).tolist(),
        "truth values": dense.astype(bool),
        "tensor": torch.from_numpy(dense),
        "sparse tensor": torch.from_numpy(dense).to_sparse(),
        "csr": sparse.csr_array(dense),
        "csc": sparse.csc_array(dense),
        "coo matrix": sparse.coo_matrix(dense),
        "edge list": edges,
        "edge list, other way round": edges[::-1, ::-1],
        "list of tuples": [tuple(edge) for edge in edges.tolist()],
        "frame": pd.DataFrame(edges, columns=["source", "target"]),
        "networkx": named,
    }


@pytest.mark.parametrize("form", graphs()[1])
def test_a_graph_is_the_same_in_every_form(form):
    X, y, _ = problem()
    pairs, forms = graphs()
    assert_same(make(**BRIEF).fit(X, y, forms[form]), make(**BRIEF).fit(X, y, pairs))


def test_a_directed_graph_is_folded_with_a_warning():
    X, y, _ = problem()
    pairs, forms = graphs()
    with pytest.warns(EdgewiseWarning, match="made undirected"):
        classifier = make(**BRIEF).fit(X, y, np.triu(forms["dense"]))
    assert_same(classifier, make(**BRIEF).fit(X, y, pairs))


def test_weights_are_initial_probabilities():
    X, y, _ = problem()
    pairs, forms = graphs()
    seen = []

    class First(Callback):
        def after_update(self, edges, progress):
            seen.append(edges.expected_edges())

    make(outer_learning_rate=1e-9, callbacks=[First()]).fit(X, y, 0.25 * forms["dense"])
    assert seen[0] == pytest.approx(0.25 * pairs.n_pairs, rel=1e-4)


def test_without_a_graph_it_starts_from_the_nearest_neighbours():
    X, y, _ = problem()
    for metric in ("euclidean", "cosine"):
        classifier = make(metric=metric).fit(X, y)
        assert_same(classifier, make().fit(X, y, knn_pairs(X.astype("f4"), 3, metric=metric)))


def test_a_graph_of_the_wrong_size_is_refused():
    X, y, _ = problem()
    with pytest.raises(ValueError, match=r"graph has shape \(39, 39\) but X has 40 rows"):
        make().fit(X, y, np.eye(39))


# ------------------------------------------------------------------------------- randomness


def test_the_same_random_state_repeats_bit_for_bit():
    X, y, _ = problem()
    first = make(random_state=3).fit(X, y)
    assert_same(first, make(random_state=3).fit(X, y))
    assert_same(first, clone(first).fit(X, y))
    other = make(random_state=4).fit(X, y)
    assert not np.array_equal(first.label_distributions_, other.label_distributions_)


def test_a_generator_as_random_state_goes_on():
    X, y, _ = problem()
    state = np.random.RandomState(0)
    first, second = (make(random_state=state).fit(X, y).label_distributions_ for _ in range(2))
    assert not np.array_equal(first, second)
    again = make(random_state=np.random.RandomState(0)).fit(X, y)
    assert_array_equal(first, again.label_distributions_)


def test_no_global_random_state_is_read_or_written():
    X, y, _ = problem()
    reference = make().fit(X, y)
    numpy_before = np.random.get_state()  # noqa: NPY002 - exactly what must be left alone
    torch_before = torch.get_rng_state()
    try:
        np.random.seed(123)  # noqa: NPY002
        torch.manual_seed(123)
        numpy_state, torch_state = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        assert_same(make().fit(X, y), reference)
        after = np.random.get_state()  # noqa: NPY002
        assert all(np.array_equal(a, b) for a, b in zip(numpy_state, after, strict=True))
        assert torch.equal(torch_state, torch.get_rng_state())
    finally:
        np.random.set_state(numpy_before)  # noqa: NPY002
        torch.set_rng_state(torch_before)


def test_inputs_are_left_as_they_are():
    X, y, _ = problem()
    for table in (X.copy(), X.astype("f4"), sparse.csr_array(X)):
        forms = graphs()[1]
        labels, graph, before = y.copy(), forms["dense"].copy(), table.copy()
        make().fit(table, labels, graph)
        assert_array_equal(labels, y)
        assert_array_equal(graph, forms["dense"])
        assert (table != before).sum() == 0


# ---------------------------------------------------------------------------------- predict


def test_predict_finds_rows_wherever_they_stand():
    X, y, _ = problem()
    classifier = make().fit(X, y)
    order = np.random.default_rng(0).permutation(40)[:17]
    chosen = np.append(order, order[:2])
    assert_array_equal(classifier.predict(X[chosen]), classifier.transduction_[chosen])
    assert_array_equal(classifier.predict_proba(X[chosen]), classifier.label_distributions_[chosen])
    as_sparse = sparse.csr_array(X[chosen])
    assert_array_equal(classifier.predict(as_sparse), classifier.transduction_[chosen])


def test_of_equal_rows_the_first_is_found():
    X, y, _ = problem()
    X[30] = X[3]
    classifier = make().fit(X, y, random_pairs(40, n_pairs=60, rng=np.random.default_rng(0)))
    assert not np.array_equal(*classifier.label_distributions_[[3, 30]])
    assert_array_equal(classifier.predict_proba(X[[30]]), classifier.label_distributions_[[3]])
    # The whole table, though, is what was fitted, row by row.
    assert_array_equal(classifier.predict_proba(X), classifier.label_distributions_)


def test_fitting_again_forgets_everything():
    X, y, _ = problem()
    other = problem(n_rows=25, n_classes=3, labelled=12, seed=5)
    classifier = make().fit(X, y).fit(other[0], other[1])
    assert_same(classifier, make().fit(other[0], other[1]))
    assert_array_equal(classifier.classes_, [0, 1, 2])
    assert classifier.predict(other[0]).shape == (25,)


def test_refit_uses_all_labels():
    X, y, _ = problem()
    masks = {"validation": [1, 4, 7, 10], "early_stopping": [0, 2, 5, 9, 12]}
    plain, refit = make().fit(X, y, **masks), make(refit=True).fit(X, y, **masks)
    assert_array_equal(plain.edges_.above(0.0)[1], refit.edges_.above(0.0)[1])
    assert plain.history_[0]["inner_loss"] == refit.history_[0]["inner_loss"]
    rows = y >= 0
    own = [-np.log(c.label_distributions_[rows, y[rows]]).mean() for c in (plain, refit)]
    assert own[1] < own[0]


# ----------------------------------------------------------------------------------- tables


def test_frames_keep_their_column_names():
    X, y, _ = problem()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    classifier = make().fit(frame, y)
    assert_array_equal(classifier.feature_names_in_, ["a", "b", "c", "d"])
    assert_same(classifier, make().fit(X, y))
    assert_array_equal(classifier.predict(frame.iloc[5:9]), classifier.transduction_[5:9])
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame[["b", "a", "c", "d"]])


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_and_dense_features_agree(form):
    X, y, _ = problem()
    X[np.abs(X) < 0.5] = 0.0
    dense = make(dtype="float64").fit(X, y)
    thin = make(dtype="float64").fit(form(X), y)
    # Sums run in another order, which is all that may differ.
    assert_allclose(thin.label_distributions_, dense.label_distributions_, atol=1e-8)
    assert_array_equal(thin.predict(form(X)), dense.predict(X))


def test_rows_without_features_or_neighbours_get_finite_probabilities():
    X, y, _ = problem()
    X[[20, 21]] = 0.0
    classifier = make(metric="cosine").fit(X, y)
    assert np.isfinite(classifier.label_distributions_).all()
    assert_allclose(classifier.label_distributions_.sum(axis=1), 1.0)

    nobody = make().fit(X, y, np.zeros((40, 40)))
    assert np.isfinite(nobody.label_distributions_).all()
    # Neither features nor, at first, neighbours: nothing speaks for any class.
    silent = make(outer_learning_rate=1e-12).fit(X, y, np.zeros((40, 40)))
    assert_allclose(silent.label_distributions_[[20, 21]], 0.5, atol=1e-6)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_a_table_of_zeros_gives_the_prior(storage):
    _, y, _ = problem()
    classifier = make(storage=storage).fit(np.zeros((40, 4)), y)
    assert_allclose(classifier.label_distributions_, 0.5)


@pytest.mark.parametrize(
    ("parameters", "what", "remedy"),
    [
        ({"storage": "dense"}, "each pair of 40 rows", "Use storage='sparse'"),
        (
            {"storage": "sparse"},
            "a fit of 40 rows",
            "Lower max_edges_per_node, tau or hidden_units",
        ),
        ({"edges": "similarity"}, "among 40 rows of 4 columns", "Fit fewer rows or columns"),
    ],
)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_what_cannot_fit_is_refused_before_anything_is_computed(
    form, parameters, what, remedy, monkeypatch
):
    X, y, _ = problem()
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    monkeypatch.setattr(estimator, "knn_pairs", None)  # not to be called
    monkeypatch.setattr(estimator, "SimilarityEdges", None)
    with pytest.raises(MemoryError, match=f"{what}.* takes about .* {remedy}"):
        make(**parameters).fit(form(X), y)


def test_float64_is_computed_in_float64():
    X, y, _ = problem()
    double, single = make(dtype="float64").fit(X, y), make().fit(X, y)
    assert double.edges_.probability([0], [1]).dtype == np.float64
    assert single.edges_.probability([0], [1]).dtype == np.float32
    assert double.weights_[0].dtype == np.float64
    # The same first inner problem, up to rounding, for as long as the same graphs are drawn.
    first = [c.history_[0]["inner_loss"] for c in (double, single)]
    assert first[0] == pytest.approx(first[1], rel=0.05)


# --------------------------------------------------------------------------- parts of one's own


class Linear(Network):
    """One product with the graph, no hidden layer; counts its calls."""

    calls = 0

    def initial_weights(self, n_features, n_classes, generator):
        return [torch.rand(n_features, n_classes, generator=generator, dtype=torch.float64) - 0.5]

    def logits(self, weights, features, graph: Graph, noise=None):
        Linear.calls += 1
        return graph @ (features @ weights[0])

    def penalty(self, weights):
        return weights[0].square().sum()


def test_a_network_of_ones_own():
    X, y, truth = problem()
    classifier = make(network=Linear()).fit(X, y)
    assert Linear.calls > 0
    assert [part.shape for part in classifier.weights_] == [(4, 2)]
    assert classifier.score(X, truth) > 0.9


def test_a_network_given_as_such_is_the_default_one():
    X, y, _ = problem()
    assert_same(make(network=GCN(16, 0.5)).fit(X, y), make().fit(X, y))
    assert_same(make(network=GCN(3, 0.0)).fit(X, y), make(hidden_units=3, dropout=0.0).fit(X, y))


def test_callbacks_see_every_update_and_iteration():
    X, y, _ = problem()
    seen = {"updates": 0, "iterations": []}

    class Spy(Callback):
        def after_update(self, edges, progress):
            assert isinstance(edges, DenseEdges)
            seen["updates"] += 1

        def after_iteration(self, edges, progress):
            seen["iterations"].append(progress.history[-1].as_dict())

    classifier = make(callbacks=[Spy()]).fit(X, y)
    assert seen["iterations"] == classifier.history_
    assert seen["updates"] == sum(record["outer_updates"] for record in classifier.history_)


@pytest.mark.parametrize(
    "parameters",
    [
        {"tau": 0},
        {"tau": None, "max_inner_steps": 8},
        {"inner_optimizer": "sgd", "inner_learning_rate": 0.5},
        {"inner_optimizer": "momentum", "inner_learning_rate": 0.1},
        {"learn_inner_rate": True},
        {"edges": "similarity"},
        {"storage": "sparse"},
    ],
    ids=str,
)
def test_every_variant_learns(parameters):
    X, y, truth = problem()
    classifier = make(max_outer_iterations=3, **parameters).fit(X, y)
    assert classifier.score(X, truth) > 0.8
    assert all(np.isfinite(list(record.values())).all() for record in classifier.history_)


# ------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_a_pickled_classifier_is_the_same(storage, tmp_path):
    X, y, _ = problem()
    classifier = make(storage=storage).fit(X, y)
    joblib.dump(classifier, tmp_path / "classifier.joblib")
    new = X[:5] + 0.1
    for copy in (
        pickle.loads(pickle.dumps(classifier)),
        joblib.load(tmp_path / "classifier.joblib"),
    ):
        assert_same(copy, classifier)
        assert_array_equal(copy.predict(X), classifier.predict(X))
        assert_array_equal(copy.predict_proba(new), classifier.predict_proba(new))
        rngs = np.random.default_rng(0), np.random.default_rng(0)
        first, second = (
            c.edges_.sample(rng) for c, rng in zip((copy, classifier), rngs, strict=True)
        )
        assert_array_equal(first.rows, second.rows)
        assert_array_equal(first.cols, second.cols)
