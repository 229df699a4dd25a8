"""Top-k losses under label noise (sets, tables 4.4, 4.7 and 4.9; LML, figure 4).

With probability p, the label of a training row is resampled within its superclass. Validation and test rows keep their
true labels, as in the experiment that both papers repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from experiments.candidates import Compared, compared, count_trials, merged, trained
from experiments.presentation import (
    data_words,
    differences,
    fit_words,
    interval_line,
    limits_around,
    saved,
    tried_words,
)
from shortlist.data import Dataset, label_noise
from shortlist.data.draws import Draws
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, alike, all_of, beats, grows
from shortlist.evidence.verdicts import OPEN
from shortlist.functional import topk_accuracy
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.train.comparison import Interval

ByNoise = Mapping[float, Compared]


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train on noisy labels and evaluate one part with its true labels.

    Args:
        settings: those of `experiments.candidates.trained`; ``noise``, the probability of a new label; ``rows``, how
            many training rows to keep, 0 for all; ``part`` to evaluate.
        root: where the data are.

    Returns:
        ``top1`` and ``topk`` accuracy on the part; ``learned``, the fraction of training rows whose label, noisy or
        not, is ranked first; ``best_epoch``, from 0.
    """
    seed, rate = int(settings["seed"]), float(settings["noise"])

    def noisy(dataset: Dataset) -> Dataset:
        fewer = with_fewer_rows(dataset, int(settings["rows"]), seed=seed)
        return label_noise(fewer, rate, seed=seed) if rate else fewer

    run = trained(settings, root, change=noisy)
    rows, train = run.dataset.part(settings["part"]), run.dataset.part("train")
    logits = run.logits(settings["part"])
    return {
        "top1": float(topk_accuracy(logits, rows.true_targets, 1)),
        "topk": float(topk_accuracy(logits, rows.true_targets, int(settings["fit"]["k"]))),
        "learned": float(topk_accuracy(run.logits("train"), train.targets, 1)),
        "best_epoch": run.fitted.best_epoch,
    }


def with_fewer_rows(dataset: Dataset, rows: int, *, seed: int) -> Dataset:
    """A random subset of the training rows, all of them for 0; other parts are unchanged."""
    train = dataset.part_rows("train")
    if not 0 < rows < len(train):
        return dataset
    removed = torch.zeros(len(dataset), dtype=torch.bool)
    removed[train[torch.from_numpy(Draws(seed, "fewer rows").order(len(train))[rows:].copy())]] = True
    return dataset.subset((~removed).nonzero().flatten())


def topk_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.4: top-k accuracy of top-k losses against the baseline, and how the gap grows with the noise."""
    found, base = _by_noise(settings, lab), settings["baseline"]
    others = [name for name in settings["candidates"] if name != base]
    gaps = {
        name: {p: differences(each.figure(name, "topk"), each.figure(base, "topk")) for p, each in found.items()}
        for name in others
    }
    title = f"Top-{_k(settings)} accuracy on test rows"
    return Outcome(
        setup_words(settings),
        [
            *(_noise_claim(settings, found, name, published_gaps(published, name, base), published) for name in others),
            _growth_claim(gaps, base, published),
            _best_claim(found, published),
        ],
        [_accuracy_table(found, "topk", f"{title}, in percent"), _learned_table(found), published_table(published)],
        [_accuracy_figure(found, "topk", title, lab), _gap_figure(gaps, base, _k(settings), lab)],
        _tried(settings, found),
        _values(found),
    )


def _noise_claim(
    settings: Mapping[str, Any], found: ByNoise, name: str, words: str, published: Mapping[str, Any]
) -> Claim:
    base, noisy = settings["baseline"], [rate for rate in found if rate > 0]
    return Claim(
        f"With label noise, {name} has a higher top-{_k(settings)} accuracy than {base}.",
        words,
        _ahead(found, "topk", name, base, noisy, published["worth"]),
    )


def _growth_claim(gaps: Mapping[str, Mapping[float, list[float]]], base: str, published: Mapping[str, Any]) -> Claim:
    growing = [
        grows(by_noise, name=f"{name} − {base}", along="p =", worth=published["worth"])
        for name, by_noise in gaps.items()
    ]
    return Claim(
        f"The gap between the top-k losses and {base} grows with the noise.",
        "; ".join(published_gaps(published, name, base, ends=True) for name in gaps),
        all_of(growing),
    )


def _best_claim(found: ByNoise, published: Mapping[str, Any]) -> Claim:
    best, rival = published["best"], published["rival"]
    levels = [rate for rate in published["best_at"] if rate in found]
    return Claim(
        f"At p = {listed(levels)}, {best} has a higher accuracy than {rival}.",
        published_gaps(published, best, rival),
        _ahead(found, "topk", best, rival, levels, published["worth"]),
    )


def top1_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.7: top-1 accuracy of the losses for top-k sets."""
    found, base, worth = _by_noise(settings, lab), settings["baseline"], published["worth"]
    others = [name for name in settings["candidates"] if name != base]
    clean = [rate for rate in found if rate == 0]
    high = [rate for rate in published["high_noise"] if rate in found]
    claims = [
        Claim(
            f"Without label noise, {base} has a higher top-1 accuracy than the top-{_k(settings)} losses.",
            "; ".join(published_gaps(published, base, name, only=clean) for name in others),
            all_of([_ahead(found, "top1", base, name, clean, worth) for name in others]),
        )
    ]
    claims += [
        Claim(
            f"With strong label noise (p = {listed(high)}), {name} has a higher top-1 accuracy than {base}.",
            published_gaps(published, name, base, only=high),
            _ahead(found, "top1", name, base, high, worth),
        )
        for name in others
    ]
    title = "Top-1 accuracy on test rows"
    return Outcome(
        setup_words(settings),
        claims,
        [_accuracy_table(found, "top1", f"{title}, in percent"), published_table(published)],
        [_accuracy_figure(found, "top1", title, lab)],
        _tried(settings, found),
        _values(found),
    )


