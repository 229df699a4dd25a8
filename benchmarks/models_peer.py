"""Train one other library's model and score rows: a process of its own, in an environment of its own.

``python models_peer.py FOLDER MODEL`` reads what `benchmarks.models` wrote into the folder and writes the scores of the
validation and test rows (``scores.npz``) and the processor seconds (``seconds.json``) there. Only numpy, scipy and the
library of the model are imported, so the environment needs nothing of shortlist. Exit code 3 means that the library is
missing; the last line of standard error says which.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse

MISSING = 3
"""The exit code if a library is not installed."""

_CANDIDATES = 100
"""Labels per row that the tree models return; all others get the lowest score."""


class Rows(NamedTuple):
    """Inputs and labels of all parts.

    Attributes:
        train, val, test: CSR matrices or dense arrays ``(rows, features)``.
        labels: CSR matrix ``(training rows, labels)`` of zeros and ones.
        one_class: whether each row has exactly one label.
        texts: parts as lines of words, for models that read words.
        folder: for files of the model.
    """

    train: Any
    val: Any
    test: Any
    labels: Any
    one_class: bool
    texts: dict[str, list[str]]
    folder: Path

    @property
    def classes(self) -> np.ndarray:
        """The first label of each training row."""
        return self.labels.indices[self.labels.indptr[:-1]]


Scorer = Callable[[Any], np.ndarray]
"""Maps rows of inputs to scores ``(rows, labels)``."""


def linear_svc(rows: Rows) -> Scorer:
    """scikit-learn's LinearSVC, one-vs-rest."""
    from sklearn.svm import LinearSVC

    return _one_vs_rest(rows, LinearSVC())


def sgd(rows: Rows) -> Scorer:
    """scikit-learn's SGDClassifier with the logistic loss, one-vs-rest."""
    from sklearn.linear_model import SGDClassifier

    return _one_vs_rest(rows, SGDClassifier(loss="log_loss", alpha=1e-5, random_state=0))


def logistic_regression(rows: Rows) -> Scorer:
    """scikit-learn's logistic regression on standardized features: softmax for classes, one-vs-rest for sets."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return _one_vs_rest(rows, make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)))


def boosted_trees(rows: Rows) -> Scorer:
    """scikit-learn's histogram-based gradient boosting with early stopping, one-vs-rest."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return _one_vs_rest(rows, HistGradientBoostingClassifier(random_state=0))


def fasttext(rows: Rows) -> Scorer:
    """fastText with the settings of its tutorial: 25 epochs, pairs of words, rate 1 (0.5 for one-vs-all)."""
    import fasttext

    path = rows.folder / "fasttext.txt"
    with path.open("w") as file:
        for row, text in enumerate(rows.texts["train"]):
            of_row = rows.labels.indices[rows.labels.indptr[row] : rows.labels.indptr[row + 1]]
            file.write(" ".join([*(f"__label__{label}" for label in of_row), text]) + "\n")
    chosen = {"lr": 1.0, "loss": "softmax"} if rows.one_class else {"lr": 0.5, "loss": "ova"}
    model = fasttext.train_supervised(str(path), epoch=25, wordNgrams=2, thread=1, verbose=0, **chosen)
    path.unlink()

    def scores(part: Any) -> np.ndarray:
        named = rows.texts["val" if part is rows.val else "test"]
        found = np.zeros((len(named), rows.labels.shape[1]), dtype=np.float32)
        for row, (names, values) in enumerate(zip(*model.predict(named, k=-1), strict=True)):
            found[row, [int(name.removeprefix("__label__")) for name in names]] = values
        return found

    return scores


def napkinxc(rows: Rows) -> Scorer:
    """napkinXC: a probabilistic label tree for sets, one-vs-rest for classes; its defaults."""
    from napkinxc.models import OVR, PLT

    where = str(rows.folder / "napkinxc")
    train = sparse.csr_matrix(rows.train)
    if rows.one_class:
        model = OVR(where, threads=1)
        model.fit(train, rows.classes.tolist())
    else:
        model = PLT(where, threads=1, seed=0)
        model.fit(train, [row.indices.tolist() for row in rows.labels])

    def scores(part: Any) -> np.ndarray:
        found = np.zeros((part.shape[0], rows.labels.shape[1]), dtype=np.float32)
        top = min(_CANDIDATES, rows.labels.shape[1])
        for row, pairs in enumerate(model.predict_proba(sparse.csr_matrix(part), top_k=top)):
            for label, value in pairs:
                found[row, label] = value
        return found

    return scores


