"""One trial of output layers: train a bottleneck or a DFT head, measure it, and ask which label sets it can say."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from lightning import seed_everything
from torch import Tensor

from experiments.data import open_data
from experiments.runs import Run
from shortlist.audit import AuditReport, audit
from shortlist.audit.certificates import Theorem
from shortlist.data import Dataset
from shortlist.data.draws import Draws
from shortlist.data.target_rows import label_pairs
from shortlist.functional import f1_at_k, f1_score, ndcg_at_k, precision_at_k, recall_at_k
from shortlist.nn import DFTHead
from shortlist.train import FitOptions
from shortlist.train.encoders import Standardised
from shortlist.train.fit import Fitted, Training, make_run, quiet_lightning
from shortlist.train.inputs import prepare_inputs
from shortlist.train.starting_point import start_at_frequencies

STARTS = ("text", "frequencies")
EPS = 1e-8
"""The text takes a region for empty if no ball of this radius is in it."""
_POINTS = 60


def layer_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train one output layer and measure it.

    Args:
        settings: ``data``; ``fit``; ``seed``; ``part``, the rows that are measured; ``start``, see `started`;
            ``audit``, how many label sets of these rows are asked about (0: none; negative: all); ``ranked``, how many
            of these are also asked about as the best-ranked labels; ``radius``, how many radii are solved at most.
        root: where data are.

    Returns:
        Figures by name, ``losses`` of the training, ``curve`` of the validation figure by epoch, ``steps`` of an epoch,
        ``step_seconds``, ``parameters`` of the output layer with its projection, and ``audit``.
    """
    run, losses, seconds = started(settings, root)
    k, fitted = int(settings["fit"]["k"]), run.fitted
    rows = run.dataset.part(settings["part"])
    history = fitted.history
    return {
        **_figures(run.logits(settings["part"]), rows.targets, k),
        "losses": _thinned(losses),
        "curve": [epoch[fitted.monitor] for epoch in history],
        "steps": len(losses) // max(len(history), 1),
        "step_seconds": seconds / max(len(losses), 1),
        "parameters": sum(each.numel() for each in fitted.model.head.parameters()),
        "audit": _audited(run, rows, settings),
    }


def started(settings: Mapping[str, Any], root: Path) -> tuple[Run, list[float], float]:
    """Train as `shortlist.train.fit` does, with a choice of where the logits start, and keep the loss of every step.

    ``start: text`` leaves a head as it is made: a bottleneck with every label near one half, a DFT head with every
    label near k / n. ``start: frequencies`` gives both the log-odds of the labels.

    Returns:
        The run, the losses, and the seconds of the training.
    """
    start, seed = settings["start"], int(settings["seed"])
    if start not in STARTS:
        raise ValueError(f"`start` must be one of {', '.join(STARTS)}; got {start!r}.")
    dataset = open_data(settings["data"], root, seed=seed)
    options = FitOptions(**{**settings["fit"], "seed": seed})
    losses: list[float] = []
    with quiet_lightning():
        seed_everything(seed, verbose=False)
        module, plan = make_run(dataset, options)
        if any(isinstance(each, Standardised) for each in module.model.modules()):
            raise ValueError(f"`encoder` must not standardise its inputs, as sparse ones do not; got {plan.encoder!r}.")
        ready = prepare_inputs(dataset, plan)
        train = ready.part("train")
        if start == "frequencies":
            start_at_frequencies(module.model.head, train.label_counts(), len(train))
        module.loss.register_forward_hook(lambda *parts: losses.append(float(parts[-1].detach())))
        with TemporaryDirectory() as scratch:
            began = time.monotonic()
            best = Training(module, train, ready.part("val"), options, options.monitor, Path(scratch)).run(False)
            seconds = time.monotonic() - began
    fitted = Fitted(module.model, plan, options, dataset.label_names, options.monitor, best, module.history)
    return Run(fitted, dataset), losses, seconds


