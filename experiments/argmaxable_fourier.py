"""Pictures of layers whose minors agree in sign, the DFT above all: alternating signs, small regions, and slack."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.exact_claims import checked, worded
from shortlist.audit import RadiusQuantiles, audit, count_alternating, count_argmaxable, minors_agree, radius_quantiles
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, all_of, grows
from shortlist.functional import dft_matrix
from shortlist.report import draw_arrangement, draw_lattice, draw_radius_quantiles
from shortlist.report.argmaxability import all_assignments, arrangement

THRESHOLD = 1e-8
"""Below this radius the text takes a region for empty."""
_LEAST = 1e-30  # a radius of 0 has no logarithm


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
        setup=f"Mathematics, no data: every assignment is put to the auditor, for a layer of our own with n = {n} and "
        f"d = {dim} (the text's own entries are not printed) and for random layers with positive minors of "
        f"{len(settings['sizes'])} sizes, with {len(seeds)} seeds. Minors are checked in exact arithmetic.",
        claims=[
            Claim(
                "If all maximal minors are positive, the argmaxable assignments are those with at most d − 1 changes "
                "of sign.",
                published["theorem"],
                checked(
                    minors_agree(weight) and here and right == layers,
                    f"so for the layer of the picture ({count_alternating(n, dim - 1)} of {2**n}) and for {right} of "
                    f"{layers} random ones",
                ),
            ),
            Claim(
                "Other layers have as many argmaxable assignments, but not those.",
                published["others"],
                checked(
                    other == layers,
                    f"normal weights: as many, and another set of assignments, for {other} of {layers} layers",
                ),
            ),
        ],
        figures=[
            Figure("regions.png", "The regions of the layer and their signs."),
            Figure("lattice.png", "All assignments: those with at most one change of sign are argmaxable."),
        ],
        values={"seeds": found},
    )


def alternating_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """For how many sizes a random layer with positive minors, and one without, outputs what theory says."""
    rng = np.random.default_rng(settings["seed"])
    exact = other = 0
    for n, dim in settings["sizes"]:
        # Powers of growing numbers: a Vandermonde matrix, whose minors are positive.
        places = np.cumsum(rng.uniform(0.3, 1.0, n))
        powers = (places[:, None] - places.mean()) ** np.arange(dim)
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
    """Figure 5: radii of hard sets against the number of labels, with and without slack."""
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
        f"sets of k labels for each of {len(seeds)} seeds, features bounded by 10⁴ as in the text. The picture shows "
        f"medians over seeds of the {100 * settings['quantile']:g}% quantile.",
        claims=_radius_claims(published, settings, shrinking, lifted, lost, kept, runs),
        tables=[
            Table(
                f"Radius that {100 * settings['quantile']:g}% of the sets do not exceed, median over seeds",
                ["k, slack", *(f"n = {n}" for n in sizes)],
                [
                    [f"k = {k}, slack {slack}", *(worded(float(value)) for value in middle[k][:, column])]
                    for k in ks
                    for column, slack in enumerate(slacks)
                ],
                note=f"{undecided} sets were left out as undecided.",
            )
        ],
        figures=[Figure("radii.png", "Radii against the number of labels, and against the slack.")],
        tried=[
            f"Asked step by step, the quantile fell each time from {sizes[0]} to {sizes[-1]} labels in {stepwise} of "
            f"{runs} runs; with {settings['num_sets']} sets it is that of a single set."
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
    told = ", ".join(f"k = {k}: {100 * share:.0f}%" for k, share in lost.items())
    return [
        Claim(
            "Without slack the radii shrink as labels are added.",
            published["shrink"],
            shrinking,
        ),
        Claim(
            f"Without slack and with many labels, some regions of sets of {level} and more labels are too small to "
            f"detect, and none of sets of fewer than {level}.",
            published["detect"],
            checked(low and high, f"runs with a quantile below 10⁻⁸ at n = {sizes[-1]}: {told}"),
        ),
        Claim(
            f"{slack} columns of slack make the regions larger, and large enough.",
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
        setup=f"Mathematics, no data: the truncated DFT of degree {k} with {n} labels; every assignment is put to the "
        f"auditor, and likewise for {count} larger layers.",
        claims=[
            Claim(
                f"{n} labels and {2 * k + 1} features make {count_argmaxable(n, 2 * k + 1)} regions, each with a ball.",
                published["regions"],
                checked(
                    len(mine) == len(cut.signs) == count_argmaxable(n, 2 * k + 1) and bool((cut.radii > 0).all()),
                    f"{len(mine)} of {2**n} assignments, {len(cut.signs)} balls, the smallest of radius "
                    f"{cut.radii.min():.3f} in units of the box",
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
                "The argmaxable assignments of the DFT are exactly those with at most 2k changes of sign.",
                published["alternating"],
                checked(
                    mine == _few_changes(n, 2 * k) and exact == count,
                    f"so in the picture and for {exact} of {count} larger layers",
                ),
            ),
        ],
        figures=[
            Figure("lattice.png", "All assignments by the number of active labels; lines join regions with a face."),
            Figure("balls.png", "The balls of all regions, and the regions on half of the sphere of directions."),
        ],
        values=found,
    )


def dft_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Whether the auditor finds what theory says, for DFT layers of several sizes."""
    layers = []
    for n, k in settings["sizes"]:
        found = _argmaxable(dft_matrix(n, k, dtype=torch.float64).numpy())
        sparse = all(tuple(labels) in found for labels in all_assignments(n)[1] if len(labels) <= k)
        layers.append({"n": n, "k": k, "exact": int(found == _few_changes(n, 2 * k)), "sparse": int(sparse)})
    return {"layers": layers}
