"""Entropies over the sets that projections map onto: where they are high, and how they fall towards the edges."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.exact_claims import checked, worded
from experiments.lml_drawings import PALE
from shortlist.evidence import Claim, Figure, Lab, Outcome, Table
from shortlist.extras import require
from shortlist.functional import constrained_softmax, lml
from shortlist.report.chart import INK, Axis, Chart, Series, candidate_style
from shortlist.report.chart_matplotlib import draw_chart, new_figure, save_figure

Array = NDArray[np.float64]
_SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
_ROUNDING = 1e-12


def one_sided(p: Array) -> Array:
    """The entropy of softmax, ``-sum p log p``."""
    return -np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0).sum(-1)


def binary(p: Array) -> Array:
    """The entropy of sigmoids, of every label and its absence."""
    return one_sided(p) + one_sided(1 - p)


def surfaces(k: int) -> dict[str, tuple[Array, Callable[[Array], Array]]]:
    """By name, the corners of a set in the order of its outline, and the entropy over it."""
    one, several = np.eye(3), np.eye(3) if k == 1 else 1 - np.eye(3)
    return {
        "sigmoid": (_SQUARE, binary),
        "softmax": (one, one_sided),
        "lml": (several, binary),
        "constrained softmax": (several, one_sided),
    }


def profile(corners: Array, entropy: Callable[[Array], Array], steps: int) -> tuple[Array, Array]:
    """Entropy from a corner over the centre to the middle of an edge, as a share of that at the centre.

    Returns:
        Places, -1 at the corner, 0 at the centre and 1 at the middle of the edge; and the shares.
    """
    at = np.linspace(-1, 1, 2 * steps + 1)
    centre, middle = corners.mean(0), (corners[0] + corners[1]) / 2
    towards = np.where(at[:, None] < 0, corners[0] - centre, middle - centre)
    points = np.clip(centre + np.abs(at)[:, None] * towards, 0, 1)
    return at, entropy(points) / entropy(centre)


def study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 7: the entropies of sigmoid, softmax, LML and constrained softmax."""
    seeds = settings["seeds"]
    lab.plan(len(seeds))
    asked = [{"k": settings["k"], "pairs": settings["pairs"], "scale": settings["scale"], "seed": s} for s in seeds]
    found = lab.trials(entropy_trial, asked)
    shown = surfaces(settings["k"])
    save_figure(_draw_surfaces(shown, settings["k"], settings["steps"]), lab.figures / "surfaces.png", dpi=110)
    profiles = {name: profile(*surface, settings["steps"]) for name, surface in shown.items()}
    save_figure(draw_chart(_profile_chart(profiles)), lab.figures / "profiles.png", dpi=110)
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
                "Entropy as a share of that at the centre",
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
                note="Farthest: the largest difference along the way from a corner over the centre to the middle of an "
                "edge. At k = 1 constrained softmax is softmax, so only k > 1 tells the two penalties apart.",
            )
        ],
        figures=[
            Figure("surfaces.png", "Each entropy over its set, as a share of that at the centre."),
            Figure("profiles.png", "The same along a line from a corner over the centre to the middle of an edge."),
        ],
        values={"seeds": found, "apart": {" – ".join(pair): value for pair, value in apart.items()}},
    )


def _claims(published: Mapping[str, Any], found: list[dict[str, Any]], apart: Mapping[Any, float]) -> list[Claim]:
    dent, excess = max(each["dent"] for each in found), max(each["above_centre"] for each in found)
    corner = max(each["corner"] for each in found)
    nearer = all(apart["lml", other] < apart["constrained softmax", other] for other in ("sigmoid", "softmax"))
    told = ", ".join(f"{ours} – {other} {value:.3f}" for (ours, other), value in apart.items())
    kept, lost = max(each["lml_at_one"] for each in found), min(each["constrained_at_one"] for each in found)
    return [
        Claim(
            "All four entropies are concave, highest at the centre and 0 at every vertex.",
            published["shape"],
            checked(
                dent <= _ROUNDING and excess <= _ROUNDING and corner <= _ROUNDING,
                f"no midpoint below its chord by more than {worded(max(dent, 0))}, no point above the centre by more "
                f"than {worded(max(excess, 0))}, at most {worded(corner)} at vertices",
            ),
        ),
        Claim(
            "The penalty of LML is closer in shape to those of sigmoid and softmax than that of constrained softmax.",
            published["resemblance"],
            checked(nearer, f"largest difference of the scaled profiles: {told}"),
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
    return {"dent": dent, "above_centre": above, "corner": corner, **ones}


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
        for corner, place in zip(corners, outline, strict=True):
            text = "".join(str(round(value)) for value in corner)
            below = place[1] < 0.5
            style = {
                "family": "monospace",
                "fontsize": 9,
                "color": PALE,
                "ha": "center",
                "va": "top" if below else "bottom",
            }
            axis.annotate(text, place, xytext=(0, -4 if below else 4), textcoords="offset points", **style)
        axis.set_title(titles[name], fontsize=10, color=INK, pad=14)
        axis.set(aspect="equal", xlim=(-0.08, 1.08), ylim=(-0.14, 1.12))
        axis.axis("off")
    bar = figure.colorbar(drawn, ax=axes, shrink=0.75, ticks=[0, 0.5, 1], pad=0.02)
    bar.set_label("entropy / entropy at the centre", color=INK, fontsize=9)
    bar.ax.tick_params(colors=PALE, labelsize=9)
    return figure


def _mesh(corners: int, steps: int) -> tuple[Array, Array]:
    """Points of a picture, and their weights of the corners: a square or an upright triangle."""
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
        Series(name, "line", tuple(at.tolist()), tuple(line.tolist()), candidate_style(place), marked=True)
        for place, (name, (at, line)) in enumerate(profiles.items())
    )
    return Chart(
        "How the entropy falls from the centre",
        Axis("from a corner (−1) over the centre (0) to the middle of an edge (1)"),
        Axis("entropy / entropy at the centre"),
        series,
    )
