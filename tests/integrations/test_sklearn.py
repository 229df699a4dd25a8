"""scikit-learn: the estimators pass its own checks, work in its tools, and keep what their rules promise."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from shortlist.integrations.sklearn import SetClassifier, SetRuleClassifier, coverage, predict_sets, set_size
from shortlist.sets import AverageError, AverageK, RecallControl, TopK
from shortlist.train import load_model, save_model

# One step of a few rows is enough where the answer does not matter.
QUICK: dict[str, Any] = {"epochs": 1, "random_state": 0}
EXPECTED_FAILURES = {
    "SetClassifier": dict.fromkeys(
        ["check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"],
        "a repeated row changes which rows a seed draws for batches and validation; a weight does not",
    )
}


@pytest.fixture(scope="module")
def classes():
    X, y = make_classification(300, 8, n_informative=6, n_classes=4, random_state=0)
    return X, np.array(["ash", "beech", "cedar", "fir"])[y]


@pytest.fixture(scope="module")
def sets():
    return make_multilabel_classification(200, 10, n_classes=5, random_state=0)


def expected_failures(estimator: BaseEstimator) -> dict[str, str]:
    return EXPECTED_FAILURES.get(type(estimator).__name__, {})


@parametrize_with_checks([SetRuleClassifier(LogisticRegression(), TopK(1), cv=2)])
def test_the_rule_around_a_classifier_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [SetClassifier(epochs=5, batch_size=16, learning_rate=1e-2)], expected_failed_checks=expected_failures
)
def test_the_trained_classifier_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_row_of_weight_zero_is_as_if_it_were_not_there(classes):
    X, y = classes
    weight = (np.arange(len(X)) < 200).astype(float)
    weighted = SetClassifier(**QUICK).fit(X, y, sample_weight=weight)
    without = SetClassifier(**QUICK).fit(X[:200], y[:200], sample_weight=np.ones(200))
    np.testing.assert_array_equal(weighted.predict_proba(X), without.predict_proba(X))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.inf])
def test_weights_that_count_nothing_or_less_are_refused(classes, weight):
    with pytest.raises(ValueError, match=r"`sample_weight` must be finite, at least zero, and not all zero\.$"):
        SetClassifier(**QUICK).fit(*classes, sample_weight=np.full(len(classes[0]), weight))


def test_equal_weights_give_the_model_without_weights_and_others_another(classes):
    X, y = classes
    plain = SetClassifier(**QUICK).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(SetClassifier(**QUICK).fit(X, y, np.full(len(X), 7.0)).predict_proba(X), plain, 1e-5)
    ash = SetClassifier(**QUICK).fit(X, y, np.where(y == "ash", 50.0, 1.0)).predict_proba(X)
    assert ash[:, 0].mean() > plain[:, 0].mean() + 0.05


@pytest.mark.parametrize("loss", ["two_way", "role"])
def test_a_loss_that_couples_rows_refuses_weights(sets, loss):
    with pytest.raises(ValueError, match=rf"^`row_weights` need a loss that is a mean over rows; '{loss}' is not\.$"):
        SetClassifier(loss, **QUICK).fit(*sets, sample_weight=np.ones(200))


def test_one_class_per_row_gives_labels_probabilities_and_named_sets(classes):
    X, y = classes
    model = SetClassifier("average_k", k=2, epochs=3, random_state=0).fit(X, y)
    probabilities, answers = model.predict_proba(X), model.predict_sets(X)
    assert list(model.classes_) == ["ash", "beech", "cedar", "fir"]
    np.testing.assert_allclose(probabilities.sum(1), 1)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(1)], model.predict(X))
    assert answers[0][0][0] == model.predict(X[:1])[0]
    assert coverage(model, X, y) == pytest.approx(
        np.mean([label in dict(one) for label, one in zip(y, answers, strict=True)])
    )
    assert set_size(model, X) == pytest.approx(2, abs=0.4)


def test_sets_give_indicators_of_the_rule(sets):
    X, y = sets
    model = SetClassifier("bce", rule=AverageK(2, link="sigmoid"), **QUICK).fit(X, y)
    assert model.predict_proba(X).shape == model.predict(X).shape == y.shape
    np.testing.assert_array_equal(model.predict(X) > 0, model.predict_sets(X).to_mask().numpy())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"loss": "zzz"}, r"`loss` must be one of .*; got 'zzz'"),
    ({"loss": None}, r"`loss` must be text; got None"),
    ({"k": "a"}, r"`k` must be a number; got 'a'"),
    ({"k": 5}, r"`k` must lie in \(0, 4\], the number of labels; got 5"),
    ({"encoder": "zzz"}, r"`encoder` must be one of .*; got 'zzz'"),
    ({"encoder": "cnn"}, r"`encoder` 'cnn' needs images; got features"),
    ({"head": "zzz"}, r"`head` must be one of .*; got 'zzz'"),
    ({"epochs": 1.5}, r"`epochs` must be an integer; got 1\.5"),
    ({"learning_rate": -1}, r"`learning_rate` must be above 0 and finite; got -1"),
    ({"options": "patience"}, r"`options` must map names of FitOptions to values; got str"),
    ({"options": {"foo": 1}}, r"`options` must be among recipe, frozen, .*; got 'foo'"),
    ({"options": {"loss_options": {"foo": 1}}}, r"`loss_options` of 'cross_entropy' must be among .*; got 'foo'"),
    ({"validation_fraction": "a"}, r"`validation_fraction` must be a number; got str"),
    ({"validation_fraction": 1}, r"`validation_fraction` must lie in \[0, 1\); got 1"),
    ({"validation_fraction": 0}, r"`validation_fraction` must be above 0; got 0"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_a_wrong_argument_is_one_sentence_when_the_classifier_is_fitted(classes, options, message):
    with pytest.raises((ValueError, TypeError), match=rf"^{message}\.$"):
        SetClassifier(**options).fit(*classes)


def test_numbers_that_a_search_draws_are_numbers(classes):
    drawn = {"epochs": np.int64(1), "batch_size": np.int64(64), "k": np.int64(2), "learning_rate": np.float32(0.01)}
    assert SetClassifier(**drawn).fit(*classes).rule_.k == 2


def test_a_fitted_estimator_survives_pickling_and_saves_as_a_model(classes, tmp_path):
    X, y = classes
    model = SetClassifier(k=2, **QUICK).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_sets(X) == model.predict_sets(X)
    saved = load_model(save_model(model.fitted_, tmp_path, rule=model.rule_))
    logits = saved.model(torch.from_numpy(X.astype(np.float32)))
    assert saved.rule is not None
    assert saved.rule.predict(logits, names=list(model.classes_)) == model.predict_sets(X)


def test_fitting_leaves_the_global_random_numbers_alone(classes):
    np.random.seed(3)
    torch.manual_seed(3)
    expected = np.random.rand(), torch.rand(1)
    np.random.seed(3)
    torch.manual_seed(3)
    SetClassifier(**QUICK).fit(*classes)
    assert (np.random.rand(), torch.rand(1)) == expected


def test_pipelines_of_text_give_sparse_rows():
    texts = ["a red rose", "a blue violet", "one red rose", "two blue violets", "red roses", "blue violets"] * 10
    flowers = ["rose" if "rose" in text else "violet" for text in texts]
    model = make_pipeline(TfidfVectorizer(), SetClassifier(k=1, random_state=0)).fit(texts, flowers)
    assert model.score(texts, flowers) == 1
    np.testing.assert_array_equal(
        model[-1].predict_proba(model[0].transform(texts).toarray()), model.predict_proba(texts)
    )


def test_text_itself_is_read_by_the_model():
    texts = ["a red rose", "a blue violet", "one red rose", "two blue violets"] * 15
    model = SetClassifier(k=1, random_state=0).fit(texts, ["rose", "violet"] * 30)
    assert list(model.predict(["red rose", "blue violet"])) == ["rose", "violet"]


def test_columns_of_several_kinds_go_through_a_column_transformer(classes):
    X, y = classes
    table = np.empty((len(X), 3), dtype=object)
    table[:, :2], table[:, 2] = X[:, :2], [f"leaf of {name}" for name in y]
    columns = ColumnTransformer([("numbers", StandardScaler(), [0, 1]), ("words", TfidfVectorizer(), 2)])
    model = make_pipeline(columns, SetRuleClassifier(SetClassifier(random_state=0), TopK(2), cv=2)).fit(table, y)
    assert model.score(table, y) > 0.9
    assert model[-1].predict_sets(columns.transform(table)).sizes.unique().tolist() == [2]


def test_a_grid_search_chooses_losses_and_sizes(classes):
    grid = {"loss": ["cross_entropy", "lml_nll"], "k": [1, 2]}
    search = GridSearchCV(
        SetClassifier(**QUICK), grid, scoring={"coverage": coverage, "size": set_size}, cv=2, refit="coverage"
    )
    search.fit(*classes)
    assert search.best_params_["k"] == 2
    assert search.best_estimator_.fitted_.plan.loss == search.best_params_["loss"]
    sizes = search.cv_results_["mean_test_size"]
    assert sizes == pytest.approx([1, 1, 2, 2], abs=0.6)


def test_a_grid_search_goes_into_the_estimator_and_over_rules(classes):
    model = SetRuleClassifier(LogisticRegression(), TopK(1), cv=2)
    grid = {"estimator__C": [0.1, 1.0], "rule": [TopK(1), TopK(3)]}
    search = GridSearchCV(model, grid, scoring=coverage, cv=2).fit(*classes)
    assert search.best_params_["rule"].k == 3


def test_sets_and_their_scores_reach_through_pipelines_and_searches(classes, sets):
    scoring = {"coverage": coverage, "size": set_size}
    inner = SetRuleClassifier(LogisticRegression(), AverageK(1.5), cv=2)
    grid = {"setruleclassifier__rule": [AverageK(1.5), AverageError(0.2)]}
    search = GridSearchCV(make_pipeline(StandardScaler(), inner), grid, cv=2, scoring=scoring, refit="coverage")
    search.fit(*classes)
    assert np.isfinite(search.cv_results_["mean_test_coverage"]).all()
    best = search.best_estimator_
    assert predict_sets(search, classes[0]) == best[-1].predict_sets(best[:-1].transform(classes[0]))
    X, hot = sets
    several = make_pipeline(SetRuleClassifier(OneVsRestClassifier(LogisticRegression()), RecallControl(0.2), cv=2))
    assert 0 < coverage(several.fit(X, hot), X, hot) <= 1
    with pytest.raises(
        TypeError, match=r"^`estimator` must predict sets, or hold one that does; got StandardScaler\.$"
    ):
        predict_sets(StandardScaler(), X)


def test_predictions_by_cross_validation_match_the_form_of_the_targets(classes, sets):
    for X, y in (classes, sets):
        model = SetRuleClassifier(OneVsRestClassifier(LogisticRegression()), AverageK(2), cv=2)
        assert cross_val_predict(model, X, y, cv=2).shape == y.shape
    found = cross_val_predict(SetClassifier(**QUICK), *classes, cv=2, method="predict_proba")
    assert found.shape == (300, 4)


def test_clones_have_their_own_unfitted_rule(classes):
    model = SetRuleClassifier(LogisticRegression(), AverageError(0.2), cv=2).fit(*classes)
    copied = clone(model)
    assert not model.rule.fitted
    assert copied.rule is not model.rule
    assert copied.rule.alpha == 0.2


def test_a_notebook_shows_the_estimator_with_what_is_inside(classes):
    shown = SetRuleClassifier(LogisticRegression(), AverageError(0.2), cv=2).fit(*classes)._repr_html_()
    assert "LogisticRegression" in shown
    assert "AverageError" in shown
    assert "SetClassifier" in SetClassifier()._repr_html_()


class Weighed(ClassifierMixin, BaseEstimator):
    """A classifier that remembers the weights that it was given."""

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        self.weights_ = sample_weight
        return self

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def test_weights_reach_the_estimator_with_and_without_routing(classes):
    X, y = classes
    weight = np.arange(len(X)) + 1.0
    model = SetRuleClassifier(Weighed(), TopK(1), cv=2).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(model.estimator_.weights_, weight)
    with config_context(enable_metadata_routing=True):
        asking = Weighed().set_fit_request(sample_weight=True)
        model = SetRuleClassifier(asking, TopK(1), cv=2).fit(X, y, sample_weight=weight)
        np.testing.assert_array_equal(model.estimator_.weights_, weight)
        with pytest.raises(ValueError, match="sample_weight"):
            SetRuleClassifier(Weighed(), TopK(1), cv=2).fit(X, y, sample_weight=weight)
        trained = SetClassifier(**QUICK).set_fit_request(sample_weight=True)
        SetRuleClassifier(trained, TopK(1), cv=2).fit(X, y, sample_weight=weight)


def test_a_fitted_estimator_is_calibrated_as_it_is(classes):
    X, y = classes
    trained = LogisticRegression().fit(X[:150], y[:150])
    model = SetRuleClassifier(trained, AverageError(0.1), cv="prefit").fit(X[150:], y[150:])
    assert model.estimator_ is trained
    assert coverage(model, X[150:], y[150:]) >= 0.9
    with pytest.raises(ValueError, match=r"not fitted|isn't fitted"):
        SetRuleClassifier(LogisticRegression(), TopK(1), cv="prefit").fit(X, y)
    with pytest.raises(ValueError, match=r'^`params` must be empty with cv="prefit"'):
        SetRuleClassifier(trained, TopK(1), cv="prefit").fit(X, y, sample_weight=np.ones(len(X)))


def test_margins_are_read_as_logits_and_arrays_per_label_as_one(classes, sets):
    X, y = classes
    model = SetRuleClassifier(LinearSVC(), AverageError(0.1), cv=3).fit(X, y)
    assert model.rule_.from_logits
    assert coverage(model, X, y) > 0.85
    two = SetRuleClassifier(LinearSVC(), TopK(1), cv=3).fit(X, y == "fir")
    assert [bool(one[0][0] == "True") for one in two.predict_sets(X)] == two.predict(X).tolist()
    forest = RandomForestClassifier(20, random_state=0)
    many = SetRuleClassifier(forest, RecallControl(0.1), cv=2).fit(*sets)
    assert many.predict(sets[0]).shape == sets[1].shape
    assert coverage(many, *sets) > 0.8


def test_what_does_not_fit_is_one_sentence(classes):
    X, y = classes
    with pytest.raises(ValueError, match=r"^`options` must not repeat arguments of the estimator; got seed\.$"):
        SetClassifier(options={"seed": 1}).fit(X, y)
    for wrong, shown in ((0.1, "0.1"), ("x", "'x'"), (AverageK, "<class '.*AverageK'>")):
        for estimator in (SetRuleClassifier(LogisticRegression(), wrong), SetClassifier(rule=wrong)):
            with pytest.raises(TypeError, match=rf"^`rule` must be a rule of shortlist\.sets, .*; got {shown}\.$"):
                estimator.fit(X, y)
    for wrong, shown in (("x", "'x'"), (LinearRegression(), r"LinearRegression\(\)")):
        with pytest.raises(TypeError, match=rf"^`estimator` must be a classifier with .*; got {shown}\.$"):
            SetRuleClassifier(wrong, TopK(1)).fit(X, y)
    with pytest.raises(ValueError, match=r'^`cv` must be "prefit", a number of folds or a splitter; got \'fit\'\.$'):
        SetRuleClassifier(LogisticRegression(), TopK(1), cv="fit").fit(X, y)
    model = SetRuleClassifier(LogisticRegression(), TopK(1), cv=2).fit(X, y)
    with pytest.raises(ValueError, match=r"^`y` must hold classes of the estimator; 'oak' is none\.$"):
        coverage(model, X[:2], np.array(["ash", "oak"]))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_the_cross_fitted_rule_covers_as_it_promises_over_two_hundred_splits(alpha):
    rng, hits, rows = np.random.default_rng(0), 0, 200
    centers = rng.normal(size=(6, 5))
    for _ in range(200):
        y = rng.integers(6, size=300 + rows)
        X = centers[y] + rng.normal(size=(len(y), 5))
        model = SetRuleClassifier(LinearDiscriminantAnalysis(), AverageError(alpha), cv=10).fit(X[:300], y[:300])
        hits += round(coverage(model, X[300:], y[300:]) * rows)
    # The rows of a split share one threshold, whose own coverage varies as that of a quantile of 300 rows.
    trials = 200 * rows / (1 + rows / 300)
    low, high = binom.interval(0.999, int(trials), 1 - alpha)
    assert low / int(trials) <= hits / (200 * rows) <= high / int(trials)
