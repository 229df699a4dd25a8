"""Features learned with different losses, evaluated by linear classifiers on other data (two-way, table A)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from experiments.candidates import Run, count_trials, merged, trained
from experiments.data import open_data
from experiments.presentation import file_name, mean, saved, tried_words
from experiments.two_way import on_dataset
from shortlist.data import Dataset
from shortlist.evidence import Claim, Figure, Lab, Outcome, Table, all_of, beats
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.train.comparison import Interval
from shortlist.train.inputs import row_batches


class Linear(NamedTuple):
    """A linear classifier: ``(features, classes)`` and ``(classes,)``."""

    weight: Tensor
    bias: Tensor

    def accuracy(self, features: Tensor, classes: Tensor) -> float:
        """The fraction of rows whose largest score is that of the class."""
        return float(((features @ self.weight + self.bias).argmax(-1) == classes).double().mean())


def strengths(settings: Mapping[str, Any]) -> list[float]:
    """Weights of the L2 penalty from strong to weak, evenly spaced on a logarithmic scale.

    Example:
        >>> strengths({"least": 0.01, "most": 1.0, "count": 3})
        [1.0, 0.1, 0.01]
    """
    low, high, count = math.log10(settings["least"]), math.log10(settings["most"]), settings["count"]
    return [round(10 ** (high + (low - high) * at / max(count - 1, 1)), 12) for at in range(count)]


def logistic_path(
    features: Tensor,
    classes: Tensor,
    num_classes: int,
    penalties: Sequence[float],
    *,
    steps: int = 100,
    tolerance: float = 1e-4,
) -> Iterator[Linear]:
    r"""Multinomial logistic regression by L-BFGS for each penalty in turn, each starting at the previous solution.

    .. math:: \min_{W, b} \sum_i \ell(x_i W + b, y_i) + \tfrac{\lambda}{2} \|W\|^2

    The optimization is preconditioned: features are centered, rotated to their principal axes and scaled by a bound on
    the curvature, :math:`s / 2 + \lambda / N` for an axis of variance s. Few steps then suffice for strong and weak
    penalties, and the solution is the same.

    Args:
        features: ``(N, d)``, floating; computations use its dtype.
        classes: ``(N,)``, int64.
        num_classes: how many.
        penalties: the :math:`\lambda`, above 0; best from strong to weak.
        steps: the maximum per penalty.
        tolerance: of the largest gradient entry of the mean loss, in those coordinates.
    """
    count, mean = len(features), features.mean(0)
    centered = features - mean
    variance, axes = torch.linalg.eigh(centered.T @ centered / count)
    rotated = centered @ axes
    inner = torch.zeros(features.shape[1] + 1, num_classes, dtype=features.dtype)
    for penalty in penalties:
        if not penalty > 0:
            raise ValueError(f"`penalties` must be above 0; got {penalty}.")
        scale = (variance.clamp(min=0) / 2 + penalty / count).rsqrt().unsqueeze(-1)
        scale = torch.cat([scale, torch.full_like(scale[:1], math.sqrt(2))])  # the curvature of the bias is at most 1/2
        start = inner / scale
        inner = scale * _minimized(rotated, classes, scale, start, penalty / count, steps, tolerance)
        weight = axes @ inner[:-1]
        yield Linear(weight, inner[-1] - mean @ weight)


def _minimized(
    x: Tensor, classes: Tensor, scale: Tensor, start: Tensor, decay: float, steps: int, tolerance: float
) -> Tensor:
    """The scaled parameters, bias last, that minimize mean loss plus penalty."""
    point = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [point],
        max_iter=steps,
        tolerance_grad=tolerance,
        tolerance_change=0,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def value() -> Tensor:
        optimizer.zero_grad()
        actual = scale * point
        loss = cross_entropy(x @ actual[:-1] + actual[-1], classes) + decay / 2 * actual[:-1].square().sum()
        loss.backward()
        return loss

    optimizer.step(value)
    return point.detach()


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train on the source, freeze the encoder, and fit linear classifiers on every downstream dataset.

    Without ``fit``, the inputs themselves are the features. Returns, by downstream dataset, the accuracy on validation
    and test rows for each penalty, from strong to weak.
    """
    run = trained(settings, root) if settings["fit"] else None
    return {name: _evaluated(run, described, settings, root) for name, described in settings["downstream"].items()}


def _evaluated(
    run: Run | None, described: Mapping[str, Any], settings: Mapping[str, Any], root: Path
) -> dict[str, Any]:
    dataset = open_data(described, root, seed=int(settings["seed"]))
    parts = {name: dataset.part(name) for name in ("train", "val", "test")}
    features = {name: _features(run, part) for name, part in parts.items()}
    found: dict[str, list[float]] = {"val": [], "test": []}
    penalties = strengths(settings["penalties"])
    path = logistic_path(features["train"], parts["train"].true_targets, dataset.num_labels, penalties)
    for classifier in path:
        for name, values in found.items():
            values.append(classifier.accuracy(features[name], parts[name].true_targets))
    return found


@torch.no_grad()
def _features(run: Run | None, part: Dataset) -> Tensor:
    """The features of all rows from the frozen encoder."""
    rows = (part.inputs.batch(rows) for rows in row_batches(len(part)))
    if run is None:
        return torch.cat([each.float() for each in rows])
    model = run.fitted.model.eval()
    device = next(model.parameters()).device
    return torch.cat([model.encoder(each.to(device)).cpu() for each in rows])


