"""The regions of a layer with two or three features, each with the largest ball that fits: lines, planes, a sphere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from shortlist.audit import audit
from shortlist.extras import require
from shortlist.report.argmaxability_lattice import all_assignments, sign_text
from shortlist.report.saving import new_figure, save_figure

_MOST_LABELS = 10
_GLYPH = 0.6 / 72  # inches per point of the width of one monospaced sign
_BOX = 1e4  # of the auditor: |v_j| <= 10^4; the pictures take it as their unit


@dataclass(frozen=True)
class Arrangement:
    """The regions that a layer without a bias cuts its features into.

    Attributes:
        weight: ``(n, d)``, float64.
        signs: ``(regions, n)``, 1 and -1.
        centres: ``(regions, d)`` of the balls, in units of the auditor's box.
        radii: ``(regions,)``, in the same unit.
        undecided: how many assignments the auditor left open.
    """

    weight: NDArray[np.float64]
    signs: NDArray[np.int64]
    centres: NDArray[np.float64]
    radii: NDArray[np.float64]
    undecided: int


def arrangement(weight: Tensor | NDArray[Any] | nn.Module) -> Arrangement:
    """Ask the auditor for every assignment and keep the argmaxable ones: each is a region.

    Args:
        weight: ``(n, d)`` or a layer, without a bias, of at most 10 labels and with 2 or 3 features.

    Returns:
        The regions and their balls.
    """
    if getattr(weight, "bias", None) is not None:
        raise ValueError("`weight` must have no bias: its hyperplanes are drawn through the origin.")
    values = weight.weight if isinstance(weight, nn.Module) else weight
    matrix = np.asarray(values.detach().cpu().double() if isinstance(values, Tensor) else values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] not in (2, 3) or not 1 <= len(matrix) <= _MOST_LABELS:
        raise ValueError(f"`weight` must have 2 or 3 features and 1 to {_MOST_LABELS} labels; got {matrix.shape}.")
    signs, sets = all_assignments(len(matrix))
    report = audit(weight, sets)
    verdicts = np.asarray(report.verdicts)
    regions = (verdicts == "argmaxable") & np.isfinite(report.centres).all(axis=1)
    centres, radii = report.centres[regions] / _BOX, report.radii[regions] / _BOX
    return Arrangement(matrix, signs[regions], centres, radii, int((verdicts == "undecided").sum()))


def draw_arrangement(weight: Tensor | NDArray[Any] | nn.Module, path: str | Path) -> Path:
    """Draw the regions of a layer with two or three features, their signs and their Chebyshev balls.

    Two features: the lines, the signs of each region, and the largest ball whose centre lies in the box of the auditor
    and which no line cuts. Three features: the balls on the left, and on the right the half of the sphere of directions
    that faces the reader, in an equal-area projection, with the great circles of the labels and the signs of the
    regions. The other half is the same with all signs flipped.

    Args:
        weight: as for `arrangement`.
        path: where to write; the ending chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are made.

    Returns:
        ``path``, once the file is complete.

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, figures 3 and 15b-d.
    """
    regions = arrangement(weight)
    num_labels, dim = regions.weight.shape
    count = f"n = {num_labels}, d = {dim}: {len(regions.signs)} of {2**num_labels} assignments have a region"
    if regions.undecided:
        count += f", {regions.undecided} undecided"
    if dim == 2:
        figure = new_figure(7.5, 7.2)
        axis = figure.subplots()
        _draw_plane(axis, regions)
        axis.set_title(count)
    else:
        figure = new_figure(13.5, 6.6)
        figure.suptitle(count)
        view = _facing(regions)
        _draw_balls(figure.add_subplot(1, 2, 1, projection="3d"), regions, view)
        axis = figure.add_subplot(1, 2, 2)
        _draw_sphere(axis, regions, view)
    _name_colours(axis, num_labels)
    return save_figure(figure, path)


def _colours(num_labels: int) -> NDArray[np.float64]:
    """One colour for each number of active labels, of a map whose lightness rises evenly."""
    cmap = require("matplotlib", extra="report").colormaps["viridis"]
    return np.asarray(cmap(np.linspace(0.12, 0.95, num_labels + 1)))


def _name_colours(axis: Any, num_labels: int) -> None:
    """A legend below the axis: colours of the numbers of active labels."""
    patches = require("matplotlib.patches", extra="report")
    colours = _colours(num_labels)
    handles: list[Any] = [
        patches.Patch(color=colours[active], alpha=0.75, label=str(active)) for active in range(num_labels + 1)
    ]
    axis.legend(
        handles=handles,
        title="active labels (dotted: the box |v| ≤ 10⁴ of the centres)",
        ncols=num_labels + 1,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        frameon=False,
        handlelength=1.2,
        columnspacing=1.2,
    )


def _draw_plane(axis: Any, regions: Arrangement) -> None:
    """Two features: lines, balls and signs in the plane."""
    patches = require("matplotlib.patches", extra="report")
    num_labels = len(regions.weight)
    colours = _colours(num_labels)
    rim = 1.06 * (np.linalg.norm(regions.centres, axis=1) + regions.radii).max(initial=1.45)
    size = 11 if num_labels <= 6 else 9
    half_text = 0.5 * num_labels * _GLYPH * size * (2.6 * rim / 6.5)
    axis.add_patch(patches.Rectangle((-1, -1), 2, 2, fill=False, linestyle=":", edgecolor="#888888"))
    for row in regions.weight[np.any(regions.weight != 0, axis=1)]:
        along = np.array([-row[1], row[0]]) / np.linalg.norm(row) * rim
        axis.plot([-along[0], along[0]], [-along[1], along[1]], color="#333333", linewidth=1.1, zorder=2)
    for signs, centre, radius in zip(regions.signs, regions.centres, regions.radii, strict=True):
        colour = colours[(signs > 0).sum()]
        axis.add_patch(patches.Circle(centre, radius, facecolor=colour, edgecolor=colour, alpha=0.6, zorder=1))
        axis.plot(*centre, ".", color="#333333", markersize=3)
        if half_text < radius:
            style = {"ha": "center", "family": "monospace", "fontsize": size}
            axis.annotate(sign_text(signs), centre, xytext=(0, 6), textcoords="offset points", zorder=4, **style)
    outside = half_text >= regions.radii
    _write_at_rim(axis, regions.signs[outside], regions.centres[outside], rim=rim, size=size)
    reach = rim + (0.15 + 2 * half_text if outside.any() else 0.1)
    axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axis.axis("off")


def _write_at_rim(axis: Any, signs: NDArray[np.int64], centres: NDArray[np.float64], *, rim: float, size: int) -> None:
    """Signs of the regions whose ball is too small for them: at the rim, along the ray, joined to the ball."""
    angles = np.arctan2(centres[:, 1], centres[:, 0])
    for row, centre, angle in zip(signs, centres, spread(angles, np.radians(4.5)), strict=True):
        start = 1.05 * rim * np.array([np.cos(angle), np.sin(angle)])
        axis.plot(*np.stack([centre, start], axis=1), color="#bbbbbb", linewidth=0.6, zorder=0)
        left = np.cos(angle) < 0  # turned around there, so that no text stands on its head
        axis.text(
            *(1.01 * start),
            sign_text(row),
            rotation=np.degrees(angle) + (180 if left else 0),
            rotation_mode="anchor",
            ha="right" if left else "left",
            va="center",
            family="monospace",
            fontsize=size,
        )


def spread(angles: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """Move ``angles``, in radians, as little as it takes to lie ``gap`` apart around the circle, in their order."""
    order = np.argsort(angles)
    moved = angles[order].astype(np.float64)
    gap = min(gap, 2 * np.pi / max(1, len(moved)))
    for _ in range(200):
        after = np.roll(moved, -1)
        after[-1:] += 2 * np.pi
        short = np.maximum(gap - (after - moved), 0) / 2
        if not short.any():
            break
        moved = moved - short + np.roll(short, 1)
    result = np.empty_like(moved)
    result[order] = moved
    return result


def _facing(regions: Arrangement) -> NDArray[np.float64]:
    """Orthonormal rows: right, up and towards the reader, who sees the region of no label or else the largest one."""
    if not len(regions.signs):
        return np.eye(3)
    empty = np.flatnonzero((regions.signs < 0).all(axis=1))
    towards = regions.centres[empty[0] if len(empty) else np.argmax(regions.radii)]
    towards = towards / np.linalg.norm(towards)
    aside = np.eye(3)[np.argmin(np.abs(towards))]
    right = np.cross(aside, towards)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(towards, right), towards])


def _draw_balls(axis: Any, regions: Arrangement, view: NDArray[np.float64]) -> None:
    """Three features: the balls in the box."""
    colours = _colours(len(regions.weight))
    longitude, latitude = np.mgrid[0 : 2 * np.pi : 25j, 0 : np.pi : 13j]
    unit = np.stack([np.cos(longitude) * np.sin(latitude), np.sin(longitude) * np.sin(latitude), np.cos(latitude)])
    for signs, centre, radius in zip(regions.signs, regions.centres, regions.radii, strict=True):
        x, y, z = centre[:, None, None] + radius * unit
        axis.plot_surface(x, y, z, color=colours[(signs > 0).sum()], antialiased=False, rcount=25, ccount=13)
    corners = np.array([[-1, -1, -1], [1, -1, -1], [1, 1, -1], [-1, 1, -1]], dtype=float)
    for low, high in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        flip = np.array([1, 1, -1])
        for ends in ((low, high), (low * flip, high * flip), (low, low * flip)):
            axis.plot(*np.stack(ends, axis=1), color="#aaaaaa", linewidth=0.8, linestyle=":")
    axis.set_title("the largest ball of each region")
    reach = (np.abs(regions.centres).max(axis=1) + regions.radii).max(initial=1.0)
    axis.set(xlim=(-reach, reach), ylim=(-reach, reach), zlim=(-reach, reach), proj_type="ortho")
    axis.set_box_aspect((1, 1, 1), zoom=1.35)
    azimuth, elevation = np.degrees([np.arctan2(view[2, 1], view[2, 0]), np.arcsin(np.clip(view[2, 2], -1, 1))])
    # A little aside, so that the balls in front do not hide all others.
    axis.view_init(elev=elevation + (20 if elevation < 45 else -20), azim=azimuth + 25)
    axis.set_axis_off()


def _draw_sphere(axis: Any, regions: Arrangement, view: NDArray[np.float64]) -> None:
    """Three features: great circles and signs on the half of the sphere that faces the reader."""
    num_labels = len(regions.weight)
    colours = _colours(num_labels)
    turn = np.linspace(0, 2 * np.pi, 721)
    axis.plot(np.cos(turn), np.sin(turn), color="#888888", linewidth=1)
    for row in regions.weight[np.any(regions.weight != 0, axis=1)]:
        normal = view @ (row / np.linalg.norm(row))
        first = np.cross(normal, np.eye(3)[np.argmin(np.abs(normal))])
        first /= np.linalg.norm(first)
        circle = np.outer(np.cos(turn), first) + np.outer(np.sin(turn), np.cross(normal, first))
        line = _equal_area(circle)
        line[circle[:, 2] < 0] = np.nan
        axis.plot(*line.T, color="#333333", linewidth=1.1)
    directions = regions.centres @ view.T
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    places = _equal_area(directions)
    size = 10 if num_labels <= 6 else 8
    half = 0.5 * size / 2.6 * np.array([(num_labels + 1) * _GLYPH, 1.7 / 72])
    facing = np.flatnonzero(directions[:, 2] >= -1e-9)
    roomy = with_room(places[facing], regions.radii[facing], half)
    for signs, place, write in zip(regions.signs[facing], places[facing], roomy, strict=True):
        colour = colours[(signs > 0).sum()]
        if not write:
            axis.plot(*place, "o", color=colour, markersize=4, zorder=2)
            continue
        pale = tuple(0.5 + 0.5 * colour[:3])
        box = {"boxstyle": "round,pad=0.15", "facecolor": pale, "edgecolor": "none", "alpha": 0.9}
        style = {"ha": "center", "va": "center", "family": "monospace", "fontsize": size}
        axis.text(*place, sign_text(signs), bbox=box, zorder=3, **style)
    signs_of = "signs of the regions" if roomy.all() else "signs of the regions where there is room"
    axis.set(title=f"half of all directions: {signs_of}", aspect="equal")
    axis.axis("off")


def with_room(places: NDArray[np.float64], sizes: NDArray[np.float64], half: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which labels, each ``2 * half`` wide and high around its place, to write so that none overlaps a larger one."""
    chosen: list[int] = []
    for label in np.argsort(-sizes, kind="stable"):
        apart = (np.abs(places[chosen] - places[label]) >= 2 * half).any(axis=1)
        if apart.all():
            chosen.append(int(label))
    return np.isin(np.arange(len(places)), chosen)


def _equal_area(directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lambert's projection of the half sphere z >= 0 onto the unit disc, ``(..., 3) -> (..., 2)``."""
    return directions[:, :2] / np.sqrt(1 + np.maximum(directions[:, 2:], 0))
