"""Long-tailed classes: which loss serves classes with few training rows (sets, tables 4.5, 4.6 and 4.8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.candidates import Asked, Run, count_runs, merged, tuned_runs
from experiments.data import open_data
from experiments.presentation import data_words, differences, fit_words, saved, tried_words, tuning_words
from shortlist.data import Dataset, Groups, long_tail
from shortlist.evidence import Choice, Claim, Finding, Lab, Outcome, Table, alike, all_of, beats
from shortlist.evidence.lab import Trial
from shortlist.evidence.verdicts import HOLDS, OPEN
from shortlist.functional import margins_from_counts
from shortlist.functional.metrics.accuracy import class_hits
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.train import FitOptions, fit
from shortlist.train.comparison import Interval
from shortlist.train.comparison.findings import Shots

# The width of the paper's intervals; the smallest gain of table 4.5 that it mentions is 1.3 points.
WORTH = 0.005
# The paper calls the balanced noised loss similar to cross-entropy; they differ by up to 2.3 points in table 4.5.
SIMILAR = 0.023
# In table 4.8 the paper calls a loss better from 0.1 points on (K = 5, against cross-entropy).
REGULAR_WORTH = 0.001
SHOTS = ("few", "medium", "many")
_CE, _LDAM, _SVM, _BALANCED, _OURS = "cross_entropy", "ldam", "smooth_topk_svm", "noised_topk", "noised_topk_imbalanced"


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train a model and evaluate one part.

    Args:
        settings: ``data``, ``fit``, ``seed``, ``part``; ``tail`` as in `tailed`; ``ks``, the set sizes to evaluate. The
            loss option ``largest_margin`` becomes one margin per class.
        root: where the data are.

    Returns:
        For each K, ``macroK``, ``fewK``, ``mediumK``, ``manyK``: means over classes; ``rowsK``: the mean over rows;
        ``trainingK``: the mean over classes weighted by their training rows. Also ``few``, ``medium``, ``many``: how
        many classes each shot group has. Means over no class are None.
    """
    seed = int(settings["seed"])
    dataset = tailed(open_data(settings["data"], root, seed=seed), settings["tail"], seed=seed)
    counts = dataset.label_counts("train")
    run = Run(fit(dataset, FitOptions(**{**with_margins(settings["fit"], counts), "seed": seed})), dataset)
    rows = dataset.part(settings["part"])
    ks = [min(int(k), dataset.num_labels) for k in settings["ks"]]
    hits, total, _ = class_hits(run.logits(settings["part"]), rows.true_targets, ks).sums(dataset.num_labels)
    found: dict[str, Any] = dict(shot_sizes(counts))
    for index, k in enumerate(settings["ks"]):
        means = class_means(hits[:, index] / total, counts, total)
        found |= {f"{name}{k}": value for name, value in means.items()}
    return found


def tailed(dataset: Dataset, tail: Mapping[str, Any] | None, *, seed: int) -> Dataset:
    """Subsample rows to a long tail with a random order of classes; without ``tail``, return the data unchanged.

    Args:
        dataset: one class per row.
        tail: ``imbalance``, the ratio of the largest to the smallest class; ``parts`` to subsample, with the same order
            of classes in all (default ``train`` alone).
        seed: of the order and the rows.
    """
    if not tail:
        return dataset
    for part in tail.get("parts", ("train",)):
        # `long_tail` subsamples the part `train`, so the part takes that name for a moment.
        swapped = long_tail(_swapped(dataset, part), tail["imbalance"], order="random", seed=seed)
        dataset = _swapped(swapped, part)
    return dataset


def _swapped(dataset: Dataset, part: str) -> Dataset:
    split = dataset.split
    if split is None or part not in split.names:
        raise ValueError(f"`parts` of the tail must be parts of the data; got {part!r}.")
    other = {part: "train", "train": part}
    return replace(dataset, split=Groups(split.index, tuple(other.get(name, name) for name in split.names)))


