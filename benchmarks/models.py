"""Models of shortlist beside those that a user would pick today, on the same rows: ``make bench-models``.

Models of other libraries see TF-IDF weights of texts, or the same features as shortlist. Each trains in a process of
its own (`benchmarks.models_peer`); fastText, napkinXC and LibMultiLabel are looked for in the environment whose
interpreter ``--peers`` names. All models train on the part ``train``. The best epoch and the thresholds of sets come
from ``val``; rows of ``test`` decide nothing. Prints tables and writes ``benchmarks/results/models.json`` after each
model, and ``docs/models.md`` at the end; what is not measured keeps its place in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numba  # noqa: F401 - before the clock starts, as models of other libraries are imported.
import numpy as np
import scipy.sparse as sparse
import torch
from rich.console import Console
from rich.progress import Progress
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from torch import Tensor

from benchmarks.models_peer import MISSING
from benchmarks.models_report import OURS, goals, page, table
from benchmarks.side_by_side import machine, write_json
from experiments.data import open_data
from shortlist.data import Dataset, SparseRows, Texts
from shortlist.data.target_rows import label_pairs
from shortlist.factory import loss_class
from shortlist.metrics import RankingMetrics, TopKAccuracy
from shortlist.sets import AverageK
from shortlist.train import FitOptions, fit, tune
from shortlist.train.evaluation import model_scores
from shortlist.train.inputs import is_one_class, prepare_parts

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "models.md"
PARTS = ("train", "val", "test")
PEER = Path(__file__).with_name("models_peer.py")
SCIKIT_LEARN = ("LinearSVC", "SGDClassifier", "logistic regression", "boosted trees")
OTHERS = ("fastText", "napkinXC", "LibMultiLabel tree", "LibMultiLabel one-vs-rest")
ONE_VS_REST = ("LinearSVC", "SGDClassifier", "LibMultiLabel one-vs-rest")
MOST_WEIGHTS = 2**29
"""Above this number of features × labels one-vs-rest models are left out: they keep dense weights, here of 4 GB."""

LOSSES = {True: ("average_k", "lml_nll"), False: ("two_way", "lml_nll")}
"""The library's losses beside the default: for one class per row, and for sets."""

QUICK_ROWS = {"train": 2000, "val": 500, "test": 500}
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


STARTED = datetime.now(timezone.utc).isoformat(timespec="seconds")
"""The present run; the file tells which run measured a model."""


class Task(NamedTuple):
    """How `experiments.data` opens a dataset, the size K of its prediction sets, and the models to compare with."""

    data: Mapping[str, Any]
    k: int
    peers: tuple[str, ...]


def _text(data: Mapping[str, Any], k: int) -> Task:
    return Task(data, k, (*SCIKIT_LEARN[:2], *OTHERS))


def _table(name: str, k: int) -> Task:
    return Task({"loader": "mulan", "name": name}, k, SCIKIT_LEARN[2:])


SUITES: dict[str, dict[str, Task]] = {
    "text": {
        "clinc150": _text({"loader": "clinc150", "words": None}, 3),
        "debtags": _text({"loader": "debtags", "words": None, "min_count": 1}, 5),
        "bibtex": _text({"loader": "mulan", "name": "bibtex", "dense": False}, 5),
        "delicious": _text({"loader": "mulan", "name": "delicious", "dense": False}, 5),
        "pubmed_mesh": _text({"loader": "pubmed_mesh", "words": None}, 5),
    },
    # K is the average number of labels, rounded up.
    "tables": {
        "yeast": _table("yeast", 5),
        "scene": _table("scene", 2),
        "emotions": _table("emotions", 2),
        "enron": _table("enron", 4),
        "medical": _table("medical", 2),
        "corel5k": _table("corel5k", 4),
        "tmc2007": _table("tmc2007", 3),
        "bibtex, dense": _table("bibtex", 3),
    },
    "images": {
        "cifar100": Task({"open": "cifar100/cifar100_small.npz", "format": "cifar"}, 5, ("logistic regression",)),
    },
}


