"""Pictures of argmaxability in the plane and by counting: regions, their balls, and how many of them there are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.exact_claims import checked, worded
from experiments.lml_drawings import PALE
from shortlist.audit import audit, count_argmaxable, log10_share
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table
from shortlist.evidence.verdicts import OPEN
from shortlist.extras import require
from shortlist.report import draw_arrangement, draw_share
from shortlist.report.argmaxability import Arrangement, all_assignments, arrangement, sign_text
from shortlist.report.chart import INK, candidate_style
from shortlist.report.chart_matplotlib import new_figure, save_figure
from shortlist.train.comparison import Interval

Array = NDArray[np.float64]
ROUNDING = 1e-6
"""In units of the box of the features; the auditor stops its linear programmes at 1e-9 of their size."""


def regions(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 1: three lines cut the plane into six regions, so two of eight assignments have none."""
    weight = np.array(settings["weight"], dtype=np.float64)
    found = _counts(settings, lab)
    cut = arrangement(weight)
    save_figure(_draw_sectors(cut), lab.figures / "regions.png", dpi=110)
    here = sum(each["counts"][_key(*weight.shape)] == count_argmaxable(*weight.shape) for each in found)
    return Outcome(
        setup=f"Mathematics, no data: every assignment is put to the auditor, for the layer of the picture and for "
        f"normal weights of {len(settings['sizes'])} sizes with {len(found)} seeds. The weights of the picture are our "
        "own, as the text prints none.",
        claims=[
            Claim(
                "Three lines through the origin of the plane leave 6 of 8 assignments, however they lie.",
                published["six"],
                checked(
                    here == len(found) and len(cut.signs) == 6 and cut.undecided == 0,
                    f"{len(cut.signs)} in the picture, and 6 for {here} of {len(found)} random layers",
                ),
            ),
            _cover(published, settings, found),
            Claim(
                "A trained layer with 50 features cannot output a set of 7 labels that occurs in the test rows.",
                published["trained"],
                Finding(OPEN, "needs MIMIC-III; trained layers on the data at hand are audited in dft-figure-6"),
            ),
        ],
        tables=[_count_table(settings, found)],
        figures=[Figure("regions.png", "The regions of three labels with two features, and the two sets without one.")],
        values={"seeds": found},
    )