def libmultilabel_tree(rows: Rows) -> Scorer:
    """LibMultiLabel's tree of linear models."""
    from libmultilabel import linear

    np.random.seed(0)  # The library draws its clusters from numpy's global generator.
    model = linear.train_tree(rows.labels.astype(np.float64), _double(rows.train), _LIBLINEAR, verbose=False)
    return lambda part: model.predict_values(_double(part)).astype(np.float32)


def libmultilabel_ovr(rows: Rows) -> Scorer:
    """LibMultiLabel's linear models, one-vs-rest."""
    from libmultilabel import linear

    model = linear.train_1vsrest(rows.labels.astype(np.float64), _double(rows.train), False, _LIBLINEAR, verbose=False)
    return lambda part: np.asarray(model.predict_values(_double(part)), dtype=np.float32)


# The default solver and regularization with a bias term, as in the library's own examples.
_LIBLINEAR = "-s 1 -B 1 -q"

MODELS: dict[str, tuple[str, Callable[[Rows], Scorer]]] = {
    "LinearSVC": ("sklearn.svm", linear_svc),
    "SGDClassifier": ("sklearn.linear_model", sgd),
    "logistic regression": ("sklearn.linear_model", logistic_regression),
    "boosted trees": ("sklearn.ensemble", boosted_trees),
    "fastText": ("fasttext", fasttext),
    "napkinXC": ("napkinxc.models", napkinxc),
    "LibMultiLabel tree": ("libmultilabel.linear", libmultilabel_tree),
    "LibMultiLabel one-vs-rest": ("libmultilabel.linear", libmultilabel_ovr),
}
"""The module that a model needs, and how it is trained."""


def _one_vs_rest(rows: Rows, model: Any) -> Scorer:
    """Fit a scikit-learn classifier; labels without a training row get the lowest score."""
    from sklearn.multiclass import OneVsRestClassifier

    count = rows.labels.shape[1]
    if rows.one_class:
        model.fit(rows.train, rows.classes)
        return _in_columns(_score_function(model), model.classes_, count)
    # scikit-learn refuses labels that no row or every row has.
    frequency = np.asarray(rows.labels.sum(0)).ravel()
    known = np.flatnonzero((frequency > 0) & (frequency < rows.labels.shape[0]))
    wrapped = OneVsRestClassifier(model).fit(rows.train, rows.labels[:, known])
    return _in_columns(_score_function(wrapped), known, count)


def _score_function(model: Any) -> Scorer:
    return model.decision_function if hasattr(model, "decision_function") else model.predict_proba


def _in_columns(function: Scorer, columns: np.ndarray, count: int) -> Scorer:
    def scores(part: Any) -> np.ndarray:
        some = function(part)
        found = np.full((len(some), count), some.min(), dtype=np.float32)
        found[:, columns] = some
        return found

    return scores


def _double(part: Any) -> Any:
    return sparse.csr_matrix(part, dtype=np.float64)


def _read(folder: Path) -> Rows:
    described = json.loads((folder / "task.json").read_text())

    def part(name: str) -> Any:
        path = folder / f"{name}.npz"
        return sparse.csr_matrix(sparse.load_npz(path)) if path.exists() else np.load(folder / f"{name}.npy")

    train, val, test, labels = (part(name) for name in ("train", "val", "test", "labels"))
    return Rows(train, val, test, labels, described["one_class"], described["texts"], folder)


def main(folder: Path, name: str) -> int:
    """Train, score and write; return the exit code."""
    module, train = MODELS[name]
    try:
        importlib.import_module(module)  # Importing is not training.
    except ModuleNotFoundError as error:
        print(f"{error.name} is not installed", file=sys.stderr)
        return MISSING
    rows = _read(folder)
    start = time.process_time()
    scorer = train(rows)
    trained = time.process_time()
    scores = {"val": scorer(rows.val), "test": scorer(rows.test)}
    seconds = {"train": trained - start, "predict": time.process_time() - trained}
    np.savez(folder / "scores.npz", **scores)
    (folder / "seconds.json").write_text(json.dumps(seconds))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2]))
