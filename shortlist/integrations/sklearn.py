"""scikit-learn estimators that answer with sets: one that trains a model here, and one around any classifier."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from shortlist.extras import import_failure, require

try:
    import sklearn
except Exception as error:
    raise import_failure("sklearn", error, extra="sklearn") from error

from lightning.pytorch.utilities.seed import isolate_rng
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, check_array, check_random_state
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from shortlist.data import Dataset, Features, ImageArray, Inputs, SparseRows, Texts, split_at_random
from shortlist.errors import InputError
from shortlist.factory import loss_class
from shortlist.fit_options import FitOptions
from shortlist.sets import AverageK, PredictionSets
from shortlist.sets.rule import SetRule
from shortlist.sets.scores import apply_link
from shortlist.tensors import check_number
from shortlist.train import Fitted, fit
from shortlist.train.evaluation import model_scores

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["SetClassifier", "SetRuleClassifier", "coverage", "predict_sets", "set_size"]

_DEFAULT_K = 3


class _SetPredictions(ClassifierMixin):
    """What estimators with a fitted ``rule_`` predict from their scores."""

    classes_: np.ndarray
    rule_: SetRule

    def _scores(self, X: Any) -> Tensor:
        raise NotImplementedError

    def predict_sets(self, X: Any, *, generator: torch.Generator | None = None) -> PredictionSets:
        """Predict one set per row, best label first, named by ``classes_``.

        Args:
            X: the rows.
            generator: breaks ties at a conformal threshold; see `SetRule.predict`.
        """
        check_is_fitted(self, "rule_")
        names = tuple(str(name) for name in self.classes_)
        return self.rule_.predict(self._scores(X), names=names, generator=generator)

    def _labels(self, scores: Tensor) -> np.ndarray:
        """The best class of each row, or the indicator of its set; deterministic, unlike sets with ties."""
        if self._one_class:  # pyright: ignore[reportAttributeAccessIssue]
            return self.classes_[scores.argmax(1).numpy()]
        return self.rule_(scores).numpy().astype(np.int64)


class SetClassifier(_SetPredictions, BaseEstimator):
    """A model of `shortlist.train` as a scikit-learn classifier.

    Targets are one class per row, of any type, or a binary indicator matrix of several labels per row. A tenth of the
    rows is set aside for choosing the epoch and for fitting the rule. For a conformal rule with its full guarantee,
    give the estimator to `SetRuleClassifier`, which calibrates on rows that chose nothing.

    Args:
        loss: a name that ``shortlist losses`` lists; ``auto`` is cross_entropy for classes and bce for sets.
        k: the (average) number of labels in a set; None for 3, or one less than there are labels.
        encoder: linear, mlp, bag, cnn, densenet, ``torchvision:NAME``, ``timm:NAME``, ``hf:NAME``, or auto.
        head: linear, cosine, bottleneck, dft, clusters, or auto.
        rule: an unfitted rule of `shortlist.sets`, which reads the logits with its own link. None for ``AverageK(k)``
            with the link of the loss.
        epochs, batch_size, learning_rate: None for what the recipe says; see `shortlist.train.FitOptions`.
        options: other options of `shortlist.train.FitOptions`, such as ``{"loss_options": {"temperature": 2.0}}``.
        validation_fraction: the share of rows that are set aside.
        random_state: seed, or numpy's generator, of the split and of the training.

    Attributes:
        classes_: the classes; for indicator matrices the numbers of the columns.
        fitted_: what `shortlist.train.fit` returned; ``save_model(estimator.fitted_, folder, rule=estimator.rule_)``
            saves it.
        rule_: the fitted rule.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)
        >>> model = SetClassifier("cross_entropy", k=2, epochs=2, random_state=0).fit(X, y)
        >>> sets = model.predict_sets(X[:100])
        >>> sets.num_labels, bool(1 <= sets.sizes.float().mean() <= 3)
        (10, True)
    """

    def __init__(
        self,
        loss: str = "auto",
        *,
        k: float | None = None,
        encoder: str = "auto",
        head: str = "auto",
        rule: SetRule | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        options: Mapping[str, Any] | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = None,
    ) -> None:
        self.loss, self.k, self.encoder, self.head, self.rule = loss, k, encoder, head, rule
        self.epochs, self.batch_size, self.learning_rate = epochs, batch_size, learning_rate
        self.options, self.validation_fraction, self.random_state = options, validation_fraction, random_state

    def __sklearn_tags__(self) -> Any:
        """Say what scikit-learn's tests and tools may give: sparse rows, and several labels per row."""
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the model and fit its rule.

        Args:
            X: ``(N, features)``, dense or sparse; images ``(N, H, W, 3)`` or ``(N, H, W, 1)`` uint8; or texts.
            y: ``(N,)`` classes, or ``(N, n)`` binary indicators.
            sample_weight: ``(N,)``, how much each row counts in the loss, for losses that are a mean over rows.
        """
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        rule = None if self.rule is None else _unfitted(self.rule)
        share = self.validation_fraction
        if check_number("validation_fraction", share, at_least=0, below=1) == 0:
            raise ValueError(f"`validation_fraction` must be above 0; got {share}.")
        inputs, y = self._read(X, y)
        targets = self._read_targets(y)
        weights = None if sample_weight is None else self._read_weights(sample_weight, inputs)
        if weights is not None:
            # A row that counts nothing must not choose the epoch or the threshold either.
            kept = weights.nonzero().flatten()
            inputs, targets, weights = inputs.take(kept), targets[kept], weights[kept]
        if len(inputs) < 2:
            raise ValueError(f"`X` must have rows to train and to validate; got n_samples = {len(inputs)}.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        names = tuple(str(name) for name in self.classes_)
        dataset = split_at_random(Dataset(inputs, targets, names), val=share, test=0.0, seed=seed)
        weights = None if weights is None else weights[dataset.part_rows("train")]
        options = self._fit_options(len(names), seed)
        with isolate_rng():
            self.fitted_: Fitted = fit(dataset, options, data_name="X", row_weights=weights)
        link = loss_class(self.fitted_.plan.loss).link
        self.rule_ = AverageK(options.k, link=link) if rule is None else rule
        held_out = dataset.part("val")
        self.rule_.fit(self._logits(held_out.inputs), held_out.targets, from_logits=True)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predict the best class of each row, or the indicator matrix of its set."""
        return self._labels(self._scores(X))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict one score per label, by the link of the loss.

        Those of one class sum to 1 in each row. Those of sets are probabilities of each label if the link of the loss
        is the sigmoid, and shares of one whole if it is the softmax; ``shortlist losses`` says which.
        """
        scores = apply_link(self._scores(X).double(), loss_class(self.fitted_.plan.loss).link)
        return (scores / scores.sum(1, keepdim=True) if self._one_class else scores).numpy()

    def _fit_options(self, num_labels: int, seed: int) -> FitOptions:
        k = min(_DEFAULT_K, max(num_labels - 1, 1)) if self.k is None else self.k
        given = {"epochs": self.epochs, "batch_size": self.batch_size, "learning_rate": self.learning_rate}
        other = {"loss": self.loss, "k": k, "encoder": self.encoder, "head": self.head, "seed": seed}
        more = {} if self.options is None else self.options
        if not isinstance(more, Mapping):
            raise TypeError(f"`options` must map names of FitOptions to values; got {type(more).__name__}.")
        both = sorted((given.keys() | other.keys()) & more.keys())
        if both:
            raise InputError(f"`options` must not repeat arguments of the estimator; got {', '.join(both)}.")
        known = [each.name for each in fields(FitOptions) if each.name not in given.keys() | other.keys()]
        for name in more:
            if name not in known:
                raise InputError(f"`options` must be among {', '.join(known)}; got {name!r}.")
        # Searches draw numbers of numpy.
        values = {**given, **other, **more}
        return FitOptions(
            **{name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
        )

    def _read(self, X: Any, y: Any = "no_validation") -> tuple[Inputs, Any]:
        """Check rows, and targets if given; return rows as the model takes them."""
        fitting = not isinstance(y, str)
        if _are_texts(X):
            return Texts([str(text) for text in X]), y
        # Images are recognized before they are checked, which would make them floats.
        images = getattr(X, "ndim", 2) == 4
        found: Any = validate_data(
            self,
            X,
            y,
            reset=fitting,
            accept_sparse="csr",
            dtype=np.uint8 if images else np.float32,
            allow_nd=images,
            **({"multi_output": True} if fitting else {}),
        )
        rows, y = found if fitting else (found, y)
        if images:
            return ImageArray(rows), y
        if not fitting:
            # A model of sparse rows takes sparse rows, and one of dense rows dense ones.
            trained_on = self.fitted_.plan.kind
            if hasattr(rows, "tocsr") and trained_on == "features":
                rows = rows.toarray()
            elif not hasattr(rows, "tocsr") and trained_on == "sparse features":
                rows = require("scipy.sparse", extra="sklearn").csr_array(rows)
        return SparseRows.of_scipy(rows) if hasattr(rows, "tocsr") else Features(rows), y

    def _read_targets(self, y: Any) -> Tensor:
        """Labels as `shortlist.targets` has them; sets ``classes_``."""
        self.classes_, targets = _read_labels(_checked(y))
        self._one_class = targets.ndim == 1
        if len(self.classes_) < 2:
            raise ValueError(f"`y` must have at least two classes; it has one class, {str(self.classes_[0])!r}.")
        return targets

    def _read_weights(self, sample_weight: Any, inputs: Inputs) -> Tensor:
        weights = np.asarray(sample_weight, dtype=np.float64)
        weights = np.full(len(inputs), weights) if weights.ndim == 0 else weights
        if weights.ndim != 1:
            raise ValueError("Sample weights must be 1D array or scalar")
        if len(weights) != len(inputs):
            raise ValueError(f"`sample_weight` must have one value per row, {len(inputs)}; got {len(weights)}.")
        if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
            raise ValueError("`sample_weight` must be finite, at least zero, and not all zero.")
        return torch.from_numpy(weights.copy())

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self, "fitted_")
        return self._logits(self._read(X)[0])

    def _logits(self, inputs: Inputs) -> Tensor:
        plan = self.fitted_.plan
        if isinstance(inputs, Texts) and plan.words is not None:
            inputs = plan.words.rows(inputs.texts)
        rows = Dataset(inputs, torch.zeros(len(inputs), dtype=torch.int64), self.fitted_.label_names)
        return model_scores(self.fitted_.model, rows, plan.num_labels)


class SetRuleClassifier(MetaEstimatorMixin, _SetPredictions, BaseEstimator):
    """A set rule around any scikit-learn classifier.

    Scores are what ``predict_proba`` returns; of an estimator without it, those of ``decision_function``, which are
    read as logits by the link of the rule.

    Args:
        estimator: a classifier for one class per row, or for indicator matrices.
        rule: an unfitted rule of `shortlist.sets`.
        cv: ``"prefit"`` fits the rule on the rows given to ``fit``, which the estimator must not have been trained on.
            A number of folds, or a splitter, fits the rule on scores that each row gets from an estimator trained
            without its fold; the estimator is then trained on all rows, so none are lost.

    Attributes:
        classes_: the classes; for indicator matrices the numbers of the columns.
        estimator_: the trained estimator.
        rule_: the fitted rule.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from shortlist.sets import AverageError
        >>> X, y = load_iris(return_X_y=True)
        >>> model = SetRuleClassifier(LogisticRegression(max_iter=500), AverageError(0.05), cv=5).fit(X, y)
        >>> coverage(model, X, y) > 0.9
        True
    """

    def __init__(self, estimator: Any, rule: SetRule, *, cv: int | Literal["prefit"] | Any = 5) -> None:
        self.estimator, self.rule, self.cv = estimator, rule, cv

    def __sklearn_tags__(self) -> Any:
        """Say that the rule takes what the estimator takes."""
        tags, inner = super().__sklearn_tags__(), self.estimator.__sklearn_tags__()
        tags.input_tags = copy.deepcopy(inner.input_tags)
        tags.classifier_tags.multi_label = bool(inner.classifier_tags and inner.classifier_tags.multi_label)
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Route what ``fit`` is given to the estimator and to the splitter of ``cv``."""
        router = MetadataRouter(owner=self)
        router.add(estimator=self.estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        if self.cv != "prefit":
            splitter = check_cv(self.cv)  # pyright: ignore[reportArgumentType]
            router.add(splitter=splitter, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Train the estimator unless it is fitted already, and fit the rule.

        Args:
            X: rows that the estimator takes.
            y: ``(N,)`` classes, or ``(N, n)`` binary indicators.
            params: metadata for the estimator, such as ``sample_weight``, routed as scikit-learn does.
        """
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        rule = _unfitted(self.rule)
        if isinstance(self.cv, str) and self.cv != "prefit":
            raise ValueError(f'`cv` must be "prefit", a number of folds or a splitter; got {self.cv!r}.')
        y = _checked(y)
        classes, targets = _read_labels(y)
        if self.cv == "prefit":
            if params:
                raise ValueError(
                    f'`params` must be empty with cv="prefit", which trains nothing; got {sorted(params)}.'
                )
            check_is_fitted(self.estimator)
            self.estimator_ = self.estimator
            scores = self._read_output(getattr(self.estimator_, self._method)(X), self.estimator_)
        else:
            routed = _routed(self, params)
            output = cross_val_predict(self.estimator, X, y, cv=self.cv, method=self._method, params=params or None)
            copied: Any = clone(self.estimator)
            self.estimator_ = copied.fit(X, y, **routed)
            scores = self._read_output(output, self.estimator_)
        self._one_class = targets.ndim == 1
        if self._one_class:
            self.classes_ = np.asarray(self.estimator_.classes_)
            targets = _positions(classes[targets.numpy()], self.classes_)
        else:
            self.classes_ = classes
        self.rule_ = rule.fit(scores, targets, from_logits=self._method != "predict_proba")
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predict what the estimator does for one class per row, else the indicator matrix of each row's set."""
        check_is_fitted(self, "rule_")
        return self.estimator_.predict(X) if self._one_class else self._labels(self._scores(X))

    def predict_proba(self, X: Any) -> Any:
        """Return the estimator's own probabilities."""
        check_is_fitted(self, "rule_")
        return self.estimator_.predict_proba(X)

    @property
    def _method(self) -> str:
        for name in ("predict_proba", "decision_function"):
            if hasattr(self.estimator, name):
                return name
        raise TypeError(
            f"`estimator` must be a classifier with predict_proba or decision_function; got {self.estimator!r:.80}."
        )

    def _scores(self, X: Any) -> Tensor:
        return self._read_output(getattr(self.estimator_, self._method)(X), self.estimator_)

    def _read_output(self, output: Any, estimator: Any) -> Tensor:
        """``(N, n)`` from an array, or from one array per label as forests and neighbors have them."""
        if isinstance(output, list):
            columns = zip(output, estimator.classes_, strict=True)
            output = np.stack([_share_of_one(column, classes) for column, classes in columns], axis=1)
        output = np.asarray(output)
        if output.ndim == 1:
            output = np.stack([-output, output], axis=1)
        return torch.from_numpy(np.ascontiguousarray(output))


def predict_sets(estimator: Any, X: Any) -> PredictionSets:
    """The set of every row, also of an estimator at the end of a pipeline, or of the best one of a search.

    Args:
        estimator: fitted: one with ``predict_sets``, or a ``Pipeline`` or a search that has one inside.
        X: the rows that it takes.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from shortlist.integrations.sklearn import SetRuleClassifier, predict_sets
        >>> from shortlist.sets import AverageK
        >>> X, y = load_iris(return_X_y=True)
        >>> model = make_pipeline(StandardScaler(), SetRuleClassifier(LogisticRegression(), AverageK(1.1))).fit(X, y)
        >>> len(predict_sets(model, X))
        150
    """
    if hasattr(estimator, "predict_sets"):
        return estimator.predict_sets(X)
    if hasattr(estimator, "best_estimator_"):
        return predict_sets(estimator.best_estimator_, X)
    if not isinstance(estimator, Pipeline):
        raise TypeError(f"`estimator` must predict sets, or hold one that does; got {type(estimator).__name__}.")
    return predict_sets(estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X)


def coverage(estimator: Any, X: Any, y: Any) -> float:
    """The share of rows whose true labels are all in their sets; a scorer for ``scoring=coverage``.

    Args:
        estimator: fitted, with ``classes_``, of which `predict_sets` gives the sets.
        X: the rows.
        y: ``(N,)`` classes, or ``(N, n)`` binary indicators.
    """
    classes, targets = _read_labels(y)
    targets = _positions(classes[targets.numpy()], estimator.classes_) if targets.ndim == 1 else targets
    return float(predict_sets(estimator, X).contains(targets).double().mean())


def set_size(estimator: Any, X: Any, y: Any = None) -> float:
    """The average size of the sets; beside `coverage` in ``scoring={"coverage": coverage, "size": set_size}``."""
    return float(predict_sets(estimator, X).sizes.double().mean())


def _unfitted(rule: Any) -> SetRule:
    """A copy of a rule, to be fitted; checked here because scikit-learn wants no checks in constructors."""
    if not isinstance(rule, SetRule):
        raise TypeError(f"`rule` must be a rule of shortlist.sets, such as AverageK(2); got {rule!r:.80}.")
    return copy.deepcopy(rule)


def _are_texts(X: Any) -> bool:
    if isinstance(X, list | tuple):
        return bool(X) and all(isinstance(text, str) for text in X)
    return getattr(X, "ndim", 2) == 1 and len(X) > 0 and all(isinstance(text, str) for text in X)


def _checked(y: Any) -> Any:
    """An array or CSR matrix of classes or indicators; a single column warns, as elsewhere in scikit-learn."""
    reading: dict[str, Any] = {"accept_sparse": "csr", "dtype": None}
    y = check_array(y, ensure_2d=False, input_name="y", **reading)
    y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
    check_classification_targets(y)
    return y


def _read_labels(y: Any) -> tuple[np.ndarray, Tensor]:
    """Classes, and labels as `shortlist.targets` has them: positions among the classes, or a multi-hot."""
    kind = type_of_target(y)
    if kind in ("binary", "multiclass"):
        classes, positions = np.unique(np.asarray(y), return_inverse=True)
        return classes, torch.from_numpy(positions.reshape(-1).astype(np.int64))
    if kind != "multilabel-indicator":
        raise ValueError(f"Unknown label type: {kind}. `y` must hold one class per row, or binary indicators.")
    hot = y.toarray() if hasattr(y, "toarray") else np.asarray(y)
    return np.arange(hot.shape[1]), torch.from_numpy(hot != 0)


def _positions(y: np.ndarray, classes: np.ndarray) -> Tensor:
    """Where each label is among the sorted classes."""
    unknown = ~np.isin(y, classes)
    if unknown.any():
        raise ValueError(f"`y` must hold classes of the estimator; {y[unknown][:1].tolist()[0]!r} is none.")
    return torch.from_numpy(np.searchsorted(classes, y).astype(np.int64))


def _share_of_one(column: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The probability of 1, which is 0 for a label that no training row has."""
    found = np.flatnonzero(np.asarray(classes) == 1)
    return column[:, found[0]] if len(found) else np.zeros(len(column))


def _routed(owner: SetRuleClassifier, params: dict[str, Any]) -> dict[str, Any]:
    """What the estimator's ``fit`` gets: all, or what it asks for where scikit-learn's routing is switched on."""
    routing = sklearn.get_config()["enable_metadata_routing"]
    routed = process_routing(owner, "fit", **params) if routing else Bunch(estimator=Bunch(fit=params))
    return routed.estimator.fit