class Scores(NamedTuple):
    """Scores of a model, ``(rows, labels)``, and the processor seconds of training and of both predictions.

    ``links`` are the ways to compare scores between rows: of the loss, or None for scores as they are and softmax.
    """

    val: Tensor
    test: Tensor
    train_seconds: float
    predict_seconds: float
    links: tuple[str | None, ...] = (None, "softmax")


def shortlist_scores(data: Dataset, k: int, loss: str = "auto", *, trials: int = 0) -> Scores:
    """Train with the defaults, or with another loss, and score the other parts.

    The training counts the ``trials`` in which learning rate and weight decay are found on the part ``val``, if any.
    """
    start = time.process_time()
    options = FitOptions(loss=loss, k=k)
    fitted = fit(data, tune(data, options, trials=trials).options if trials else options)
    trained = time.process_time()
    prepared = prepare_parts(data, fitted.plan, ("val", "test"))
    val, test = (model_scores(fitted.model, prepared.part(part), data.num_labels) for part in ("val", "test"))
    end = time.process_time()
    return Scores(val, test, trained - start, end - trained, (loss_class(fitted.plan.loss).link,))


class PeerInputs(NamedTuple):
    """What models of other libraries read: a folder, the processor seconds that TF-IDF took, the number of features."""

    folder: Path
    train_seconds: float
    predict_seconds: float
    num_features: int


def write_inputs(data: Dataset, folder: Path) -> PeerInputs:
    """Write inputs and training labels for `benchmarks.models_peer`; sparse features get rows of unit length."""
    train = data.part("train")
    rows, labels, present = label_pairs(train.targets, data.num_labels)
    ones = (np.ones(int(present.sum()), dtype=np.float32), (rows[present].numpy(), labels[present].numpy()))
    sparse.save_npz(folder / "labels.npz", sparse.csr_matrix(ones, shape=(len(train), data.num_labels)))
    start = time.process_time()
    inputs = {part: data.part(part).inputs for part in PARTS}
    if isinstance(data.inputs, Texts):
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2, dtype=np.float32)
        matrices = {"train": words.fit_transform(inputs["train"].texts)}
        trained = time.process_time()
        matrices |= {part: words.transform(inputs[part].texts) for part in ("val", "test")}
        texts = {part: [" ".join(text.lower().split()) for text in inputs[part].texts] for part in PARTS}
    else:
        matrices = {part: _matrix(inputs[part]) for part in PARTS}
        trained = time.process_time()
        texts = {part: _column_names(matrix) for part, matrix in matrices.items() if sparse.issparse(matrix)}
    end = time.process_time()
    for part, matrix in matrices.items():
        if sparse.issparse(matrix):
            sparse.save_npz(folder / f"{part}.npz", matrix)
        else:
            np.save(folder / f"{part}.npy", matrix)
    task = {"one_class": is_one_class(data), "texts": texts}
    (folder / "task.json").write_text(json.dumps(task))
    return PeerInputs(folder, trained - start, end - trained, matrices["train"].shape[1])


def _matrix(inputs: Any) -> Any:
    if isinstance(inputs, SparseRows):
        entries = (inputs.values.numpy(), inputs.columns.numpy(), inputs.crow.numpy())
        return normalize(sparse.csr_matrix(entries, shape=(len(inputs), inputs.width)))
    return inputs.batch(torch.arange(len(inputs))).flatten(1).numpy().astype(np.float32)


def _column_names(matrix: Any) -> list[str]:
    """Texts for fastText: one word for each stored column."""
    bounds = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    return [" ".join(f"f{column}" for column in matrix.indices[start:end]) for start, end in bounds]