def _figures(logits: Tensor, target: Tensor, k: int) -> dict[str, float]:
    """The figures of the text; sets of micro and macro F1 are the labels with a positive logit."""
    found = {
        "f1": f1_at_k(logits, target, k),
        "precision": precision_at_k(logits, target, k),
        "recall": recall_at_k(logits, target, k),
        "ndcg": ndcg_at_k(logits, target, k),
        "micro_f1": f1_score(logits, target, threshold=0.0, average="micro"),
        "macro_f1": f1_score(logits, target, threshold=0.0, average="macro"),
    }
    return {name: float(value) for name, value in found.items()}


def _thinned(losses: Sequence[float]) -> list[list[float]]:
    """Steps and the mean loss up to them since the last point; the first step is a point of its own."""
    edges = np.unique(np.concatenate([[0, 1], np.linspace(1, len(losses), _POINTS).round()]).astype(int))
    return [[int(end), float(np.mean(losses[begin:end]))] for begin, end in pairwise(edges)]


def label_sets(rows: Dataset) -> list[list[int]]:
    """The label sets of rows; a set of several rows counts for each of them, and rows without labels do not count."""
    at, labels, present = label_pairs(rows.targets, rows.num_labels)
    sets: dict[int, list[int]] = {}
    for row, label in zip(at[present].tolist(), labels[present].tolist(), strict=True):
        sets.setdefault(row, []).append(label)
    return [sorted(sets[row]) for row in sorted(sets)]


def _audited(run: Run, rows: Dataset, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    asked = int(settings.get("audit", 0))
    if not asked:
        return None
    head, sets = run.fitted.model.output_layer, label_sets(rows)
    order = Draws(int(settings["seed"]), "audited sets").order(len(sets)).tolist()
    chosen = [sets[index] for index in (order if asked < 0 else order[:asked])]
    degree = head.dft_degree if isinstance(head, DFTHead) else None
    report = audit(head, chosen, radius=False, jobs=1)
    ranked = audit(head, chosen[: int(settings.get("ranked", 0))], mode="top-k", radius=False, jobs=1)
    return {
        "degree": degree,
        **counts(report, most=degree),
        "ranked": ranked.counts(),
        "margins": margins(report, most=int(settings.get("radius", 0))),
    }


def counts(report: AuditReport, *, most: int | None) -> dict[str, dict[str, int]]:
    """How many sets have each verdict: those of at most ``most`` labels (None: of any size), and apart the larger.

    ``by_theorem`` of the argmaxable ones have no vector that float64 could confirm.
    """
    small = np.array([most is None or len(labels) <= most for labels in report.label_sets], dtype=bool)
    names = ("argmaxable", "unargmaxable", "undecided")
    trusted = np.array([isinstance(each, Theorem) for each in report.certificates], dtype=bool)

    def told(here: np.ndarray) -> dict[str, int]:
        found = {name: int(np.count_nonzero(report.verdicts[here] == name)) for name in names}
        return {**found, "by_theorem": int(np.count_nonzero(trusted & here))}

    return {"within": told(small), "beyond": told(~small)}


def margins(report: AuditReport, *, most: int) -> dict[str, int]:
    """How many sets have a ball of radius above 10^-8, and of radius at least 1, with features up to 10^4.

    The bounds that come with a verdict decide most; of the others up to ``most`` are solved for their radius, and what
    is left is ``open``: a set that may or may not have a ball of radius 1, and is counted as if it had none.
    """
    bounds = report.radius_bounds.copy()
    unsure = np.flatnonzero((bounds[:, 0] < 1) & (bounds[:, 1] >= 1))
    solved = unsure[:most].tolist()
    if solved:
        weight = torch.from_numpy(report.system.weight)
        exact = audit(weight, [report.label_sets[index].tolist() for index in solved], dft=report.system.dft, jobs=1)
        bounds[solved] = exact.radius_bounds
    low = bounds[:, 0]
    return {
        "sets": len(report),
        "eps": int(np.count_nonzero(low > EPS)),
        "one": int(np.count_nonzero(low >= 1)),
        "open": int(np.count_nonzero((low < 1) & (bounds[:, 1] >= 1))),
    }