def study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Compare losses by the features that they learn.

    Args:
        settings: those of `experiments.two_way.study`, with one dataset ``source`` instead of ``datasets``;
            ``downstream``, data by name; ``penalties`` with ``least``, ``most`` and ``count``; ``ours``, the candidate
            that the claim is about; ``inputs``, whether to evaluate the raw inputs, too.
        published: ``sizes``, by downstream dataset the number of classes, training rows and test rows.
        lab: runs the trials.
    """
    seeds, candidates = settings["seeds"], settings["candidates"]
    lab.plan(count_trials(settings) + settings["inputs"])
    choices = on_dataset(lab, {**settings, "seeds": []}, settings["source"]).choices
    shared = {"data": settings["source"]["data"], "downstream": settings["downstream"]}
    shared["penalties"] = settings["penalties"]
    asked = []
    for name in candidates:
        own = (settings["fit"], settings["source"].get("fit", {}), candidates[name].get("fit", {}))
        fit = merged(*own, choices[name].options)
        asked += [{**shared, "fit": fit, "seed": seed} for seed in seeds]
    results = lab.trials(trial, asked)
    plain = lab.trials(trial, [{**shared, "fit": {}, "seed": seeds[0]}])[0] if settings["inputs"] else None
    found = {name: results[at * len(seeds) : (at + 1) * len(seeds)] for at, name in enumerate(candidates)}
    return Outcome(
        _setup(settings),
        _claims(settings, found),
        [_table(name, found, plain) for name in settings["downstream"]] + _sizes(published),
        [_chart(name, found, settings, lab) for name in settings["downstream"]],
        tried_words(choices),
        {"found": found, "inputs": plain},
    )


def at_best(found: Mapping[str, Sequence[float]], by: str) -> float:
    """Test accuracy at the penalty with the best accuracy on part ``by``; among equals, at the strongest.

    Example:
        >>> at_best({"val": [0.5, 0.7, 0.6], "test": [0.4, 0.5, 0.8]}, "val")
        0.5
    """
    return found["test"][max(range(len(found[by])), key=found[by].__getitem__)]


def _claims(settings: Mapping[str, Any], found: Mapping[str, list[Any]]) -> list[Claim]:
    ours, parts = settings["ours"], []
    for downstream in settings["downstream"]:
        figures = {who: [at_best(each[downstream], "val") for each in runs] for who, runs in found.items()}
        for other in [name for name in found if name != ours]:
            names, worth = (f"{downstream}: {ours}", other), settings["worth"]
            parts.append(beats(figures[ours], figures[other], names=names, worth=worth))
    claim = "Features learned with the two-way loss are better for linear classifiers on other data."
    return [Claim(claim, "table 8 of the main paper, which is not available here", all_of(parts))]


def _setup(settings: Mapping[str, Any]) -> str:
    penalties, fit = settings["penalties"], settings["fit"]
    return (
        f"An encoder ({fit.get('encoder', 'auto')} {dict(fit.get('encoder_options', {}))}) is trained on "
        f"{settings['source']['name']} with each loss; learning rate and loss parameters are chosen on validation rows "
        "of the source, as for tables B and C. The encoder is then frozen, and multinomial logistic regression with an "
        f"L2 penalty is fitted by L-BFGS on {', '.join(settings['downstream'])} for {penalties['count']} weights from "
        f"{penalties['most']:g} to {penalties['least']:g}, each starting at the previous solution. "
        f"{len(settings['seeds'])} seeds. The verdict uses the weight chosen on validation rows; the best weight on "
        "the test rows, which the paper reports and which is optimistic, is listed next to it."
    )


def _table(downstream: str, found: Mapping[str, list[Any]], plain: Mapping[str, Any] | None) -> Table:
    rows: list[list[Any]] = [
        [who, *(Interval.of([at_best(each[downstream], by) for each in runs]) for by in ("val", "test"))]
        for who, runs in found.items()
    ]
    note = ""
    if plain is not None:
        rows.append(["raw inputs", *(at_best(plain[downstream], by) for by in ("val", "test"))])
        note = "The raw inputs have more columns than the learned features, and no seeds."
    columns = ["features learned with", "penalty by validation rows", "best on test rows (as in the paper)"]
    return Table(f"Accuracy on {downstream}, in percent", columns, rows, percent=True, digits=2, note=note)


def _sizes(published: Mapping[str, Any]) -> list[Table]:
    rows = [[name, *size] for name, size in published.get("sizes", {}).items()]
    return (
        [Table("Downstream data of the paper", ["data", "classes", "training", "test"], rows, digits=0)] if rows else []
    )


def _chart(downstream: str, found: Mapping[str, list[Any]], settings: Mapping[str, Any], lab: Lab) -> Figure:
    positions, series = tuple(strengths(settings["penalties"])), []
    for at, (who, runs) in enumerate(found.items()):
        means = tuple(mean(values) for values in zip(*(run[downstream]["test"] for run in runs), strict=True))
        series.append(Series(who, "line", positions, means, candidate_style(at), marked=True))
    title = f"Accuracy on {downstream}, mean over seeds"
    axes = Axis("weight of the L2 penalty", scale="log"), Axis("accuracy on test rows", percent=True)
    caption = f"Linear classifiers on frozen features for {downstream}, by the weight of their penalty."
    return saved(Chart(title, *axes, tuple(series)), lab, file_name(downstream), caption)
