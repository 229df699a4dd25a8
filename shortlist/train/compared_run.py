"""One run of a comparison: train, evaluate, look at what a report shows, and keep it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from shortlist.comparison_document import AuditCounts, AuditSummary, RunDetails
from shortlist.data import Dataset
from shortlist.data.draws import Draws
from shortlist.errors import InputError
from shortlist.extras import require
from shortlist.files import read_document, replacing
from shortlist.nn import CosineHead
from shortlist.train.evaluation import Evaluation, evaluate
from shortlist.train.findings import answers, fitted_rules, set_findings, size_grid, true_pairs, unknown_pairs
from shortlist.train.fit import Fitted, fit
from shortlist.train.identity import difference, run_identity
from shortlist.train.model import SetModel
from shortlist.train.options import FitOptions
from shortlist.train.saved_model import save_model
from shortlist.typed_json import decode, encode

_FORMAT = "shortlist comparison run"
_VERSION = 2
RESULT_FILE = "result.json"
_EXAMPLES = 6
# Beyond, a sample of the sets is asked for: an audit of all might take longer than the training.
_MOST_AUDITED = 10_000
_MOST_NAMED = 5


@dataclass(frozen=True)
class Asked:
    """What a run is: its name, its options, where it is kept, what it is evaluated on, and whether it is audited.

    ``source`` says how the data were read, and is kept with the model.
    """

    name: str
    options: FitOptions
    place: Path | None
    part: str
    audit: bool
    source: Mapping[str, Any] | None = None


def compared_run(dataset: Dataset, asked: Asked, *, progress: Callable[[float], object] | None = None) -> RunDetails:
    """Train and evaluate a run, or read its result if it is finished.

    Args:
        dataset: of the comparison.
        asked: which run.
        progress: called with the share of the training that is done.

    Raises:
        ValueError: if another run is kept there, or a damaged one; or for what goes wrong in it, with its name.
    """
    found = kept_run(dataset, asked)
    if found is not None:
        return found
    began = time.monotonic()
    with _naming(asked):
        fitted = fit(dataset, asked.options, folder=asked.place, progress=progress or False)
    evaluation = evaluate(fitted, dataset, part=asked.part)
    details = _details(dataset, asked, fitted, evaluation, began)
    if asked.place is not None:
        save_model(fitted, asked.place, rule=evaluation.rule, source=asked.source)
        with replacing(asked.place / RESULT_FILE) as partial:
            asked_for = identity_of(dataset, asked)
            content = {"format": _FORMAT, "version": _VERSION, "asked": asked_for, "details": encode(details)}
            partial.write_text(json.dumps(content, allow_nan=False))
        # They are for going on with a run, and this one has ended.
        shutil.rmtree(asked.place / "checkpoints", ignore_errors=True)
    return details


def kept_run(dataset: Dataset, asked: Asked) -> RunDetails | None:
    """Return a finished run, or None; raise InputError if its folder holds another run or a damaged one."""
    if asked.place is None or not (asked.place / RESULT_FILE).is_file():
        return None
    return _read(asked.place / RESULT_FILE, identity_of(dataset, asked))


def identity_of(dataset: Dataset, asked: Asked) -> dict[str, Any]:
    """What tells a run of a comparison from others, as plain values."""
    return {**run_identity(dataset, asked.options), "part": asked.part, "audit": asked.audit}


@contextmanager
def _naming(asked: Asked) -> Iterator[None]:
    """Say which of the runs it was, unless it is about the data of all, or about the folder of this one."""
    try:
        yield
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        if reason.startswith(("`dataset` ", f"`{asked.place}")):
            raise
        raise ValueError(f"candidate {asked.name!r}, seed {asked.options.seed}: {reason}.") from error


def example_positions(num_rows: int) -> Tensor:
    """Positions of the rows that a report shows: the same for all runs on as many rows."""
    order = torch.from_numpy(Draws(0, "examples of a comparison").order(num_rows))
    return order[:_EXAMPLES].sort().values


def _details(dataset: Dataset, asked: Asked, fitted: Fitted, evaluation: Evaluation, began: float) -> RunDetails:
    rows, k = dataset.part(asked.part), asked.options.k
    rules = fitted_rules(evaluation, size_grid(k, dataset.num_labels))
    return RunDetails(
        values=evaluation.values,
        best_epoch=fitted.best_epoch,
        monitor=fitted.monitor,
        loss=fitted.plan.loss,
        history=[dict(row) for row in fitted.history],
        sets=set_findings(evaluation, rows, dataset.label_counts("train"), rules, k=k),
        answers=answers(evaluation, example_positions(len(rows)), dataset.label_names, rules),
        audit=audited(fitted.model, rows) if asked.audit else None,
        seconds=round(time.monotonic() - began, 2),
    )


def audited(model: SetModel, rows: Dataset) -> AuditSummary:
    """Which label sets of some rows a model can never rank first, whatever its input.

    The question is the one that holds for all losses, thresholds and set rules: can the labels of the set be the best
    ones? Rows without labels ask nothing.
    """
    auditing = require("shortlist.audit", extra="audit")
    began, layer = time.monotonic(), model.output_layer
    # Cosines go by the directions of the rows alone.
    layer = normalize(layer.weight.detach()) if isinstance(layer, CosineHead) else layer
    asked = _distinct_sets(rows)
    report = auditing.audit(layer, asked, mode="top-k", radius=False, jobs=1, names=rows.label_names)
    impossible = [index for index in report.worst(_MOST_NAMED) if report.verdicts[index] == "unargmaxable"]
    return AuditSummary(
        mode="top-k",
        sets=len(report),
        **report.counts(),
        labels=rows.num_labels,
        features=int(report.system.weight.shape[1]),
        seconds=round(time.monotonic() - began, 2),
        by_size=[AuditCounts(row.size, row.argmaxable, row.unargmaxable, row.undecided) for row in report.table()],
        worst=[report.labels_of(index) for index in impossible],
    )


def _distinct_sets(rows: Dataset) -> list[list[int]]:
    """Label sets that rows have; of a row with unknown labels nobody knows which it is."""
    at, labels = true_pairs(rows)
    unsure = torch.zeros(len(rows), dtype=torch.bool)
    unsure[unknown_pairs(rows)[0]] = True
    at, labels = at[~unsure[at]], labels[~unsure[at]]
    sets: dict[int, list[int]] = {}
    for row, label in zip(at.tolist(), labels.tolist(), strict=True):
        sets.setdefault(row, []).append(label)
    distinct = sorted({tuple(sorted(labels)) for labels in sets.values()})
    chosen = Draws(0, "audited sets").order(len(distinct))[:_MOST_AUDITED].tolist()
    return [list(distinct[index]) for index in sorted(chosen)]


def _read(path: Path, identity: dict[str, Any]) -> RunDetails:
    document = read_document(path, kind=_FORMAT, version=_VERSION)
    if document.get("asked") != identity:
        told = difference(document.get("asked"), identity)
        raise InputError(f"`{path}` is of another run ({told}); choose another folder.")
    return decode(RunDetails, document.get("details"), file=path)