def peer_scores(name: str, inputs: PeerInputs, data: Dataset, interpreter: str) -> Scores | str:
    """Train another library's model in its own process; return its scores, or why it did not run."""
    weights = inputs.num_features * data.num_labels
    if name in ONE_VS_REST and weights > MOST_WEIGHTS:
        return f"left out: dense weights of {8 * weights / 2**30:.0f} GiB"
    command = [interpreter, str(PEER), str(inputs.folder), name]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | THREADS)
    reason = (run.stderr.strip().splitlines() or [""])[-1]
    if run.returncode:
        return f"{'not run' if run.returncode == MISSING else 'failed'}: {reason}"
    seconds = json.loads((inputs.folder / "seconds.json").read_text())
    with np.load(inputs.folder / "scores.npz", allow_pickle=False) as file:
        val, test = (torch.from_numpy(file[part]) for part in ("val", "test"))
    return Scores(val, test, inputs.train_seconds + seconds["train"], inputs.predict_seconds + seconds["predict"])


def measure(scores: Scores, data: Dataset, k: int) -> dict[str, float]:
    """Accuracies in percent, and processor seconds.

    ``average`` is the mean share of the labels of a row that are in its set, for sets of K labels on average. Where
    scores can be compared between rows in two ways, the validation rows choose.
    """
    val, test = data.part("val"), data.part("test")
    if is_one_class(data):
        metrics: dict[str, Any] = {"top1": TopKAccuracy(1), "topK": TopKAccuracy(k)}
        for metric in metrics.values():
            metric.update(scores.test, test.targets)
        found = {name: float(metric.compute()) for name, metric in metrics.items()}
    else:
        ranking = RankingMetrics(sorted({1, k}))
        ranking.update(scores.test, test.targets)
        values = ranking.compute()
        names = {"P@1": "precision@1", "P@K": f"precision@{k}", "recall@K": f"recall@{k}"}
        found = {name: float(values[key]) for name, key in names.items()}
    rules = {link: _average_k(scores.val, k, link) for link in scores.links}
    best = max(rules, key=lambda link: _recall(rules[link], scores.val, val)[0])
    found["average"], size = _recall(rules[best], scores.test, test)
    accuracies = {name: 100 * value for name, value in found.items()}
    return accuracies | {"size": size, "train": scores.train_seconds, "predict": scores.predict_seconds}


def _average_k(val: Tensor, k: int, link: str | None) -> AverageK:
    rule = AverageK(k, link=link or "softmax")  # pyright: ignore[reportArgumentType]
    return rule.fit(val, from_logits=link is not None)


def _recall(rule: AverageK, scores: Tensor, rows: Dataset) -> tuple[float, float]:
    """The mean recall of the sets, over rows with labels, and their average size."""
    sets = rule.predict(scores)
    of_row, _, present = label_pairs(rows.targets, rows.num_labels)
    counts = torch.bincount(of_row[present], minlength=len(rows))
    recall = sets.count_hits(rows.targets)[counts > 0] / counts[counts > 0]
    return float(recall.double().mean()), float(sets.sizes.double().mean())


def quick_part(data: Dataset) -> Dataset:
    """At most a few thousand rows, drawn at random from each part."""
    generator = torch.Generator().manual_seed(0)
    chosen = []
    for part, most in QUICK_ROWS.items():
        rows = data.part_rows(part)
        chosen.append(rows[torch.randperm(len(rows), generator=generator)[:most]])
    return data.subset(torch.cat(chosen).sort().values)


