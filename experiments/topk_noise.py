"""Top-k losses under label noise: tables 4.4, 4.7 and 4.9 of the text on sets, figure 4 of the text on LML.

The labels of training rows are drawn anew within their superclass with probability p. Validation and test rows keep
their true labels, as in the experiment that both texts repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from experiments.candidates import Compared, compared, count_trials, merged
from experiments.noise_shown import (
    ByNoise,
    accuracy_figure,
    accuracy_table,
    gap_figure,
    learned_table,
    listed,
    plain_values,
    published_gaps,
    published_row,
    published_table,
    setup_words,
    tried_words,
)
from experiments.noise_trial import trial
from shortlist.evidence import Claim, Finding, Lab, Outcome, Table, alike, all_of, beats, grows
from shortlist.evidence.verdicts import OPEN
from shortlist.train.comparison import Interval


def topk_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.4: top-k losses against the baseline in top-k accuracy, and how the gap grows with the noise."""
    found, base = _by_noise(settings, lab), settings["baseline"]
    others = [name for name in settings["candidates"] if name != base]
    gaps = {name: {rate: _gaps(found[rate], "topk", name, base) for rate in found} for name in others}
    title = f"Top-{_k(settings)} accuracy on test rows"
    return Outcome(
        setup_words(settings),
        [
            *(_noise_claim(settings, found, name, published_gaps(published, name, base), published) for name in others),
            _growth_claim(gaps, base, published),
            _best_claim(found, published),
        ],
        [accuracy_table(found, "topk", f"{title}, in percent"), learned_table(found), published_table(published)],
        [
            accuracy_figure(found, "topk", title, lab.figures / "accuracy.png"),
            gap_figure(gaps, base, _k(settings), lab.figures / "gap.png"),
        ],
        _tried(settings, found),
        plain_values(found),
    )


def _noise_claim(
    settings: Mapping[str, Any], found: ByNoise, name: str, words: str, published: Mapping[str, Any]
) -> Claim:
    base, loud = settings["baseline"], [rate for rate in found if rate > 0]
    return Claim(
        f"With label noise {name} has a higher top-{_k(settings)} accuracy than {base}.",
        words,
        _ahead(found, "topk", name, base, loud, published["worth"]),
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
        f"At p = {listed(levels)} {best} has a higher accuracy than {rival}.",
        published_gaps(published, best, rival),
        _ahead(found, "topk", best, rival, levels, published["worth"]),
    )


def top1_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.7: what losses for top-k sets are worth when one label is asked for."""
    found, base, worth = _by_noise(settings, lab), settings["baseline"], published["worth"]
    others = [name for name in settings["candidates"] if name != base]
    silent = [rate for rate in found if rate == 0]
    loud = [rate for rate in published["high_noise"] if rate in found]
    claims = [
        Claim(
            f"Without label noise {base} has a higher top-1 accuracy than the top-{_k(settings)} losses.",
            "; ".join(published_gaps(published, base, name, only=silent) for name in others),
            all_of([_ahead(found, "top1", base, name, silent, worth) for name in others]),
        )
    ]
    claims += [
        Claim(
            f"With much label noise (p = {listed(loud)}) {name} has a higher top-1 accuracy than {base}.",
            published_gaps(published, name, base, only=loud),
            _ahead(found, "top1", name, base, loud, worth),
        )
        for name in others
    ]
    title = "Top-1 accuracy on test rows"
    return Outcome(
        setup_words(settings),
        claims,
        [accuracy_table(found, "top1", f"{title}, in percent"), published_table(published)],
        [accuracy_figure(found, "top1", title, lab.figures / "accuracy.png")],
        _tried(settings, found),
        plain_values(found),
    )


def alike_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 4 of the text on LML: top-k losses do alike, and better than the baseline with noise."""
    found, base, within = _by_noise(settings, lab), settings["baseline"], published["within"]
    others = [name for name in settings["candidates"] if name != base]
    claims = [
        Claim(
            f"{one[0].upper()}{one[1:]} and {other} do alike in top-{_k(settings)} accuracy at every level of noise.",
            published["words"],
            _alike(found, one, other, within),
        )
        for one, other in combinations(others, 2)
    ]
    claims += [_noise_claim(settings, found, name, published["words"], published) for name in published["ahead"]]
    title = f"Top-{_k(settings)} accuracy on test rows"
    return Outcome(
        setup_words(settings),
        claims,
        [
            accuracy_table(found, "topk", f"{title}, in percent"),
            accuracy_table(found, "top1", "Top-1 accuracy, in percent"),
        ],
        [accuracy_figure(found, "topk", title, lab.figures / "accuracy.png")],
        _tried(settings, found),
        plain_values(found),
    )


