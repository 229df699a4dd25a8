"""Drawings of the LML polytopes and of the dual root."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import torch

from shortlist.extras import require
from shortlist.functional import lml, lml_dual
from shortlist.report.chart import INK, candidate_style
from shortlist.report.chart_matplotlib import new_figure

PALE, GRID = "#6b7280", "#e5e7eb"
_BLUE, _ORANGE = candidate_style(0).color, candidate_style(1).color
# An orthonormal basis of the plane sum p = 0 in four dimensions, in which the octahedron stands upright.
_UPRIGHT = np.array([[1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2


def draw_polytopes(corners: Mapping[tuple[int, int], np.ndarray]) -> Any:
    """Polytopes of three labels in the unit cube on the left, each of four labels beside it.

    Args:
        corners: by (n, k) the vertices, n being 3 or 4.
    """
    flat = {shape: points for shape, points in corners.items() if shape[0] == 3}
    solid = {shape: points for shape, points in corners.items() if shape[0] == 4}
    figure = new_figure(4.3 * (bool(flat) + len(solid)), 4.4)
    places = bool(flat) + len(solid)
    if flat:
        axis = figure.add_subplot(1, places, 1, projection="3d")
        _draw_in_cube(axis, flat)
    for at, (shape, points) in enumerate(solid.items()):
        axis = figure.add_subplot(1, places, bool(flat) + at + 1, projection="3d")
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
        place = np.full(3, -0.02)
        place[at] = 1.08
        axis.text(*place, name, color=PALE, fontsize=10, ha="center")
    names = " and ".join(rf"$\mathcal{{L}}_{{{n},{k}}}$" for n, k in shapes)
    axis.set_title(f"{names}: three labels, in the unit cube", fontsize=11, color=INK)
    axis.legend(loc="lower center", ncols=len(shapes), frameon=False, fontsize=10, bbox_to_anchor=(0.5, -0.04))
    axis.view_init(elev=20, azim=15)


def _draw_solid(axis: Any, shape: tuple[int, int], points: np.ndarray) -> None:
    art = require("mpl_toolkits.mplot3d.art3d", extra="report")
    placed = (points - points.mean(0)) @ _UPRIGHT.T
    for label in range(4):
        for side in (0, 1):
            face = placed[points[:, label] == side]
            if len(face) == 3:
                axis.add_collection3d(art.Poly3DCollection([face], facecolor=_BLUE, edgecolor=INK, alpha=0.14))
    axis.scatter(*((_projected(shape, 160) - points.mean(0)) @ _UPRIGHT.T).T, s=5, color=_BLUE, depthshade=False)
    for vertex, place in zip(points, placed, strict=True):
        name = "".join(str(round(value)) for value in vertex)
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}
        style = {"ha": "center", "va": "center", "family": "monospace", "fontsize": 10, "color": INK}
        axis.text(*(1.28 * place), name, bbox=box, zorder=9, **style)
    reach = np.abs(placed).max()
    _bare(axis, (-reach, reach), zoom=1.15)
    title = rf"$\mathcal{{L}}_{{{shape[0]},{shape[1]}}}$: four labels, in the plane $\sum p = {shape[1]}$"
    axis.set_title(title, fontsize=11, color=INK)
    axis.view_init(elev=16, azim=30)


def _bare(axis: Any, limits: tuple[float, float], *, zoom: float) -> None:
    axis.set(xlim=limits, ylim=limits, zlim=limits, proj_type="ortho")
    axis.set_box_aspect((1, 1, 1), zoom=zoom)
    axis.set_axis_off()


def draw_dual_root(logits: torch.Tensor, k: int, offset: float) -> Any:
    """The sum of sigmoids less k on the left, the sigmoids themselves on the right."""
    root = float(lml_dual(logits, k))
    ordered = logits.sort(descending=True).values
    bounds = {"first lower bound": float(-ordered[k - 1] - offset), "first upper bound": float(-ordered[k] + offset)}
    nu = torch.linspace(min(bounds.values()) - 1, max(bounds.values()) + 1, 400, dtype=torch.float64)
    parts = torch.sigmoid(logits + nu[:, None])
    figure = new_figure(8.6, 3.9)
    left, right = figure.subplots(1, 2)
    left.plot(nu, parts.sum(-1) - k, color=_BLUE, linewidth=2)
    left.axhline(0, color=PALE, linewidth=0.8)
    for name, place in bounds.items():
        left.axvline(place, color=PALE, linestyle="--", linewidth=1)
        below = place < root  # where the curve is low the words stand high
        near = {"ha": "left", "xytext": (5, 0)} if below else {"ha": "right", "xytext": (-5, 0)}
        height = 0.55 * (len(logits) - k) if below else -0.6 * k
        left.annotate(name, (place, height), textcoords="offset points", color=PALE, fontsize=9, **near)
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
        finish(axis)
        axis.set_xlabel(r"shift $\nu$ of all logits")
    return figure


def finish(axis: Any) -> None:
    """The looks of the charts of the report."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(PALE)
    axis.tick_params(colors=PALE, labelsize=9)
    axis.title.set(fontsize=11, color=INK)
    axis.grid(color=GRID, linewidth=0.7)
    axis.set_axisbelow(True)