def compare(
    data: Dataset, task: Task, chosen: Sequence[str], *, peers: str | None, trials: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure the chosen models on one dataset, one after another; yield each with what was found."""
    for model, loss in our_models(data).items():
        if model in chosen:
            yield model, measure(shortlist_scores(data, task.k, loss, trials=trials), data, task.k)
    others = [model for model in task.peers if model in chosen]
    if not others:
        return
    with TemporaryDirectory() as folder:
        inputs = write_inputs(data, Path(folder))
        for model in others:
            interpreter = sys.executable if model in SCIKIT_LEARN else peers
            found = "not run" if interpreter is None else peer_scores(model, inputs, data, interpreter)
            yield model, {"reason": found} if isinstance(found, str) else measure(found, data, task.k)


def our_models(data: Dataset) -> dict[str, str]:
    """The models of shortlist by name: that of the default loss, and those of the library's losses."""
    return {OURS: "auto"} | {f"{OURS}, {loss}": loss for loss in LOSSES[is_one_class(data)]}


def described(name: str, task: Task, data: Dataset, *, trials: int, quick: bool) -> dict[str, Any]:
    """The record of a dataset, without models."""
    rows = {part: len(data.part_rows(part)) for part in PARTS}
    about = {"name": name, "rows": rows, "labels": data.num_labels, "k": task.k, "one_class": is_one_class(data)}
    return about | {"trials": trials, "quick": quick}


def update(
    path: Path, about: dict[str, Any], order: Sequence[str], model: str, found: dict[str, Any]
) -> dict[str, Any]:
    """Put a model into the file, which another run may have changed; models of other rows or trials are dropped."""
    datasets = json.loads(path.read_text())["datasets"] if path.exists() else {}
    before = datasets.get(about["name"])
    if not isinstance(before, dict) or {key: before.get(key) for key in about} != about:
        before = {}
    models = {**before.get("models", {}), model: found}
    models = {name: models[name] for name in order if name in models}
    runs = {**before.get("runs", {}), model: STARTED}
    record = about | {"machine": machine(), "models": models, "runs": runs}
    datasets[about["name"]] = record | {"goals": goals(record) if models.keys() >= set(order[:3]) else []}
    write_json({"datasets": datasets}, path)
    return datasets[about["name"]]


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("datasets", nargs="*", help="names of datasets; all of the suite if there are none")
    parser.add_argument("--data-root", type=Path, required=True, help="folder of the datasets")
    parser.add_argument("--suite", choices=[*SUITES, "all"], default="all")
    parser.add_argument("--peers", help="interpreter of the environment of fastText, napkinXC and LibMultiLabel")
    parser.add_argument(
        "--tune", type=int, default=0, help="trials to find learning rate and weight decay, for each loss"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="MODEL",
        help="measure models with these names; others keep their place",
    )
    parser.add_argument("--quick", action="store_true", help=f"at most {QUICK_ROWS['train']} training rows")
    parser.add_argument("--output", type=Path, default=RESULTS / "models.json", help="where results are written")
    chosen = parser.parse_args(words)
    suites = SUITES.values() if chosen.suite == "all" else [SUITES[chosen.suite]]
    tasks = {name: task for suite in suites for name, task in suite.items()}
    unknown = [name for name in chosen.datasets if name not in tasks]
    if unknown:
        parser.error(f"datasets must be among {', '.join(tasks)}; got {unknown[0]!r}")
    chosen.tasks = {name: task for name, task in tasks.items() if not chosen.datasets or name in chosen.datasets}
    return chosen


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    chosen = arguments(words)
    torch.set_num_threads(1)
    console = Console(width=150)
    met: list[bool] = []
    with Progress(console=console, transient=True) as progress:
        for name, task in chosen.tasks.items():
            data = open_data(task.data, chosen.data_root, seed=0)
            data = quick_part(data) if chosen.quick else data
            about = described(name, task, data, trials=chosen.tune, quick=chosen.quick)
            order = [*our_models(data), *task.peers]
            wanted = [model for model in order if not chosen.only or model.startswith(tuple(chosen.only))]
            bar = progress.add_task(name, total=len(wanted))
            record: dict[str, Any] = {"goals": []}
            for model, found in compare(data, task, wanted, peers=chosen.peers, trials=chosen.tune):
                record = update(chosen.output, about, order, model, found)
                progress.advance(bar)
            met += [goal["met"] for goal in record["goals"] if goal["met"] is not None]
            if record["goals"]:
                progress.console.print(table(record))
    console.print(f"goals met: {sum(met)} of {len(met)}")
    console.print(f"written: {chosen.output}")
    if chosen.output == RESULTS / "models.json":
        PAGE.write_text(page(json.loads(chosen.output.read_text())["datasets"]))
        console.print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
