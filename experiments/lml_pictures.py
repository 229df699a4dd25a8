"""Pictures of the LML projection: the polytopes, and the root of the dual."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.exact_claims import checked, worded
from experiments.lml_drawings import draw_dual_root, draw_polytopes
from shortlist.evidence import Claim, Figure, Lab, Outcome, Table
from shortlist.functional import lml, lml_dual
from shortlist.report.chart_matplotlib import save_figure

ROUNDING = 1e-9
"""What float64 may lose in sums of thousands of terms."""
OFTEN = 0.99
"""What counts as "with high probability": the text gives no number."""
USUALLY = 0.5
"""What counts as "usually": more often than not."""


def polytopes(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 1: three polytopes, with what the projection makes of random logits."""
    shapes = [tuple(shape) for shape in settings["polytopes"]]
    lab.plan(len(settings["seeds"]))
    asked = [{"shapes": settings["projected"], "rows": settings["rows"], "seed": seed} for seed in settings["seeds"]]
    found = lab.trials(projection_trial, asked)
    most = settings["most_labels"]
    counts = {(n, k): len(vertices(n, k)) for n in range(2, most + 1) for k in range(1, n)}
    right = sum(count == math.comb(n, k) for (n, k), count in counts.items())
    corners = vertices(4, 2)
    edges = sum(int(np.abs(a - b).sum()) == 2 for a, b in combinations(corners, 2))
    faces = sum(int((corners[:, at] == side).sum()) == 3 for at in range(4) for side in (0, 1))
    gap, disorder = max(each["gap"] for each in found), sum(each["out_of_order"] for each in found)
    save_figure(draw_polytopes({shape: vertices(*shape) for shape in shapes}), lab.figures / "polytopes.png", dpi=110)
    sizes = ", ".join(f"({n}, {k})" for n, k in settings["projected"])
    return Outcome(
        setup=f"Mathematics, no data. Vertices of L(n, k) are found by solving for every choice of n − 1 coordinates "
        f"at 0 or 1, for all 2 ≤ n ≤ {most}. The projection is computed in float64 for {settings['rows']} rows of "
        f"normal logits, scale 5, at (n, k) = {sizes}, with {len(found)} seeds.",
        claims=[
            Claim(
                "The vertices of L(n, k) are the sets of k labels, C(n, k) of them: two triangles and an octahedron.",
                published["shapes"],
                checked(
                    right == len(counts) and edges == 12 and faces == 8,
                    f"C(n, k) vertices in {right} of {len(counts)} polytopes; L(4, 2) has {len(corners)} vertices, "
                    f"{edges} edges and {faces} triangles",
                ),
            ),
            Claim(
                "The projection lies in the polytope and keeps the order of the logits.",
                published["order"],
                checked(
                    gap < ROUNDING and disorder == 0,
                    f"|Σp − k| ≤ {worded(gap)} and 0 ≤ p ≤ 1; {disorder} pairs out of order in "
                    f"{len(found) * len(settings['projected']) * settings['rows']} rows",
                ),
            ),
        ],
        figures=[
            Figure("polytopes.png", "L(3, 1) and L(3, 2) in the unit cube, and L(4, 2); dots are LML projections.")
        ],
        values={"vertices": {f"{n},{k}": count for (n, k), count in counts.items()}, "seeds": found},
    )