def clean_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.9: without label noise the losses do alike, each trained and measured for the same k."""
    ks, names, within = settings["ks"], list(settings["candidates"]), published["within"]
    lab.plan(count_trials(settings, conditions=len(ks)))
    found = {}
    for k in ks:
        fit = merged(settings["fit"], {"k": k, "monitor": f"top{k}_accuracy"})
        found[k] = compared(lab, trial, {**settings, "fit": fit}, figure="topk", noise=0.0, rows=int(settings["rows"]))
    claims = [
        Claim(
            f"Without label noise all losses do alike in top-{k} accuracy when they are trained for k = {k}.",
            f"top-{k} accuracy: " + published_row(published, k),
            all_of([_pair(found[k], one, other, within) for one, other in combinations(names, 2)]),
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
        tried_words(settings, {f"k = {k}": each.choices for k, each in found.items()}),
        {f"{k}": {name: found[k].found[name] for name in names} for k in ks},
    )


def _by_noise(settings: Mapping[str, Any], lab: Lab) -> dict[float, Compared]:
    """Every candidate, with options of its own at each level of noise."""
    rates = [float(rate) for rate in settings["noise"]]
    lab.plan(count_trials(settings, conditions=len(rates)))
    rows = int(settings["rows"])
    return {rate: compared(lab, trial, settings, figure="topk", noise=rate, rows=rows) for rate in rates}


def _tried(settings: Mapping[str, Any], found: ByNoise) -> list[str]:
    return tried_words(settings, {f"p = {rate:g}": each.choices for rate, each in found.items()})


def _gaps(found: Compared, figure: str, name: str, other: str) -> list[float]:
    return [a - b for a, b in zip(found.figure(name, figure), found.figure(other, figure), strict=True)]


def _ahead(found: ByNoise, figure: str, name: str, other: str, rates: Sequence[float], worth: float) -> Finding:
    """Whether one is better than another at each of the levels of noise."""
    parts = [
        beats(found[p].figure(name, figure), found[p].figure(other, figure), names=(name, other), worth=worth)
        for p in rates
    ]
    return at_each({f"p = {rate:g}": part for rate, part in zip(rates, parts, strict=True)})


def _pair(found: Compared, one: str, other: str, within: float) -> Finding:
    return alike(found.figure(one, "topk"), found.figure(other, "topk"), names=(one, other), within=within)


def _alike(found: ByNoise, one: str, other: str, within: float) -> Finding:
    """Whether two do alike at each level of noise."""
    return at_each({f"p = {rate:g}": _pair(each, one, other, within) for rate, each in found.items()})


def at_each(findings: Mapping[str, Finding]) -> Finding:
    """A claim that is to hold under each of several conditions, which the words name.

    Example:
        >>> at_each({"p = 0.1": Finding("holds", "a − b = +1.00 ± 0.20 points")})
        Finding(verdict='holds', why='p = 0.1: a − b = +1.00 ± 0.20 points')
    """
    if not findings:
        return Finding(OPEN, "none of these conditions was run")
    return all_of([Finding(finding.verdict, f"{where}: {finding.why}") for where, finding in findings.items()])


def _k(settings: Mapping[str, Any]) -> int:
    return int(settings["fit"]["k"])
