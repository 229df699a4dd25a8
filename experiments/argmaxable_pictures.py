"""Pictures of argmaxability: regions, counts, balls, alternating signs and radii (dft, figures 1-5 and 15)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.presentation import DPI, checked, worded
from shortlist.audit import (
    RadiusQuantiles,
    audit,
    count_alternating,
    count_argmaxable,
    log10_share,
    minors_agree,
    radius_quantiles,
)
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, all_of, grows
from shortlist.evidence.verdicts import OPEN
from shortlist.extras import require
from shortlist.functional import dft_matrix
from shortlist.report import draw_arrangement, draw_lattice, draw_radius_quantiles, draw_share
from shortlist.report.argmaxability import Arrangement, all_assignments, arrangement, sign_text
from shortlist.report.chart import INK, candidate_style
from shortlist.report.chart_matplotlib import PALE, new_figure, save_figure
from shortlist.train.comparison import Interval

Array = NDArray[np.float64]
THRESHOLD = 1e-8
"""The paper treats regions of smaller radius as empty."""
_LEAST = 1e-30  # for the logarithm of a radius of 0
ROUNDING = 1e-6
"""In units of the bound on the features; the audit solves its linear programs to 1e-9."""


def regions(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 1: three lines divide the plane into six regions, so two of eight assignments have none."""
    weight = np.array(settings["weight"], dtype=np.float64)
    found = _counts(settings, lab)
    cut = arrangement(weight)
    save_figure(_draw_sectors(cut), lab.figures / "regions.png", dpi=DPI)
    here = sum(each["counts"][_key(*weight.shape)] == count_argmaxable(*weight.shape) for each in found)
    return Outcome(
        setup=f"Mathematics, no data: every assignment is audited, for the layer of the picture and for normal weights "
        f"of {len(settings['sizes'])} sizes with {len(found)} seeds. The weights of the picture are our own, because "
        "the paper prints none.",
        claims=[
            Claim(
                "Any three distinct lines through the origin of the plane leave 6 of 8 assignments.",
                published["six"],
                checked(
                    here == len(found) and len(cut.signs) == 6 and cut.undecided == 0,
                    f"{len(cut.signs)} in the picture, and 6 for {here} of {len(found)} random layers",
                ),
            ),
            _cover(published, settings, found),
            Claim(
                "A trained layer with 50 features cannot output a certain set of 7 labels of the test rows.",
                published["trained"],
                Finding(OPEN, "needs MIMIC-III; dft-figure-6 audits layers trained on the available data"),
            ),
        ],
        tables=[_count_table(settings, found)],
        figures=[
            Figure(
                "regions.png",
                "The regions of three labels with two features, and the two assignments without a region.",
            )
        ],
        values={"seeds": found},
    )