def vertices(num_labels: int, k: int) -> np.ndarray:
    """All vertices of ``0 <= p <= 1, sum p = k``: n - 1 coordinates at a bound, the last one solved for.

    Example:
        >>> vertices(3, 1).tolist()
        [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    found = set()
    for free in range(num_labels):
        for bounds in product((0.0, 1.0), repeat=num_labels - 1):
            rest = k - sum(bounds)
            if 0 <= rest <= 1:
                found.add((*bounds[:free], rest, *bounds[free:]))
    return np.array(sorted(found))


def projection_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """How far random projections are from the polytope, and how many pairs of labels change their order."""
    generator = torch.Generator().manual_seed(settings["seed"])
    gap, out_of_order = 0.0, 0
    for n, k in settings["shapes"]:
        logits = 5 * torch.randn(settings["rows"], n, dtype=torch.float64, generator=generator)
        p = lml(logits, k)
        outside = torch.maximum(-p, p - 1).max().clamp(min=0)
        gap = max(gap, float((p.sum(-1) - k).abs().max()), float(outside))
        ranked = p.gather(-1, logits.argsort(-1))
        out_of_order += int((ranked.diff(dim=-1) < 0).sum())
    return {"gap": gap, "out_of_order": out_of_order}


def dual_root(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 2: the sum of six sigmoids less k, its root, and the bounds that the text begins with."""
    logits, k, offset = torch.tensor(settings["logits"], dtype=torch.float64), settings["k"], settings["offset"]
    lab.plan(len(settings["seeds"]))
    shared = {key: settings[key] for key in ("sizes", "spreads", "k", "offset", "rows", "samples")}
    found = lab.trials(bracket_trial, [{**shared, "seed": seed} for seed in settings["seeds"]])
    save_figure(draw_dual_root(logits, k, offset), lab.figures / "dual-root.png", dpi=110)
    distance = max(each["distance"] for each in found)
    falls = sum(each["falls"] for each in found)
    conditions = [(str(n), str(spread)) for n in settings["sizes"] for spread in settings["spreads"]]
    shares = {at: sum(each["enclosed"][at[0]][at[1]] for each in found) / len(found) for at in conditions}
    low = {at: share for at, share in shares.items() if share < OFTEN}
    told = ", ".join(f"{100 * share:.0f}% at n = {n}, spread {spread}" for (n, spread), share in low.items())
    steps = [step for each in found for step in each["iterations"]]
    few = sum(step < 10 for step in steps)
    table = [[f"n = {n}", *(shares[str(n), str(spread)] for spread in settings["spreads"])] for n in settings["sizes"]]
    return Outcome(
        setup=f"Mathematics, no data. The picture has n = {len(logits)} logits of our own (the text does not print "
        f"its own) and k = {k}. The claims are checked in float64 on {settings['rows']} rows of normal logits for each "
        f"n and spread, with {len(found)} seeds; the root that is compared with is found by bisection.",
        claims=[
            Claim(
                "g rises all the way, so its root is the only one, and `lml_dual` finds it.",
                published["increasing"],
                checked(
                    falls == 0 and distance < ROUNDING,
                    f"distance from the bisected root ≤ {worded(distance)}; g fell in {falls} of the steps between "
                    "200 points",
                ),
            ),
            Claim(
                f"With the offset {offset} the first bounds enclose the root with high probability, whatever the "
                "number of labels.",
                published["bounds"],
                checked(
                    not low,
                    f"in at least {100 * OFTEN:g}% of the rows in {len(shares) - len(low)} of {len(shares)} conditions"
                    + (f"; only {told}" if low else ""),
                ),
            ),
            Claim(
                f"From bounds that enclose the root, {settings['samples']} points per round reach machine precision "
                "in fewer than 10 rounds, more often than not.",
                published["rounds"],
                checked(
                    few > USUALLY * len(steps),
                    f"{min(steps)} to {max(steps)} rounds in float64, fewer than 10 in {few} of {len(steps)} rows",
                ),
            ),
        ],
        tables=[
            Table(
                "Rows whose root lies between the first bounds (%)",
                ["labels", *(f"spread {spread}" for spread in settings["spreads"])],
                table,
                percent=True,
                note="The lower bound takes n − k + 1 saturated sigmoids for 0, but each is up to "
                f"σ(−{offset}) = {worded(1 / (1 + math.exp(offset)))}: with many labels and logits close together they "
                "alone sum to more than k.",
            )
        ],
        figures=[Figure("dual-root.png", "g(ν) with its root and the first bounds; the six sigmoids that it sums.")],
        values={"seeds": found},
    )


def bracket_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Roots against bisection, and how often and how fast the bracketing of the text gets there."""
    generator = torch.Generator().manual_seed(settings["seed"])
    k, offset = settings["k"], settings["offset"]
    distance, falls, enclosed, iterations = 0.0, 0, {}, []
    for n in settings["sizes"]:
        enclosed[str(n)] = {}
        for spread in settings["spreads"]:
            x = spread * torch.randn(settings["rows"], n, dtype=torch.float64, generator=generator)
            root_found, bisected = lml_dual(x, k), bisected_root(x, k)
            distance = max(distance, float((root_found - bisected).abs().max()))
            ordered = x.sort(-1, descending=True).values
            low, high = -ordered[:, k - 1] - offset, -ordered[:, k] + offset
            inside = (low <= bisected) & (bisected <= high)
            enclosed[str(n)][str(spread)] = float(inside.double().mean())
            if n == settings["sizes"][0]:
                nu = torch.linspace(-20, 20, 200, dtype=torch.float64)
                falls += int((torch.sigmoid(x[:20, None] + nu[:, None]).sum(-1).diff(dim=-1) < 0).sum())
                rows = inside.nonzero().squeeze(-1)[:20].tolist()
                iterations += [
                    rounds(x[row], k, float(low[row]), float(high[row]), settings["samples"]) for row in rows
                ]
    return {"distance": distance, "falls": falls, "enclosed": enclosed, "iterations": iterations}


def bisected_root(x: torch.Tensor, k: int) -> torch.Tensor:
    """The root of every row, by halving an interval that holds it for certain."""
    # At -max - log(n / k) - 1 every sigmoid is below k / n, and at the other end above.
    reach = math.log(x.shape[-1] / min(k, x.shape[-1] - k)) + 1
    low, high = -x.max(-1).values - reach, -x.min(-1).values + reach
    for _ in range(64):
        middle = (low + high) / 2
        below = torch.sigmoid(x + middle[:, None]).sum(-1) < k
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def rounds(x: torch.Tensor, k: int, low: float, high: float, samples: int) -> int:
    """How many rounds of even samples the bracket takes until no float64 lies between neighbours, within 4 units."""
    count = 0
    while high - low > 4 * np.spacing(max(abs(low), abs(high))) and count < 100:
        nu = torch.linspace(low, high, samples, dtype=torch.float64)
        negative = torch.sigmoid(x + nu[:, None]).sum(-1) < k
        at = min(max(int(negative.sum()) - 1, 0), samples - 2)
        low, high = float(nu[at]), float(nu[at + 1])
        count += 1
    return count