def with_margins(options: Mapping[str, Any], counts: Tensor) -> dict[str, Any]:
    """Replace the loss option ``largest_margin`` by one margin per class, larger for rarer classes."""
    loss_options = dict(options.get("loss_options", {}))
    if "largest_margin" in loss_options:
        loss_options["margin"] = margins_from_counts(counts, largest=loss_options.pop("largest_margin"))
    return {**options, "loss_options": loss_options}


def shot_sizes(counts: Tensor) -> dict[str, int]:
    """The number of classes in each shot group."""
    shots = Shots.of_counts(counts)
    return {name: int((shots.of_label == index).sum()) for index, name in enumerate(shots.names)}


def class_means(by_class: Tensor, counts: Tensor, total: Tensor) -> dict[str, float | None]:
    """Means over classes, in the ways that the tables show.

    Args:
        by_class: ``(n,)``, a value per class; ignored for classes without rows.
        counts: ``(n,)``, training rows of each class.
        total: ``(n,)``, evaluated rows of each class.

    Returns:
        ``macro``, over all classes with rows; ``few``, ``medium`` and ``many``, over shot groups; ``rows`` and
        ``training``, weighted by evaluated and by training rows. None where there is no such class.

    Example:
        >>> class_means(torch.tensor([1.0, 0.0]), torch.tensor([300, 100]), torch.tensor([1, 1]))["training"]
        0.75
    """
    shots, occurs = Shots.of_counts(counts), total > 0
    one = torch.ones_like(total)
    weights = {"macro": one, "rows": total, "training": counts}
    weights |= {name: one * (shots.of_label == index) for index, name in enumerate(shots.names)}
    values = by_class.double().where(occurs, 0.0)
    means = {
        name: float((values * weight * occurs).sum() / (weight * occurs).sum()) for name, weight in weights.items()
    }
    return {name: None if math.isnan(mean) else mean for name, mean in means.items()}


@dataclass(frozen=True)
class Measured:
    """Results of the final runs by candidate and K, one dict per seed."""

    choices: Mapping[str, Choice]
    found: Mapping[str, Mapping[int, list[dict[str, Any]]]]

    def values(self, name: str, figure: str, k: int, *, trained: int | None = None) -> list[float]:
        """A value at K per seed, of the models trained for K or ``trained``; empty if some seed has none."""
        values = [run[f"{figure}{k}"] for run in self.found[name][k if trained is None else trained]]
        return [] if None in values else values

    def rivals(self, name: str, figure: str, k: int) -> list[str]:
        """The other candidates, by decreasing mean."""
        others = [other for other in self.found if other != name]
        return sorted(others, key=lambda other: -sum(self.values(other, figure, k)))


def measured(lab: Lab, trial: Trial, settings: Mapping[str, Any], asked: Asked, *, figure: str) -> Measured:
    """Choose options for ``tuning_k``, then train: once, or for every K if the loss depends on it.

    Args:
        lab: runs the trials.
        trial: returns ``figure`` followed by K.
        settings: those of `tuned_runs`; ``ks``; ``tuning_k``. Candidates that depend on K have ``per_k``.
        asked: as in `tuned_runs`, with K as the condition.
        figure: the score that decides.
    """
    tuning_k, ks = int(settings["tuning_k"]), list(settings["ks"])
    per_k = {name: bool(candidate.get("per_k")) for name, candidate in settings["candidates"].items()}
    conditions = {name: ks if own else [tuning_k] for name, own in per_k.items()}
    lab.plan(count_runs(settings, conditions))
    choices, found = tuned_runs(
        lab,
        trial,
        settings,
        asked,
        figure=f"{figure}{tuning_k}",
        conditions=conditions,
        tuning_condition=tuning_k,
    )
    return Measured(choices, {name: {k: found[name][k if per_k[name] else tuning_k] for k in ks} for name in found})


def _measured(lab: Lab, settings: Mapping[str, Any]) -> Measured:
    candidates = settings["candidates"]

    def asked(name: str, options: Mapping[str, Any], k: int, seed: int, part: str) -> dict[str, Any]:
        watched = {"k": k, "monitor": f"top{k}_accuracy"}
        fit = merged(settings["fit"], candidates[name].get("fit", {}), options, watched)
        about = {name: settings[name] for name in ("data", "tail")}
        return {**about, "ks": settings["shown_ks"], "fit": fit, "seed": seed, "part": part}

    return measured(lab, trial, settings, asked, figure="macro")