def alike_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """LML, figure 4: top-k losses perform alike, and better than the baseline under noise."""
    found, base, within = _by_noise(settings, lab), settings["baseline"], published["within"]
    others = [name for name in settings["candidates"] if name != base]
    claims = [
        Claim(
            f"{one[0].upper()}{one[1:]} and {other} have similar top-{_k(settings)} accuracies at every noise level.",
            published["words"],
            at_each({f"p = {rate:g}": _alike(each, one, other, within) for rate, each in found.items()}),
        )
        for one, other in combinations(others, 2)
    ]
    claims += [_noise_claim(settings, found, name, published["words"], published) for name in published["ahead"]]
    title = f"Top-{_k(settings)} accuracy on test rows"
    return Outcome(
        setup_words(settings),
        claims,
        [
            _accuracy_table(found, "topk", f"{title}, in percent"),
            _accuracy_table(found, "top1", "Top-1 accuracy, in percent"),
        ],
        [_accuracy_figure(found, "topk", title, lab)],
        _tried(settings, found),
        _values(found),
    )


def clean_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.9: without label noise, losses that are trained and evaluated for the same k perform alike."""
    ks, names, within = settings["ks"], list(settings["candidates"]), published["within"]
    lab.plan(count_trials(settings, conditions=len(ks)))
    found = {}
    for k in ks:
        fit = merged(settings["fit"], {"k": k, "monitor": f"top{k}_accuracy"})
        found[k] = compared(lab, trial, {**settings, "fit": fit}, figure="topk", noise=0.0, rows=int(settings["rows"]))
    claims = [
        Claim(
            f"Without label noise, all losses trained for k = {k} have about the same top-{k} accuracy.",
            f"top-{k} accuracy: "
            + ", ".join(f"{name} {v[published['ks'].index(k)]:g}" for name, v in published["accuracy"].items()),
            all_of([_alike(found[k], one, other, within) for one, other in combinations(names, 2)]),
        )
        for k in ks
    ]
    rows = [[f"{k}", *(Interval.of(found[k].figure(name, "topk")) for name in names)] for k in ks]
    note = "Each loss is trained for the k of its row."
    return Outcome(
        setup_words({**settings, "noise": [0.0]}),
        claims,
        [
            Table("Top-k accuracy on test rows, in percent", ["k", *names], rows, percent=True, note=note),
            published_table(published),
        ],
        (),
        [sentence for k, each in found.items() for sentence in tried_words(each.choices, f"k = {k}, ")],
        {f"{k}": {name: found[k].found[name] for name in names} for k in ks},
    )


def _by_noise(settings: Mapping[str, Any], lab: Lab) -> dict[float, Compared]:
    """Compare all candidates at each noise level, each with its own options."""
    rates = [float(rate) for rate in settings["noise"]]
    lab.plan(count_trials(settings, conditions=len(rates)))
    rows = int(settings["rows"])
    return {rate: compared(lab, trial, settings, figure="topk", noise=rate, rows=rows) for rate in rates}


def _ahead(found: ByNoise, figure: str, name: str, other: str, rates: Sequence[float], worth: float) -> Finding:
    """Whether one candidate beats another at each of the noise levels."""
    return at_each(
        {
            f"p = {p:g}": beats(
                found[p].figure(name, figure), found[p].figure(other, figure), names=(name, other), worth=worth
            )
            for p in rates
        }
    )


def _alike(found: Compared, one: str, other: str, within: float) -> Finding:
    return alike(found.figure(one, "topk"), found.figure(other, "topk"), names=(one, other), within=within)


def at_each(findings: Mapping[str, Finding]) -> Finding:
    """Whether a claim holds under each of several named conditions.

    Example:
        >>> at_each({"p = 0.1": Finding("holds", "a − b = +1.00 ± 0.20 points")})
        Finding(verdict='holds', why='p = 0.1: a − b = +1.00 ± 0.20 points')
    """
    if not findings:
        return Finding(OPEN, "none of these conditions was run")
    return all_of([Finding(finding.verdict, f"{where}: {finding.why}") for where, finding in findings.items()])


def _k(settings: Mapping[str, Any]) -> int:
    return int(settings["fit"]["k"])


def listed(numbers: Sequence[float]) -> str:
    """Numbers, separated by commas."""
    return ", ".join(f"{number:g}" for number in numbers)


def published_gaps(
    published: Mapping[str, Any], name: str, other: str, *, ends: bool = False, only: Sequence[float] | None = None
) -> str:
    """Differences between two columns of the published table, in words."""
    rates, columns = published["noise"], published["accuracy"]
    words = [
        f"{mine - others:+.1f} at p = {rate:g}"
        for rate, mine, others in zip(rates, columns[name], columns[other], strict=True)
        if only is None or rate in only
    ]
    return f"{name} − {other}: " + ", ".join([words[0], words[-1]] if ends else words)


def published_table(published: Mapping[str, Any]) -> Table:
    """The published table with its own intervals."""
    first, rows = ("p", published["noise"]) if "noise" in published else ("k", published["ks"])
    names, half = list(published["accuracy"]), published["half_width"]
    cells = [
        [f"{row:g}", *(Interval(published["accuracy"][name][at] / 100, half[name][at] / 100) for name in names)]
        for at, row in enumerate(rows)
    ]
    digits = published.get("digits", 1)
    return Table(f"Published: {published['about']}", [first, *names], cells, percent=True, digits=digits)


def _accuracy_table(found: ByNoise, figure: str, title: str, note: str = "") -> Table:
    """One result of all candidates, a row per noise level."""
    names = list(next(iter(found.values())).found)
    rows = [[f"{rate:g}", *(Interval.of(each.figure(name, figure)) for name in names)] for rate, each in found.items()]
    return Table(title, ["p", *names], rows, percent=True, note=note)


def _learned_table(found: ByNoise) -> Table:
    """How many of the training labels, including noisy ones, the models reproduce."""
    note = "Noisy labels count as they are; more than the fraction of clean labels means that noise was memorized."
    return _accuracy_table(found, "learned", "Training rows whose label is ranked first, in percent", note)


def _accuracy_figure(found: ByNoise, figure: str, title: str, lab: Lab) -> Figure:
    """A line per candidate over the noise."""
    series: list[Series] = []
    for index, name in enumerate(next(iter(found.values())).found):
        values = [each.figure(name, figure) for each in found.values()]
        series += interval_line(name, list(found), values, candidate_style(index))
    y = Axis("accuracy", percent=True, limits=limits_around(series))
    caption = f"{title} by the probability of a noisy training label; bands are 95% intervals."
    return saved(Chart(title, Axis("label noise p"), y, tuple(series)), lab, "accuracy.png", caption)


def _gap_figure(gaps: Mapping[str, Mapping[float, list[float]]], base: str, k: int, lab: Lab) -> Figure:
    """A line per candidate, relative to the baseline."""
    rates = tuple(next(iter(gaps.values())))
    series = [Series(base, "line", rates, (0.0,) * len(rates), candidate_style(0))]
    for index, (name, by_noise) in enumerate(gaps.items(), start=1):
        series += interval_line(name, list(by_noise), list(by_noise.values()), candidate_style(index))
    y = Axis(f"top-{k} accuracy minus that of {base}", percent=True, limits=limits_around(series))
    chart = Chart(f"Gains of top-k losses over {base}", Axis("label noise p"), y, tuple(series))
    caption = f"Difference from {base}, paired by seed, in percentage points; bands are 95% intervals."
    return saved(chart, lab, "gap.png", caption)


def setup_words(
    settings: Mapping[str, Any],
    *,
    chosen: str = "for each loss and each condition",
    measured: str = "evaluated on test rows",
) -> str:
    """Data, model, budget and tuning, in one paragraph.

    Args:
        settings: of the study.
        chosen: what the options were chosen for.
        measured: what was done with the seeds.
    """
    rows = f"{settings['rows']} random training rows per seed" if settings["rows"] else "all training rows"
    noise = f" Label noise p of {listed(settings['noise'])} within superclasses." if max(settings["noise"]) else ""
    return (
        f"Data {data_words(settings['data'])}, {rows}; validation and test labels are true.{noise} "
        f"{fit_words(settings)} The epoch with the best top-k accuracy on validation rows is kept. Options are chosen "
        f"{chosen} on validation rows with seeds {listed(settings['tuning_seeds'])}; then seeds "
        f"{listed(settings['seeds'])} are {measured}."
    )


def limits_words(settings: Mapping[str, Any]) -> list[str]:
    """What this scale cannot show, according to the settings."""
    return [settings["limits"]] if settings.get("limits") else []


def _tried(settings: Mapping[str, Any], found: ByNoise) -> list[str]:
    sentences = [words for rate, each in found.items() for words in tried_words(each.choices, f"p = {rate:g}, ")]
    return [*sentences, *limits_words(settings)]


def _values(found: ByNoise) -> dict[str, Any]:
    return {f"{rate:g}": {name: list(runs) for name, runs in each.found.items()} for rate, each in found.items()}