def share(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 2: the share of argmaxable assignments by dimension."""
    n = settings["num_labels"]
    found = _counts(settings, lab)
    draw_share(lab.figures / "share.png", n)
    counts = [count_argmaxable(n, dim) for dim in range(1, n + 1)]
    half = 2 * counts[n // 2 - 1] == 2**n
    narrow = n // 10
    factor = min(counts[dim] / counts[dim - 1] for dim in range(1, narrow))
    dims = [dim for dim in settings["dims"] if dim <= n]
    return Outcome(
        setup=f"Mathematics, no data: exact integers for n = {n}; the formula is compared with audited counts "
        f"for normal weights of {len(settings['sizes'])} sizes with {len(found)} seeds.",
        claims=[
            _cover(published, settings, found),
            Claim(
                f"The share is exactly one half at d = n/2 and falls fast below (n = {n}).",
                published["dip"],
                checked(
                    half,
                    f"{'exactly' if half else 'not'} half of all at d = {n // 2}; "
                    + ", ".join(f"10^{log10_share(counts[dim - 1], n):.1f} at d = {dim}" for dim in dims),
                ),
            ),
            Claim(
                "For d below n/10, the number grows exponentially: each feature multiplies it by more than 9.",
                published["exponential"],
                checked(factor > 9, f"the smallest factor up to d = {narrow} is {factor:.1f}"),
            ),
        ],
        tables=[_count_table(settings, found)],
        figures=[Figure("share.png", f"The share of argmaxable assignments among all assignments of {n} labels.")],
        values={"log10_shares": {str(dim): log10_share(counts[dim - 1], n) for dim in dims}, "seeds": found},
    )


def balls(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 3: the largest ball in each region, and how it shrinks as labels are added."""
    weight, seeds = np.array(settings["weight"], dtype=np.float64), settings["seeds"]
    lab.plan(len(seeds))
    asked = [{"sizes": settings["sizes"], "dim": weight.shape[1], "seed": seed} for seed in seeds]
    found = lab.trials(radius_trial, asked)
    draw_arrangement(weight, lab.figures / "balls.png")
    cut = arrangement(weight)
    margins = cut.signs * (cut.centres @ weight.T) / np.linalg.norm(weight, axis=1)
    gap = float(np.abs(margins.min(axis=1) - cut.radii).max())
    medians = [each["medians"] for each in found]
    falling = sum(all(a > b for a, b in pairwise(each)) for each in medians)
    return Outcome(
        setup=f"Mathematics, no data: the layer of figure 1, and normal weights with {weight.shape[1]} features for "
        f"{len(seeds)} seeds. Radii are in units of the paper's bound |v| ≤ 10⁴.",
        claims=[
            Claim(
                "Each region contains a ball that touches its nearest line.",
                published["balls"],
                checked(
                    gap < ROUNDING and len(cut.signs) == count_argmaxable(*weight.shape),
                    f"{len(cut.signs)} balls; radius and distance to the nearest line differ by at most {worded(gap)}",
                ),
            ),
            Claim(
                "With more labels than features, most balls become tiny.",
                published["tiny"],
                checked(
                    falling == len(found),
                    f"the median radius falls with every step from {settings['sizes'][0]} to {settings['sizes'][-1]} "
                    f"labels for {falling} of {len(found)} layers, from {np.mean([m[0] for m in medians]):.3f} to "
                    f"{np.mean([m[-1] for m in medians]):.4f} on average",
                ),
            ),
        ],
        tables=[
            Table(
                f"Median radius of the regions, {weight.shape[1]} features, in units of the bound",
                ["", *(f"n = {n}" for n in settings["sizes"])],
                [["radius", *(Interval.of(list(column)) for column in zip(*medians, strict=True))]],
                digits=4,
            )
        ],
        figures=[Figure("balls.png", "The largest ball in each region with a center inside the dotted box.")],
        values={"seeds": found},
    )


def _key(num_labels: int, dim: int) -> str:
    return f"{num_labels},{dim}"


def _counts(settings: Mapping[str, Any], lab: Lab) -> list[dict[str, Any]]:
    lab.plan(len(settings["seeds"]))
    return lab.trials(count_trial, [{"sizes": settings["sizes"], "seed": seed} for seed in settings["seeds"]])


def _cover(published: Mapping[str, Any], settings: Mapping[str, Any], found: list[dict[str, Any]]) -> Claim:
    asked = [(n, dim, each) for n, dim in settings["sizes"] for each in found]
    right = sum(each["counts"][_key(n, dim)] == count_argmaxable(n, dim) for n, dim, each in asked)
    undecided = sum(each["undecided"] for each in found)
    return Claim(
        "The number of argmaxable assignments depends only on n and d: Cover's formula.",
        published["cover"],
        checked(
            right == len(asked) and undecided == 0,
            f"the audited counts match the formula for {right} of {len(asked)} layers; {undecided} undecided",
        ),
    )


def _count_table(settings: Mapping[str, Any], found: list[dict[str, Any]]) -> Table:
    rows = []
    for n, dim in settings["sizes"]:
        seen = sorted({each["counts"][_key(n, dim)] for each in found})
        rows.append([f"n = {n}, d = {dim}", 2**n, count_argmaxable(n, dim), ", ".join(map(str, seen))])
    return Table(
        "Argmaxable assignments of layers with normal weights",
        ["layer", "all", "formula", "audited, any seed"],
        rows,
        digits=0,
    )


def count_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """The audited number of argmaxable assignments, for normal weights of several sizes."""
    rng = np.random.default_rng(settings["seed"])
    counts, undecided = {}, 0
    for n, dim in settings["sizes"]:
        verdicts = audit(rng.standard_normal((n, dim)), all_assignments(n)[1], radius=False, jobs=1).verdicts
        counts[_key(n, dim)] = int((verdicts == "argmaxable").sum())
        undecided += int((verdicts == "undecided").sum())
    return {"counts": counts, "undecided": undecided}


def radius_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """The median radius of the regions of random layers of several sizes, in units of the bound."""
    rng = np.random.default_rng(settings["seed"])
    medians = []
    for n in settings["sizes"]:
        weight = rng.standard_normal((n, settings["dim"]))
        sets = [np.flatnonzero(signs > 0).tolist() for signs in plane_signs(weight)]
        medians.append(float(np.median(audit(weight, sets, jobs=1).radii)) / 1e4)
    return {"medians": medians}


def plane_signs(weight: Array) -> NDArray[np.int64]:
    """The signs of all regions of lines through the origin of the plane, ordered by angle.

    Example:
        >>> len(plane_signs(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])))
        6
    """
    if weight.shape[1] != 2:
        raise ValueError(f"`weight` must have 2 features; got {weight.shape[1]}.")
    # A line is perpendicular to its normal.
    normals = np.arctan2(weight[:, 1], weight[:, 0])
    edges = np.sort(np.concatenate([normals + math.pi / 2, normals - math.pi / 2]) % (2 * math.pi))
    middles = (edges + np.append(edges[1:], edges[0] + 2 * math.pi)) / 2
    return np.sign(np.stack([np.cos(middles), np.sin(middles)], axis=1) @ weight.T).astype(np.int64)


def _draw_sectors(cut: Arrangement) -> Any:
    """The regions as colored sectors with their signs, and the assignments without a region."""
    patches = require("matplotlib.patches", extra="report")
    num_labels = len(cut.weight)
    figure = new_figure(7.2, 4.3)
    axis, beside = figure.subplots(1, 2, width_ratios=(3, 2))
    order = plane_signs(cut.weight)
    normals = np.arctan2(cut.weight[:, 1], cut.weight[:, 0])
    edges = np.sort(np.concatenate([normals + math.pi / 2, normals - math.pi / 2]) % (2 * math.pi))
    ends = np.append(edges[1:], edges[0] + 2 * math.pi)
    for index, (signs, start, end) in enumerate(zip(order, edges, ends, strict=True)):
        color = candidate_style(index).color
        axis.add_patch(patches.Wedge((0, 0), 1, *np.degrees([start, end]), facecolor=color, alpha=0.22, linewidth=0))
        middle = 0.68 * np.array([math.cos((start + end) / 2), math.sin((start + end) / 2)])
        style = {"ha": "center", "va": "center", "family": "monospace", "fontsize": 13, "color": INK}
        axis.text(*middle, sign_text(signs), **style)
    for label, (row, angle) in enumerate(zip(cut.weight, normals, strict=True)):
        along = np.array([-row[1], row[0]]) / np.linalg.norm(row)
        axis.plot(*np.stack([-along, along], axis=1), color=INK, linewidth=1.2)
        foot, tip = 1.0 * along, 1.0 * along + 0.16 * np.array([math.cos(angle), math.sin(angle)])
        axis.annotate("", tip, foot, arrowprops={"arrowstyle": "->", "color": INK})
        axis.text(*(1.14 * along), f"$w_{label + 1}$", ha="center", va="center", fontsize=11, color=INK)
    axis.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
    axis.set_title(f"{len(order)} regions of {num_labels} labels; arrows point to +", fontsize=11, color=INK)
    missing = [row for row in all_assignments(num_labels)[0] if not (cut.signs == row).all(axis=1).any()]
    lines = "\n".join(sign_text(row) for row in missing)
    beside.text(0.5, 0.62, "no region for", ha="center", va="bottom", fontsize=11, color=PALE)
    style = {"family": "monospace", "fontsize": 16, "color": candidate_style(1).color, "linespacing": 1.5}
    beside.text(0.5, 0.58, lines, ha="center", va="top", **style)
    for each in (axis, beside):
        each.axis("off")
    return figure


def alternating(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 4: a layer with positive minors outputs exactly the assignments with few sign changes."""
    weight, seeds = np.array(settings["weight"], dtype=np.float64), settings["seeds"]
    lab.plan(len(seeds))
    found = lab.trials(alternating_trial, [{"sizes": settings["sizes"], "seed": seed} for seed in seeds])
    draw_arrangement(weight, lab.figures / "regions.png")
    draw_lattice(weight, lab.figures / "lattice.png")
    n, dim = weight.shape
    here = _argmaxable(weight) == _few_changes(n, dim - 1)
    layers = len(seeds) * len(settings["sizes"])
    right, other = sum(each["exact"] for each in found), sum(each["other"] for each in found)
    return Outcome(
        setup=f"Mathematics, no data: every assignment is audited, for a layer of our own with n = {n} and d = {dim} "
        f"(the paper does not print its entries) and for random layers with positive minors of "
        f"{len(settings['sizes'])} sizes, with {len(seeds)} seeds. Minors are checked in exact arithmetic.",
        claims=[
            Claim(
                "If all maximal minors are positive, the argmaxable assignments are those with at most d − 1 sign "
                "changes.",
                published["theorem"],
                checked(
                    minors_agree(weight) and here and right == layers,
                    f"true for the layer of the picture ({count_alternating(n, dim - 1)} of {2**n}) and for {right} of "
                    f"{layers} random ones",
                ),
            ),
            Claim(
                "Other layers have as many argmaxable assignments, but different ones.",
                published["others"],
                checked(
                    other == layers,
                    f"normal weights: as many but different assignments for {other} of {layers} layers",
                ),
            ),
        ],
        figures=[
            Figure("regions.png", "The regions of the layer and their signs."),
            Figure("lattice.png", "All assignments: those with at most one sign change are argmaxable."),
        ],
        values={"seeds": found},
    )


def alternating_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """For how many sizes a random layer with positive minors, and one without, agrees with the theory."""
    rng = np.random.default_rng(settings["seed"])
    exact = other = 0
    for n, dim in settings["sizes"]:
        # A Vandermonde matrix of increasing numbers has positive minors.
        positions = np.cumsum(rng.uniform(0.3, 1.0, n))
        powers = (positions[:, None] - positions.mean()) ** np.arange(dim)
        expected = _few_changes(n, dim - 1)
        exact += int(minors_agree(powers) and _argmaxable(powers) == expected)
        free = _argmaxable(rng.standard_normal((n, dim)))
        other += int(len(free) == len(expected) and free != expected)
    return {"exact": exact, "other": other}


def _argmaxable(weight: NDArray[np.float64]) -> set[tuple[int, ...]]:
    sets = all_assignments(len(weight))[1]
    verdicts = audit(weight, sets, radius=False, jobs=1).verdicts
    return {tuple(labels) for labels, verdict in zip(sets, verdicts, strict=True) if verdict == "argmaxable"}


def _few_changes(num_labels: int, changes: int) -> set[tuple[int, ...]]:
    signs, sets = all_assignments(num_labels)
    few = (np.diff(signs, axis=1) != 0).sum(axis=1) <= changes
    return {tuple(labels) for labels, chosen in zip(sets, few, strict=True) if chosen}


def radii(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 5: radii of hard sets by the number of labels, with and without slack."""
    sizes, slacks, seeds, ks = settings["num_labels"], settings["slacks"], settings["seeds"], settings["ks"]
    lab.plan(len(seeds) * len(ks))
    shared = {key: settings[key] for key in ("num_labels", "slacks", "quantile", "num_sets")}
    order = [(k, seed) for k in ks for seed in seeds]
    results = lab.trials(radii_trial, [{**shared, "k": k, "seed": seed} for k, seed in order])
    by_k = {k: np.array([each["radii"] for (at, _), each in zip(order, results, strict=True) if at == k]) for k in ks}
    undecided = sum(each["undecided"] for each in results)
    middle = {k: np.median(by_k[k], axis=0) for k in ks}
    none = np.zeros((len(sizes), len(slacks)), dtype=np.int64)
    drawn = [RadiusQuantiles(k, settings["quantile"], tuple(sizes), tuple(slacks), middle[k], none) for k in ks]
    draw_radius_quantiles(lab.figures / "radii.png", drawn)
    shrinking = all_of(
        [
            grows(
                {
                    math.log2(n): (-np.log10(np.maximum(by_k[k][:, row, 0], _LEAST))).tolist()
                    for row, n in enumerate(sizes)
                },
                name=f"k = {k}: −log₁₀ of the radius",
                along="log₂ n =",
                worth=1.0,
                unit="",
            )
            for k in ks
        ]
    )
    stepwise = sum(int((np.diff(each[:, 0]) < 0).all()) for k in ks for each in by_k[k])
    lifted = sum(int((each[:, -1] > each[:, 0]).all()) for k in ks for each in by_k[k])
    lost = {k: float((by_k[k][:, -1, 0] < THRESHOLD).mean()) for k in ks}
    kept = sum(int((each[:, -1] >= THRESHOLD).all()) for k in ks for each in by_k[k])
    runs = len(order)
    return Outcome(
        setup=f"Mathematics, no data: DFT layers of degree k with normal slack columns, {settings['num_sets']} random "
        f"sets of k labels for each of {len(seeds)} seeds, features bounded by 10⁴ as in the paper. The picture shows "
        f"medians over seeds of the {100 * settings['quantile']:g}% quantile.",
        claims=_radius_claims(published, settings, shrinking, lifted, lost, kept, runs),
        tables=[
            Table(
                f"{100 * settings['quantile']:g}% quantile of the radius, median over seeds",
                ["k, slack", *(f"n = {n}" for n in sizes)],
                [
                    [f"k = {k}, slack {slack}", *(worded(float(value)) for value in middle[k][:, column])]
                    for k in ks
                    for column, slack in enumerate(slacks)
                ],
                note=f"{undecided} undecided sets are left out.",
            )
        ],
        figures=[Figure("radii.png", "Radii by the number of labels and by the slack.")],
        tried=[
            f"The quantile decreases at every step from {sizes[0]} to {sizes[-1]} labels in {stepwise} of {runs} runs; "
            f"with {settings['num_sets']} sets, it is the radius of a single set."
        ],
        values={str(k): by_k[k].tolist() for k in ks},
    )


def _radius_claims(
    published: Mapping[str, Any],
    settings: Mapping[str, Any],
    shrinking: Finding,
    lifted: int,
    lost: Mapping[int, float],
    kept: int,
    runs: int,
) -> list[Claim]:
    sizes, slack, level = settings["num_labels"], settings["slacks"][-1], published["from_k"]
    low = all(share == 0 for k, share in lost.items() if k < level)
    high = all(share > 0 for k, share in lost.items() if k >= level)
    fractions = ", ".join(f"k = {k}: {100 * share:.0f}%" for k, share in lost.items())
    return [
        Claim(
            "Without slack, the radii shrink as labels are added.",
            published["shrink"],
            shrinking,
        ),
        Claim(
            f"Without slack and with many labels, some regions of sets of at least {level} labels are too small to "
            f"detect, but none of smaller sets.",
            published["detect"],
            checked(low and high, f"runs with a quantile below 10⁻⁸ at n = {sizes[-1]}: {fractions}"),
        ),
        Claim(
            f"{slack} slack columns make the regions large enough.",
            published["slack"],
            checked(
                lifted == runs and kept == runs,
                f"larger at every n in {lifted} of {runs} runs; never below 10⁻⁸ in {kept} of {runs}",
            ),
        ),
    ]


def radii_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Quantiles of the radius, ``(numbers of labels, slacks)``, for one degree and one seed."""
    options = {key: settings[key] for key in ("quantile", "num_sets", "seed")}
    found = radius_quantiles(settings["num_labels"], settings["slacks"], settings["k"], jobs=1, **options)
    return {"radii": found.radii.tolist(), "undecided": int(found.undecided.sum())}


def lattice(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 15: all assignments of six labels, the regions of the DFT layer of degree one, and their balls."""
    n, k = settings["num_labels"], settings["k"]
    lab.plan(1)
    (found,) = lab.trials(dft_trial, [{"sizes": settings["sizes"]}])
    weight = dft_matrix(n, k, dtype=torch.float64)
    draw_lattice(weight, lab.figures / "lattice.png")
    draw_arrangement(weight, lab.figures / "balls.png")
    mine = _argmaxable(weight.numpy())
    cut = arrangement(weight)
    levels = [(sum(len(labels) == size for labels in mine), size) for size in range(n + 1)]
    pairs = len([labels for labels in all_assignments(n)[1] if len(labels) == k + 1])
    exact, sparse = sum(each["exact"] for each in found["layers"]), sum(each["sparse"] for each in found["layers"])
    count = len(found["layers"])
    return Outcome(
        setup=f"Mathematics, no data: the truncated DFT of degree {k} with {n} labels; every assignment is audited, "
        f"also for {count} larger layers.",
        claims=[
            Claim(
                f"{n} labels and {2 * k + 1} features give {count_argmaxable(n, 2 * k + 1)} regions, each with a ball.",
                published["regions"],
                checked(
                    len(mine) == len(cut.signs) == count_argmaxable(n, 2 * k + 1) and bool((cut.radii > 0).all()),
                    f"{len(mine)} of {2**n} assignments, {len(cut.signs)} balls, the smallest of radius "
                    f"{cut.radii.min():.3f} in units of the bound",
                ),
            ),
            Claim(
                f"All sets of at most {k} label{'s' * (k > 1)} are argmaxable, but not all sets of {k + 1}.",
                published["levels"],
                checked(
                    count_alternating(n, 2 * k) == len(mine)
                    and sparse == count
                    and all(tuple(labels) in mine for labels in all_assignments(n)[1] if len(labels) <= k)
                    and levels[k + 1][0] < pairs,
                    f"argmaxable with {', '.join(f'{size} active: {number}' for number, size in levels)}; all sets of "
                    f"at most k for {sparse} of {count} larger layers",
                ),
            ),
            Claim(
                "The argmaxable assignments of the DFT are exactly those with at most 2k sign changes.",
                published["alternating"],
                checked(
                    mine == _few_changes(n, 2 * k) and exact == count,
                    f"true in the picture and for {exact} of {count} larger layers",
                ),
            ),
        ],
        figures=[
            Figure(
                "lattice.png",
                "All assignments by the number of active labels; lines connect regions that share a face.",
            ),
            Figure("balls.png", "The balls of all regions, and the regions on half of the sphere of directions."),
        ],
        values=found,
    )


def dft_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Whether audits agree with the theory, for DFT layers of several sizes."""
    layers = []
    for n, k in settings["sizes"]:
        found = _argmaxable(dft_matrix(n, k, dtype=torch.float64).numpy())
        sparse = all(tuple(labels) in found for labels in all_assignments(n)[1] if len(labels) <= k)
        layers.append({"n": n, "k": k, "exact": int(found == _few_changes(n, 2 * k)), "sparse": int(sparse)})
    return {"layers": layers}