def best_of_all(findings: Sequence[Finding]) -> Finding:
    """Whether a candidate is the best, from its verdicts against all rivals, the strongest rival first."""
    verdict = all_of(findings).verdict
    decisive = findings[:1] if verdict == HOLDS else [each for each in findings if each.verdict == verdict]
    return Finding(verdict, "; ".join(each.why for each in decisive))


def decided(groups: Sequence[Sequence[float]], decide: Callable[[], Finding], what: str) -> Finding:
    """A verdict if all values exist, else an open one."""
    return decide() if all(groups) else Finding(OPEN, f"for some seed no class is {what}")


def macro_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.5: macro top-K accuracy."""
    found, ks = _measured(lab, settings), settings["ks"]
    tail_ks = [k for k in ks if k > 1]
    claims = [
        Claim(
            "The noised loss with margins by class has the best macro top-K accuracy for every K.",
            "42.4, 64.9 and 73.2 % for K = 1, 3 and 5; LDAM, the next, 40.6, 63.3 and 71.9 %",
            all_of([_best(found, "macro", k) for k in ks]),
        ),
        Claim(
            "LDAM has a higher macro top-K accuracy than cross-entropy for every K.",
            "40.6, 63.3, 71.9 % against 36.3, 58.8, 68.7 %",
            all_of([_better(found, _LDAM, _CE, "macro", k) for k in ks]),
        ),
        Claim(
            "The noised loss with margins gains more over cross-entropy on few-shot than on many-shot classes.",
            "+11.3, +12.4, +10.2 points on few-shot and +0.4, +0.1, −0.1 on many-shot classes",
            all_of([_gains_apart(found, k) for k in ks]),
        ),
        Claim(
            "The smooth top-K SVM falls below cross-entropy on few-shot classes for K above 1.",
            "16.7 against 32.4 % for K = 3, 12.1 against 45.1 % for K = 5",
            all_of([_better(found, _CE, _SVM, "few", k) for k in tail_ks]),
        ),
        Claim(
            "The balanced noised loss has about the macro top-K accuracy of cross-entropy.",
            "35.8, 58.7, 66.4 % against 36.3, 58.8, 68.7 %",
            all_of([_alike(found, _BALANCED, _CE, k) for k in ks]),
        ),
    ]
    return _outcome(lab, settings, found, published, claims)


def few_shot_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.6: gains on few-shot classes, and their cost."""
    found, ks = _measured(lab, settings), settings["ks"]
    tail_ks = [k for k in ks if k > 1]
    claims = [
        Claim(
            "On few-shot classes the noised loss with margins by class is the best for K above 1.",
            "27.0 and 37.0 % for K = 3 and 5; LDAM, the next, 24.1 and 32.9 %",
            all_of([_best(found, "few", k) for k in tail_ks]),
        ),
        Claim(
            "Over all classes the noised loss with margins is above cross-entropy for every K.",
            "38.7, 56.5, 63.5 % against 37.0, 55.5, 63.2 %",
            all_of([_better(found, _OURS, _CE, "macro", k) for k in ks]),
        ),
        Claim(
            "LDAM is above cross-entropy on few-shot classes for every K.",
            "10.5, 24.1, 32.9 % against 1.5, 8.2, 15.8 %",
            all_of([_better(found, _LDAM, _CE, "few", k) for k in ks]),
        ),
        Claim(
            "On many-shot classes, cross-entropy is above the noised loss with margins.",
            "60.6, 75.3, 80.1 % against 57.6, 71.7, 77.0 %",
            all_of([_better(found, _CE, _OURS, "many", k) for k in ks]),
        ),
        Claim(
            "The smooth top-K SVM falls below cross-entropy on few-shot classes for K above 1.",
            "0.0 against 8.2 % for K = 3, 0.0 against 15.8 % for K = 5",
            all_of([_better(found, _CE, _SVM, "few", k) for k in tail_ks]),
        ),
    ]
    return _outcome(lab, settings, found, published, claims)