def share(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 2: which share of the assignments is argmaxable, against the dimension."""
    n = settings["num_labels"]
    found = _counts(settings, lab)
    draw_share(lab.figures / "share.png", n)
    counts = [count_argmaxable(n, dim) for dim in range(1, n + 1)]
    half = 2 * counts[n // 2 - 1] == 2**n
    narrow = n // 10
    factor = min(counts[dim] / counts[dim - 1] for dim in range(1, narrow))
    dims = [dim for dim in settings["dims"] if dim <= n]
    return Outcome(
        setup=f"Mathematics, no data: exact whole numbers for n = {n}; the formula is compared with counts of the "
        f"auditor for normal weights of {len(settings['sizes'])} sizes with {len(found)} seeds.",
        claims=[
            _cover(published, settings, found),
            Claim(
                f"The share falls fast below d = n/2, where it is exactly one half (n = {n}).",
                published["dip"],
                checked(
                    half,
                    f"{'exactly' if half else 'not'} half of all at d = {n // 2}; "
                    + ", ".join(f"10^{log10_share(counts[dim - 1], n):.1f} at d = {dim}" for dim in dims),
                ),
            ),
            Claim(
                "While d is below n/10 the number grows exponentially: each feature multiplies it by more than 9.",
                published["exponential"],
                checked(factor > 9, f"the least factor up to d = {narrow} is {factor:.1f}"),
            ),
        ],
        tables=[_count_table(settings, found)],
        figures=[Figure("share.png", f"The share of all assignments of {n} labels that is argmaxable.")],
        values={"log10_shares": {str(dim): log10_share(counts[dim - 1], n) for dim in dims}, "seeds": found},
    )


def balls(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 3: the largest ball of each region, and how it shrinks as labels are added."""
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
        f"{len(seeds)} seeds. Radii are in units of the box |v| ≤ 10⁴ of the text.",
        claims=[
            Claim(
                "Each region has a ball, which lies inside and touches its nearest line.",
                published["balls"],
                checked(
                    gap < ROUNDING and len(cut.signs) == count_argmaxable(*weight.shape),
                    f"{len(cut.signs)} balls; radius and distance to the nearest line differ by at most {worded(gap)}",
                ),
            ),
            Claim(
                "With more labels than features most balls become tiny.",
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
                f"Median radius of the regions, {weight.shape[1]} features, in units of the box",
                ["", *(f"n = {n}" for n in settings["sizes"])],
                [["radius", *(Interval.of(list(column)) for column in zip(*medians, strict=True))]],
                digits=4,
            )
        ],
        figures=[Figure("balls.png", "The largest ball of each region whose centre lies in the dotted box.")],
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
        "How many assignments are argmaxable depends on n and d alone: Cover's formula.",
        published["cover"],
        checked(
            right == len(asked) and undecided == 0,
            f"the auditor counts what the formula says for {right} of {len(asked)} layers; {undecided} undecided",
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
    """How many assignments the auditor finds argmaxable, for normal weights of several sizes."""
    rng = np.random.default_rng(settings["seed"])
    counts, undecided = {}, 0
    for n, dim in settings["sizes"]:
        verdicts = audit(rng.standard_normal((n, dim)), all_assignments(n)[1], radius=False, jobs=1).verdicts
        counts[_key(n, dim)] = int((verdicts == "argmaxable").sum())
        undecided += int((verdicts == "undecided").sum())
    return {"counts": counts, "undecided": undecided}


def radius_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """The median radius of the regions of random layers of several sizes, in units of the box."""
    rng = np.random.default_rng(settings["seed"])
    medians = []
    for n in settings["sizes"]:
        weight = rng.standard_normal((n, settings["dim"]))
        sets = [np.flatnonzero(signs > 0).tolist() for signs in plane_signs(weight)]
        medians.append(float(np.median(audit(weight, sets, jobs=1).radii)) / 1e4)
    return {"medians": medians}


def plane_signs(weight: Array) -> NDArray[np.int64]:
    """The signs of all regions of lines through the origin of the plane, in the order of the angle.

    Example:
        >>> len(plane_signs(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])))
        6
    """
    if weight.shape[1] != 2:
        raise ValueError(f"`weight` must have 2 features; got {weight.shape[1]}.")
    # A line is crossed at right angles to its normal, on both sides.
    normals = np.arctan2(weight[:, 1], weight[:, 0])
    edges = np.sort(np.concatenate([normals + math.pi / 2, normals - math.pi / 2]) % (2 * math.pi))
    middles = (edges + np.append(edges[1:], edges[0] + 2 * math.pi)) / 2
    return np.sign(np.stack([np.cos(middles), np.sin(middles)], axis=1) @ weight.T).astype(np.int64)


def _draw_sectors(cut: Arrangement) -> Any:
    """The regions as colored sectors with their signs, and the assignments without one beside them."""
    patches = require("matplotlib.patches", extra="report")
    num_labels = len(cut.weight)
    figure = new_figure(7.2, 4.3)
    axis, beside = figure.subplots(1, 2, width_ratios=(3, 2))
    order = plane_signs(cut.weight)
    normals = np.arctan2(cut.weight[:, 1], cut.weight[:, 0])
    edges = np.sort(np.concatenate([normals + math.pi / 2, normals - math.pi / 2]) % (2 * math.pi))
    ends = np.append(edges[1:], edges[0] + 2 * math.pi)
    for place, (signs, start, end) in enumerate(zip(order, edges, ends, strict=True)):
        color = candidate_style(place).color
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
