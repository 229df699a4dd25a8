"""LML in pictures: its polytopes, the root of its dual, and entropies (LML, figures 1, 2 and 7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.presentation import DPI, checked, worded
from shortlist.evidence import Claim, Figure, Lab, Outcome, Table
from shortlist.extras import require
from shortlist.functional import constrained_softmax, lml, lml_dual
from shortlist.report.chart import INK, Axis, Chart, Series, candidate_style
from shortlist.report.chart_matplotlib import PALE, draw_chart, new_figure, save_figure, style_axis

Array = NDArray[np.float64]
_SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
_ROUNDING = 1e-12
ROUNDING = 1e-9
"""Rounding of float64 in sums of thousands of terms."""
OFTEN = 0.99
"""What counts as "with high probability": the paper gives no number."""
USUALLY = 0.5
"""What counts as "usually": in more than half of the cases."""
_BLUE, _ORANGE = candidate_style(0).color, candidate_style(1).color
# An orthonormal basis of the plane sum p = 0 in four dimensions, in which the octahedron stands upright.
_UPRIGHT = np.array([[1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2


def draw_polytopes(corners: Mapping[tuple[int, int], np.ndarray]) -> Any:
    """The polytopes of three labels in the unit cube, and next to it each polytope of four labels.

    Args:
        corners: by (n, k) the vertices, n being 3 or 4.
    """
    flat = {shape: points for shape, points in corners.items() if shape[0] == 3}
    solid = {shape: points for shape, points in corners.items() if shape[0] == 4}
    figure = new_figure(4.3 * (bool(flat) + len(solid)), 4.4)
    panels = bool(flat) + len(solid)
    if flat:
        axis = figure.add_subplot(1, panels, 1, projection="3d")
        _draw_in_cube(axis, flat)
    for at, (shape, points) in enumerate(solid.items()):
        axis = figure.add_subplot(1, panels, bool(flat) + at + 1, projection="3d")
        _draw_solid(axis, shape, points)
    return figure


def _projected(shape: tuple[int, int], rows: int) -> np.ndarray:
    """Random points of a polytope: projections of normal logits."""
    logits = 2.5 * torch.randn(rows, shape[0], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return lml(logits, shape[1]).numpy()


def _draw_in_cube(axis: Any, shapes: Mapping[tuple[int, int], np.ndarray]) -> None:
    art = require("mpl_toolkits.mplot3d.art3d", extra="report")
    cube = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
    for first, second in combinations(cube, 2):
        if np.abs(first - second).sum() == 1:
            axis.plot(*np.stack([first, second], axis=1), color="#c4c9d0", linewidth=0.9)
    for at, (shape, points) in enumerate(shapes.items()):
        color = candidate_style((0, 5, 2)[at % 3]).color
        axis.add_collection3d(art.Poly3DCollection([points], facecolor=color, edgecolor=INK, alpha=0.35))
        axis.scatter(*_projected(shape, 90).T, s=5, color=color, depthshade=False)
        axis.plot([], [], "s", color=color, alpha=0.6, markersize=9, label=f"$\\sum p = {shape[1]}$")
    _bare(axis, (0, 1), zoom=1.0)
    for at, name in enumerate(("$p_1$", "$p_2$", "$p_3$")):
        position = np.full(3, -0.02)
        position[at] = 1.08
        axis.text(*position, name, color=PALE, fontsize=10, ha="center")
    names = " and ".join(rf"$\mathcal{{L}}_{{{n},{k}}}$" for n, k in shapes)
    axis.set_title(f"{names}: three labels, in the unit cube", fontsize=11, color=INK)
    axis.legend(loc="lower center", ncols=len(shapes), frameon=False, fontsize=10, bbox_to_anchor=(0.5, -0.04))
    axis.view_init(elev=20, azim=15)


def _draw_solid(axis: Any, shape: tuple[int, int], points: np.ndarray) -> None:
    art = require("mpl_toolkits.mplot3d.art3d", extra="report")
    projected = (points - points.mean(0)) @ _UPRIGHT.T
    for label in range(4):
        for side in (0, 1):
            face = projected[points[:, label] == side]
            if len(face) == 3:
                axis.add_collection3d(art.Poly3DCollection([face], facecolor=_BLUE, edgecolor=INK, alpha=0.14))
    axis.scatter(*((_projected(shape, 160) - points.mean(0)) @ _UPRIGHT.T).T, s=5, color=_BLUE, depthshade=False)
    for vertex, position in zip(points, projected, strict=True):
        name = "".join(str(round(value)) for value in vertex)
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}
        style = {"ha": "center", "va": "center", "family": "monospace", "fontsize": 10, "color": INK}
        axis.text(*(1.28 * position), name, bbox=box, zorder=9, **style)
    limit = np.abs(projected).max()
    _bare(axis, (-limit, limit), zoom=1.15)
    title = rf"$\mathcal{{L}}_{{{shape[0]},{shape[1]}}}$: four labels, in the plane $\sum p = {shape[1]}$"
    axis.set_title(title, fontsize=11, color=INK)
    axis.view_init(elev=16, azim=30)


def _bare(axis: Any, limits: tuple[float, float], *, zoom: float) -> None:
    axis.set(xlim=limits, ylim=limits, zlim=limits, proj_type="ortho")
    axis.set_box_aspect((1, 1, 1), zoom=zoom)
    axis.set_axis_off()


def draw_dual_root(logits: torch.Tensor, k: int, offset: float) -> Any:
    """The sum of the sigmoids minus k on the left, the sigmoids on the right."""
    root = float(lml_dual(logits, k))
    ordered = logits.sort(descending=True).values
    bounds = {
        "initial lower bound": float(-ordered[k - 1] - offset),
        "initial upper bound": float(-ordered[k] + offset),
    }
    nu = torch.linspace(min(bounds.values()) - 1, max(bounds.values()) + 1, 400, dtype=torch.float64)
    parts = torch.sigmoid(logits + nu[:, None])
    figure = new_figure(8.6, 3.9)
    left, right = figure.subplots(1, 2)
    left.plot(nu, parts.sum(-1) - k, color=_BLUE, linewidth=2)
    left.axhline(0, color=PALE, linewidth=0.8)
    for name, position in bounds.items():
        left.axvline(position, color=PALE, linestyle="--", linewidth=1)
        below = position < root  # where the curve is low, the text is high
        near = {"ha": "left", "xytext": (5, 0)} if below else {"ha": "right", "xytext": (-5, 0)}
        height = 0.55 * (len(logits) - k) if below else -0.6 * k
        left.annotate(name, (position, height), textcoords="offset points", color=PALE, fontsize=9, **near)
    left.plot(root, 0, "o", color=_ORANGE, zorder=4)
    left.annotate(
        rf"$\nu^* = {root:.2f}$", (root, 0), xytext=(8, -14), textcoords="offset points", color=_ORANGE, fontsize=10
    )
    left.set(title=r"$g(\nu) = \sum_j \sigma(x_j + \nu) - k$", ylabel=r"$g(\nu)$")
    order = logits.argsort(descending=True).tolist()
    for at, label in enumerate(order):
        color = candidate_style(at).color
        p = float(torch.sigmoid(logits[label] + root))
        name = f"{float(logits[label]):+.1f}: {p:.2f}".replace("-", "−")
        right.plot(nu, parts[:, label], color=color, linewidth=1.6, label=name)
        right.plot(root, p, "o", color=color, markersize=5, zorder=4)
    right.axvline(root, color=_ORANGE, linestyle=":", linewidth=1.2)
    right.set(title=rf"the {len(logits)} sigmoids; at $\nu^*$ they sum to {k}", ylabel=r"$\sigma(x_j + \nu)$")
    right.legend(title="$x_j$:  $p_j$", frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for axis in (left, right):
        style_axis(axis, grid="both")
        axis.title.set(fontsize=11, color=INK)
        axis.set_xlabel(r"shift $\nu$ of all logits")
    return figure


def polytopes(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 1: three polytopes, with projections of random logits."""
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
    save_figure(draw_polytopes({shape: vertices(*shape) for shape in shapes}), lab.figures / "polytopes.png", dpi=DPI)
    sizes = ", ".join(f"({n}, {k})" for n, k in settings["projected"])
    return Outcome(
        setup=f"Mathematics, no data. Vertices of L(n, k) are found by solving for every choice of n − 1 coordinates "
        f"at 0 or 1, for all 2 ≤ n ≤ {most}. The projection is computed in float64 for {settings['rows']} rows of "
        f"normal logits, scale 5, at (n, k) = {sizes}, with {len(found)} seeds.",
        claims=[
            Claim(
                "The vertices of L(n, k) are the C(n, k) sets of k labels: two triangles and an octahedron.",
                published["shapes"],
                checked(
                    right == len(counts) and edges == 12 and faces == 8,
                    f"C(n, k) vertices in {right} of {len(counts)} polytopes; L(4, 2) has {len(corners)} vertices, "
                    f"{edges} edges and {faces} triangles",
                ),
            ),
            Claim(
                "The projection lies in the polytope and preserves the order of the logits.",
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
    """The distance of random projections from the polytope, and the number of label pairs that change order."""
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
    """Figure 2: the sum of six sigmoids minus k, its root, and the paper's initial bounds."""
    logits, k, offset = torch.tensor(settings["logits"], dtype=torch.float64), settings["k"], settings["offset"]
    lab.plan(len(settings["seeds"]))
    shared = {key: settings[key] for key in ("sizes", "spreads", "k", "offset", "rows", "samples")}
    found = lab.trials(bracket_trial, [{**shared, "seed": seed} for seed in settings["seeds"]])
    save_figure(draw_dual_root(logits, k, offset), lab.figures / "dual-root.png", dpi=DPI)
    distance = max(each["distance"] for each in found)
    falls = sum(each["falls"] for each in found)
    conditions = [(str(n), str(spread)) for n in settings["sizes"] for spread in settings["spreads"]]
    shares = {at: sum(each["enclosed"][at[0]][at[1]] for each in found) / len(found) for at in conditions}
    low = {at: share for at, share in shares.items() if share < OFTEN}
    exceptions = ", ".join(f"{100 * share:.0f}% at n = {n}, spread {spread}" for (n, spread), share in low.items())
    steps = [step for each in found for step in each["iterations"]]
    few = sum(step < 10 for step in steps)
    table = [[f"n = {n}", *(shares[str(n), str(spread)] for spread in settings["spreads"])] for n in settings["sizes"]]
    return Outcome(
        setup=f"Mathematics, no data. The picture has n = {len(logits)} logits of our own (the paper does not print "
        f"its logits) and k = {k}. The claims are checked in float64 on {settings['rows']} rows of normal logits for "
        f"each n and spread, with {len(found)} seeds; the reference root is found by bisection.",
        claims=[
            Claim(
                "g is strictly increasing, so its root is unique, and `lml_dual` finds it.",
                published["increasing"],
                checked(
                    falls == 0 and distance < ROUNDING,
                    f"distance from the bisected root ≤ {worded(distance)}; g decreases in {falls} of the steps "
                    "between 200 points",
                ),
            ),
            Claim(
                f"With the offset {offset}, the initial bounds enclose the root with high probability for any number "
                "of labels.",
                published["bounds"],
                checked(
                    not low,
                    f"in at least {100 * OFTEN:g}% of the rows in {len(shares) - len(low)} of {len(shares)} conditions"
                    + (f"; only {exceptions}" if low else ""),
                ),
            ),
            Claim(
                f"From bounds that enclose the root, {settings['samples']} points per round usually reach machine "
                "precision in fewer than 10 rounds.",
                published["rounds"],
                checked(
                    few > USUALLY * len(steps),
                    f"{min(steps)} to {max(steps)} rounds in float64, fewer than 10 in {few} of {len(steps)} rows",
                ),
            ),
        ],
        tables=[
            Table(
                "Rows whose root lies between the initial bounds (%)",
                ["labels", *(f"spread {spread}" for spread in settings["spreads"])],
                table,
                percent=True,
                note="The lower bound treats n − k + 1 saturated sigmoids as 0, but each is up to "
                f"σ(−{offset}) = {worded(1 / (1 + math.exp(offset)))}: with many labels and similar logits, they alone "
                "sum to more than k.",
            )
        ],
        figures=[
            Figure("dual-root.png", "g(ν) with its root and the initial bounds, and the six sigmoids that it sums.")
        ],
        values={"seeds": found},
    )


def bracket_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Compare the roots with bisection, and count how often and how fast the paper's bracketing finds them."""
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
    """The root of every row, by bisection of an interval that contains it."""
    # At -max - log(n / k) - 1 every sigmoid is below k / n, and at the other end above.
    margin = math.log(x.shape[-1] / min(k, x.shape[-1] - k)) + 1
    low, high = -x.max(-1).values - margin, -x.min(-1).values + margin
    for _ in range(64):
        middle = (low + high) / 2
        below = torch.sigmoid(x + middle[:, None]).sum(-1) < k
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def rounds(x: torch.Tensor, k: int, low: float, high: float, samples: int) -> int:
    """How many rounds of evenly spaced samples the bracket takes to reach 4 units in the last place of float64."""
    count = 0
    while high - low > 4 * np.spacing(max(abs(low), abs(high))) and count < 100:
        nu = torch.linspace(low, high, samples, dtype=torch.float64)
        negative = torch.sigmoid(x + nu[:, None]).sum(-1) < k
        at = min(max(int(negative.sum()) - 1, 0), samples - 2)
        low, high = float(nu[at]), float(nu[at + 1])
        count += 1
    return count


def one_sided(p: Array) -> Array:
    """The entropy of softmax, ``-sum p log p``."""
    return -np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0).sum(-1)


def binary(p: Array) -> Array:
    """The entropy of sigmoids, of every label and its absence."""
    return one_sided(p) + one_sided(1 - p)


def surfaces(k: int) -> dict[str, tuple[Array, Callable[[Array], Array]]]:
    """By name, the corners of a set, in order, and the entropy over it."""
    one, several = np.eye(3), np.eye(3) if k == 1 else 1 - np.eye(3)
    return {
        "sigmoid": (_SQUARE, binary),
        "softmax": (one, one_sided),
        "lml": (several, binary),
        "constrained softmax": (several, one_sided),
    }


def profile(corners: Array, entropy: Callable[[Array], Array], steps: int) -> tuple[Array, Array]:
    """Entropy from a corner through the center to the midpoint of an edge, relative to the center.

    Returns:
        Positions, -1 at the corner, 0 at the center and 1 at the midpoint of the edge; and the relative entropies.
    """
    at = np.linspace(-1, 1, 2 * steps + 1)
    center, middle = corners.mean(0), (corners[0] + corners[1]) / 2
    towards = np.where(at[:, None] < 0, corners[0] - center, middle - center)
    points = np.clip(center + np.abs(at)[:, None] * towards, 0, 1)
    return at, entropy(points) / entropy(center)


def study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 7: the entropies of sigmoid, softmax, LML and constrained softmax."""
    seeds = settings["seeds"]
    lab.plan(len(seeds))
    asked = [{"k": settings["k"], "pairs": settings["pairs"], "scale": settings["scale"], "seed": s} for s in seeds]
    found = lab.trials(entropy_trial, asked)
    shown = surfaces(settings["k"])
    save_figure(_draw_surfaces(shown, settings["k"], settings["steps"]), lab.figures / "surfaces.png", dpi=DPI)
    profiles = {name: profile(*surface, settings["steps"]) for name, surface in shown.items()}
    save_figure(draw_chart(_profile_chart(profiles)), lab.figures / "profiles.png", dpi=DPI)
    apart = {
        (ours, other): float(np.abs(profiles[ours][1] - profiles[other][1]).max())
        for ours in ("lml", "constrained softmax")
        for other in ("sigmoid", "softmax")
    }
    return Outcome(
        setup=f"Mathematics, no data. Two labels for the sigmoid, three for the others; LML and constrained softmax on "
        f"the polytope k = {settings['k']}. Concavity is checked on {settings['pairs']} random pairs of points and "
        f"the predictions on as many rows of normal logits, scale {settings['scale']}, with {len(seeds)} seeds.",
        claims=_claims(published, found, apart),
        tables=[
            Table(
                "Entropy as a share of that at the center",
                ["", "corner", "middle of an edge", "farthest from sigmoid", "farthest from softmax"],
                [
                    [
                        name,
                        abs(float(line[0])),
                        float(line[-1]),
                        *(apart.get((name, other)) for other in ("sigmoid", "softmax")),
                    ]
                    for name, (_, line) in profiles.items()
                ],
                digits=3,
                note="Farthest: the largest difference along the way from a corner over the center to the middle of an "
                "edge. At k = 1 constrained softmax is softmax, so only k > 1 tells the two penalties apart.",
            )
        ],
        figures=[
            Figure("surfaces.png", "Each entropy over its set, as a share of that at the center."),
            Figure(
                "profiles.png", "The same along a line from a corner through the center to the midpoint of an edge."
            ),
        ],
        values={"seeds": found, "apart": {" – ".join(pair): value for pair, value in apart.items()}},
    )


def _claims(published: Mapping[str, Any], found: list[dict[str, Any]], apart: Mapping[Any, float]) -> list[Claim]:
    dent, excess = max(each["dent"] for each in found), max(each["above_center"] for each in found)
    corner = max(each["corner"] for each in found)
    nearer = all(apart["lml", other] < apart["constrained softmax", other] for other in ("sigmoid", "softmax"))
    distances = ", ".join(f"{ours} – {other} {value:.3f}" for (ours, other), value in apart.items())
    kept, lost = max(each["lml_at_one"] for each in found), min(each["constrained_at_one"] for each in found)
    return [
        Claim(
            "All four entropies are concave, highest at the center and 0 at every vertex.",
            published["shape"],
            checked(
                dent <= _ROUNDING and excess <= _ROUNDING and corner <= _ROUNDING,
                f"no midpoint below its chord by more than {worded(max(dent, 0))}, no point above the center by more "
                f"than {worded(max(excess, 0))}, at most {worded(corner)} at vertices",
            ),
        ),
        Claim(
            "The penalty of LML is closer in shape to those of sigmoid and softmax than that of constrained softmax "
            "is.",
            published["resemblance"],
            checked(nearer, f"largest difference of the scaled profiles: {distances}"),
        ),
        Claim(
            "Binary entropy keeps every prediction inside the polytope, one-sided entropy lets some reach 1 exactly, "
            "where they no longer learn.",
            published["sparsity"],
            checked(
                kept == 0 and lost > 0,
                f"rows with a p of exactly 1: LML {100 * kept:.1f}%, constrained softmax at least {100 * lost:.1f}%",
            ),
        ),
    ]


def entropy_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Concavity and extremes of the entropies at random points, and predictions that reach 1."""
    rng = np.random.default_rng(settings["seed"])
    dent, above, corner = -math.inf, -math.inf, 0.0
    for corners, entropy in surfaces(settings["k"]).values():
        # Clipped, because convex combinations of zeros and ones may leave [0, 1] by a rounding.
        first, second = (
            np.clip(rng.dirichlet(np.ones(len(corners)), settings["pairs"]) @ corners, 0, 1) for _ in range(2)
        )
        dent = max(dent, float(((entropy(first) + entropy(second)) / 2 - entropy((first + second) / 2)).max()))
        above = max(above, float((entropy(first) - entropy(corners.mean(0))).max()))
        corner = max(corner, float(np.abs(entropy(corners)).max()))
    generator = torch.Generator().manual_seed(settings["seed"])
    logits = settings["scale"] * torch.randn(settings["pairs"], 3, dtype=torch.float64, generator=generator)
    ones = {
        name: float((project(logits, settings["k"]) >= 1).any(-1).double().mean())
        for name, project in (("lml_at_one", lml), ("constrained_at_one", constrained_softmax))
    }
    return {"dent": dent, "above_center": above, "corner": corner, **ones}


def _draw_surfaces(shown: Mapping[str, tuple[Array, Callable[[Array], Array]]], k: int, steps: int) -> Any:
    tri = require("matplotlib.tri", extra="report")
    figure = new_figure(8.6, 3.1)
    titles = {
        "sigmoid": "sigmoid\nbinary, unit square",
        "softmax": "softmax\none-sided, simplex",
        "lml": f"LML\nbinary, polytope k = {k}",
        "constrained softmax": f"constrained softmax\none-sided, polytope k = {k}",
    }
    axes = figure.subplots(1, len(shown))
    drawn = None
    for axis, (name, (corners, entropy)) in zip(axes, shown.items(), strict=True):
        flat, weights = _mesh(len(corners), steps)
        share = entropy(np.clip(weights @ corners, 0, 1)) / entropy(corners.mean(0))
        levels = np.linspace(0, 1, 11)
        mesh = tri.Triangulation(*flat.T)
        drawn = axis.tricontourf(mesh, share.clip(0, 1), levels=levels, cmap="viridis")
        axis.tricontour(mesh, share, levels=levels[1:-1], colors="white", linewidths=0.5, alpha=0.7)
        outline = _SQUARE if len(corners) == 4 else np.array([[0, 0], [1, 0], [0.5, math.sqrt(3) / 2]])
        for corner, position in zip(corners, outline, strict=True):
            text = "".join(str(round(value)) for value in corner)
            below = position[1] < 0.5
            style = {
                "family": "monospace",
                "fontsize": 9,
                "color": PALE,
                "ha": "center",
                "va": "top" if below else "bottom",
            }
            axis.annotate(text, position, xytext=(0, -4 if below else 4), textcoords="offset points", **style)
        axis.set_title(titles[name], fontsize=10, color=INK, pad=14)
        axis.set(aspect="equal", xlim=(-0.08, 1.08), ylim=(-0.14, 1.12))
        axis.axis("off")
    bar = figure.colorbar(drawn, ax=axes, shrink=0.75, ticks=[0, 0.5, 1], pad=0.02)
    bar.set_label("entropy / entropy at the center", color=INK, fontsize=9)
    bar.ax.tick_params(colors=PALE, labelsize=9)
    return figure


def _mesh(corners: int, steps: int) -> tuple[Array, Array]:
    """Points of a square or an upright triangle, and their weights of the corners."""
    if corners == 4:
        x, y = (part.ravel() for part in np.meshgrid(*2 * [np.linspace(0, 1, steps + 1)]))
        return np.stack([x, y], -1), np.stack([(1 - x) * (1 - y), x * (1 - y), x * y, (1 - x) * y], -1)
    weights = simplex_mesh(steps)
    return weights @ np.array([[0, 0], [1, 0], [0.5, math.sqrt(3) / 2]]), weights


def simplex_mesh(steps: int) -> Array:
    """All points of the 2-simplex whose coordinates are multiples of ``1 / steps``.

    Example:
        >>> len(simplex_mesh(3))
        10
    """
    return np.array([(a, b, steps - a - b) for a in range(steps + 1) for b in range(steps + 1 - a)]) / steps


def _profile_chart(profiles: Mapping[str, tuple[Array, Array]]) -> Chart:
    series = tuple(
        Series(name, "line", tuple(at.tolist()), tuple(line.tolist()), candidate_style(position), marked=True)
        for position, (name, (at, line)) in enumerate(profiles.items())
    )
    return Chart(
        "Entropy relative to the center",
        Axis("from a corner (−1) through the center (0) to the midpoint of an edge (1)"),
        Axis("entropy / entropy at the center"),
        series,
    )