def regular_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.8: regular top-K accuracy of the models of table 4.5."""
    found, ks, over = _measured(lab, settings), settings["ks"], settings["regular"]
    spreads = {
        figure: {k: _spreads([found.values(name, figure, k) for name in found.found]) for k in ks}
        for figure in ("macro", over)
    }
    claims = [
        Claim(
            "Losses differ less in regular than in macro top-K accuracy (best minus worst loss).",
            "1.4, 1.2, 1.0 points for K = 1, 3, 5 against 6.7, 14.6, 22.3 points in table 4.5",
            all_of(
                [
                    beats(spreads["macro"][k], spreads[over][k], names=(f"macro spread@{k}", "regular spread"))
                    for k in ks
                ]
            ),
        ),
        Claim(
            "With cross-entropy, regular top-K accuracy is at least 10 points above macro top-K accuracy.",
            "80.1, 93.1, 95.7 % against 36.3, 58.8, 68.7 %",
            all_of([_margin(found, over, k) for k in ks]),
        ),
        Claim(
            "The balanced noised loss has a higher regular top-K accuracy than cross-entropy and the smooth SVM.",
            "80.8, 93.5, 95.8 % against 80.1, 93.1, 95.7 % and 79.8, 93.2, 95.0 %",
            all_of(
                [_better(found, _BALANCED, other, over, k, worth=REGULAR_WORTH) for other in (_CE, _SVM) for k in ks]
            ),
        ),
    ]
    return Outcome(
        setup=_setup(settings, found) + _regular_words(settings),
        claims=claims,
        tables=[_regular_table(settings, found, published)],
        tried=tried_words(found.choices),
        values={"runs": found.found},
    )


def _better(found: Measured, ours: str, other: str, figure: str, k: int, *, worth: float = WORTH) -> Finding:
    groups = [found.values(name, figure, k) for name in (ours, other)]
    names = (f"{'regular' if figure in ('rows', 'training') else figure}@{k}: {ours}", other)
    return decided(groups, lambda: beats(groups[0], groups[1], names=names, worth=worth), f"{figure}-shot")


def _best(found: Measured, figure: str, k: int) -> Finding:
    return best_of_all([_better(found, _OURS, other, figure, k) for other in found.rivals(_OURS, figure, k)])


def _alike(found: Measured, ours: str, other: str, k: int) -> Finding:
    groups = [found.values(name, "macro", k) for name in (ours, other)]
    return alike(groups[0], groups[1], names=(f"macro@{k}: {ours}", other), within=SIMILAR)


def _gains_apart(found: Measured, k: int) -> Finding:
    """Whether the gain on few-shot classes is larger than on many-shot classes."""
    groups = [found.values(name, shot, k) for shot in ("few", "many") for name in (_OURS, _CE)]

    def decide() -> Finding:
        few, many = differences(*groups[:2]), differences(*groups[2:])
        gained = beats(groups[0], groups[1], names=(f"few@{k}: {_OURS}", _CE), worth=WORTH)
        return all_of([gained, beats(few, many, names=(f"gain@{k}, few", "many"), worth=WORTH)])

    return decided(groups, decide, "few-shot or many-shot")


def _margin(found: Measured, over: str, k: int) -> Finding:
    """Whether regular accuracy is at least ten points above macro accuracy."""
    macro = [value + 0.1 for value in found.values(_CE, "macro", k)]
    return beats(found.values(_CE, over, k), macro, names=(f"regular@{k}", "macro − 10 points"), worth=WORTH)


def _spreads(by_candidate: Sequence[Sequence[float]]) -> list[float]:
    """Best minus worst candidate per seed."""
    return [max(values) - min(values) for values in zip(*by_candidate, strict=True)]


def _outcome(
    lab: Lab, settings: Mapping[str, Any], found: Measured, published: Mapping[str, Any], claims: Sequence[Claim]
) -> Outcome:
    k = int(settings["tuning_k"])
    caption = f"Macro top-{k} accuracy by the number of training rows of a class; means over seeds."
    return Outcome(
        setup=_setup(settings, found),
        claims=claims,
        tables=[_table(found, published, k) for k in settings["ks"]],
        figures=[saved(_chart(found, k), lab, "by_shot.png", caption)],
        tried=tried_words(found.choices),
        values={"runs": found.found},
    )


def _chart(found: Measured, k: int) -> Chart:
    groups = ("macro", *SHOTS)
    series = []
    for index, name in enumerate(found.found):
        means = [found.values(name, group, k) for group in groups]
        y = tuple(sum(values) / len(values) if values else None for values in means)
        series.append(Series(name.replace("_", " "), "bars", tuple(map(float, range(4))), y, candidate_style(index)))
    names = ("all classes", "few: < 20 rows", "medium: 20 to 100", "many: > 100")
    x, y = Axis("classes by training rows", scale="names", names=names), Axis(f"macro top-{k} accuracy", percent=True)
    return Chart(f"Top-{k} accuracy by shot", x, y, tuple(series))


def _table(found: Measured, published: Mapping[str, Any], k: int) -> Table:
    rows = []
    for name in found.found:
        paper = published.get(name, {}).get(k)
        ours = [found.values(name, figure, k) for figure in ("macro", *SHOTS)]
        rows.append(
            [
                name,
                *(Interval.of(values) if values else None for values in ours),
                Interval(paper[0] / 100, paper[1] / 100) if paper else None,
                " / ".join(f"{value:.1f}" for value in paper[2:]) if paper else None,
            ]
        )
    columns = ["loss", "macro", *SHOTS, "paper: macro", "paper: few / medium / many"]
    return Table(f"Macro top-{k} accuracy, %", columns, rows, percent=True)


def _regular_table(settings: Mapping[str, Any], found: Measured, published: Mapping[str, Any]) -> Table:
    largest, rows = max(settings["ks"]), []
    for name in found.found:
        cells: list[Any] = [name]
        for k in settings["shown_ks"]:
            values = found.values(name, settings["regular"], k, trained=min(k, largest))
            paper = published[name].get(k)
            cells += [Interval.of(values), Interval(paper[0] / 100, paper[1] / 100) if paper else None]
        rows.append(cells)
    columns = ["loss", *(word.format(k) for k in settings["shown_ks"] for word in ("top-{}", "paper: top-{}"))]
    note = f"Beyond K = {largest}, the models are those trained for K = {largest}."
    return Table("Regular top-K accuracy, %", columns, rows, percent=True, note=note)


def tail_words(settings: Mapping[str, Any], found: Measured) -> str:
    """The data with their long tail, in one sentence."""
    run = next(iter(found.found.values()))[settings["ks"][0]][0]
    classes = ", ".join(f"{run[shot]} {shot}-shot" for shot in SHOTS)
    words = f"Data {data_words(settings['data'])}"
    if settings["tail"]:
        parts = " and ".join(
            {"train": "training", "val": "validation"}[p] for p in settings["tail"].get("parts", ["train"])
        )
        words += (
            f", {parts} rows subsampled to a long tail of imbalance {settings['tail']['imbalance']:g} with a random "
            "order of classes"
        )
    return f"{words} (first seed: {classes} classes)."


def _setup(settings: Mapping[str, Any], found: Measured) -> str:
    free = any("encoder_options.hidden" in each["grid"] for each in settings["candidates"].values())
    layers = " Validation rows choose for each loss whether the encoder has a hidden layer." if free else ""
    tuning = tuning_words(found.choices, f"macro top-{settings['tuning_k']} accuracy")
    return (
        f"{tail_words(settings, found)} {fit_words(settings)}{layers} {tuning} "
        "Losses that depend on K are then trained for each K, the others once."
    )


def _regular_words(settings: Mapping[str, Any]) -> str:
    if settings["regular"] == "rows":
        return " Regular accuracy is the mean over test rows."
    return (
        " Test rows are not subsampled; regular accuracy is the mean over classes weighted by their training rows, as "
        "on test rows with the same long tail."
    )
