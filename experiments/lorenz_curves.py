"""Lorenz curves of class sizes: the share of the examples in the rarest classes (sets, figure 3.2)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data import open_data
from experiments.presentation import checked, saved
from shortlist.data import Dataset, long_tail
from shortlist.data.summary.tally import Tally
from shortlist.evidence import Claim, Finding, Lab, Outcome, Table, alike
from shortlist.evidence.verdicts import OPEN
from shortlist.report.chart import Axis, Chart, Reference, Series, candidate_style
from shortlist.train.comparison import Interval

PRESERVED = 0.05
"""Gini coefficients this close are alike: about the smallest visible difference in figure 3.2."""
PARETO = 0.2
"""The 80/20 rule: a tail is long if the rarest 80% of the classes have at most 20% of the examples."""
READING = 0.01
"""The paper gives whole percentages."""


def study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 3.2: a curve per dataset, and its change when only some genera are kept."""
    collections, seeds = settings["collections"], settings["seeds"]
    lab.plan(len(collections))
    shared = {"seeds": seeds, "share": settings["share"], "least": settings["least"]}
    results = lab.trials(curve_trial, [{**shared, **collection} for collection in collections.values()])
    found = dict(zip(collections, results, strict=True))
    return Outcome(
        setup="Class sizes of all rows, or of the training rows if they were subsampled to a long tail. Kept genera: "
        f"labels with the same first word form a group, {100 * settings['share']:g}% of the groups are sampled with "
        f"each of {len(seeds)} seeds, and labels with fewer than {settings['least']} examples are left out before and "
        "after.",
        claims=_claims(settings, published, found),
        tables=[
            Table(
                "Class sizes",
                ["data", "classes", "examples", "Gini", "rarest 80% have (%)", "Gini of kept genera"],
                [
                    [
                        name,
                        each["classes"],
                        each["total"],
                        f"{each['gini']:.3f}",
                        f"{100 * each['rarest']:.1f}",
                        _interval_words(each["kept"]) if each["kept"] else None,
                    ]
                    for name, each in found.items()
                ],
                digits=0,
                note="Compare kept genera with the Gini coefficient of all labels with enough examples: "
                + ", ".join(f"{name} {each['gini_enough']:.3f}" for name, each in found.items() if each["kept"])
                + ".",
            )
        ],
        figures=[
            saved(
                _chart(found), lab, "lorenz.png", "Share of the examples in the rarest classes; dotted: equal classes."
            )
        ],
        values={name: {key: each[key] for key in each if key != "curve"} for name, each in found.items()},
    )


def _claims(settings: Mapping[str, Any], published: Mapping[str, Any], found: Mapping[str, Any]) -> list[Claim]:
    original = settings["original"]
    if original in found:
        rarest = found[original]["rarest"]
        same = abs(rarest - published["rarest"]) <= READING
        exact = checked(same, f"{100 * rarest:.1f}% in {original}")
    else:
        exact = Finding(OPEN, f"{original} is not available at this scale; see the other collections below")
    tails = {name: found[name]["rarest"] for name in settings["grown"]}
    words = ", ".join(f"{name} {100 * share:.1f}%" for name, share in tails.items())
    sampled = found[settings["sampled"]]
    return [
        Claim(
            f"In {original} the rarest 80% of the species have {100 * published['rarest']:g}% of the images.",
            f"{100 * published['rarest']:g}%",
            exact,
        ),
        Claim(
            "Collections that nobody balanced have long tails: the rarest 80% of the labels have at most 20% of the "
            "examples.",
            published["tail"],
            checked(all(share <= PARETO for share in tails.values()), f"the rarest 80% have: {words}"),
        ),
        Claim(
            f"Keeping {100 * settings['share']:g}% of the genera preserves the imbalance of the classes.",
            published["preserved"],
            alike(
                sampled["kept"],
                [sampled["gini_enough"]] * len(sampled["kept"]),
                names=(f"Gini of kept genera of {settings['sampled']}", "of all"),
                within=PRESERVED,
                unit="",
            ),
        ),
    ]


def _interval_words(values: list[float]) -> str:
    interval = Interval.of(values)
    return f"{interval.mean:.3f} ± {interval.half_width:.3f}"


def _chart(found: Mapping[str, Any]) -> Chart:
    series = []
    for index, (name, each) in enumerate(found.items()):
        x, y = zip(*each["curve"], strict=True)
        series.append(Series(f"{name}: Gini {each['gini']:.2f}", "line", x, y, candidate_style(index), marked=True))
    shares = {"percent": True, "limits": (0.0, 1.0)}
    return Chart(
        "Lorenz curves of class sizes",
        Axis("classes, rarest first", **shares),
        Axis("share of the examples", **shares),
        tuple(series),
        (Reference("equal classes"),),
    )


def curve_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """The curve of one dataset, its Gini coefficient, and that of random groups of labels."""
    dataset = open_data(settings["data"], root, seed=0)
    if "imbalance" in settings:
        dataset = long_tail(dataset, settings["imbalance"])
    counts = dataset.label_counts("train" if "imbalance" in settings else None).numpy()
    counts, genera = counts[counts > 0], _genera(dataset, counts > 0)
    tally = Tally.of(counts)
    enough = counts >= settings["least"]
    kept = []
    if settings.get("genera", False):
        kept = [gini_of_genera(counts[enough], genera[enough], settings["share"], seed) for seed in settings["seeds"]]
    return {
        "classes": len(counts),
        "total": int(counts.sum()),
        "gini": tally.gini(),
        "gini_enough": Tally.of(counts[enough]).gini(),
        "rarest": tally.tail_share(0.8),
        "kept": kept,
        "curve": [[round(x, 5), round(y, 5)] for x, y in tally.lorenz(points=120)],
    }


def _genera(dataset: Dataset, chosen: np.ndarray) -> np.ndarray:
    """The first word of every label: the genus of a species, the facet of a tag, the main term of a heading."""
    words = [re.split(r"[^\w]|_", name, maxsplit=1)[0].casefold() for name in dataset.label_names]
    return np.array(words, dtype=object)[chosen]


def gini_of_genera(counts: np.ndarray, genera: np.ndarray, share: float, seed: int) -> float:
    """The Gini coefficient of the labels in a random fraction of the groups, rounded up."""
    names = np.unique(genera)
    drawn = np.random.default_rng(seed).choice(names, size=math.ceil(share * len(names)), replace=False)
    return Tally.of(counts[np.isin(genera, drawn)]).gini()
