"""Figures of argmaxability: the lattice of all assignments, the regions of a layer, and curves by dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from shortlist.audit import audit
from shortlist.audit.curves import RadiusQuantiles, share_by_dimension
from shortlist.audit.layer import read_system
from shortlist.extras import require
from shortlist.report.chart_matplotlib import new_figure, save_figure, style_axis

_LATTICE_LABELS, _ARRANGEMENT_LABELS = 8, 10  # more would be unreadable
# Distinguishable with every kind of color vision; shapes differ, too.
_VERDICT_STYLES = {
    "argmaxable": ("#009e73", "o"),
    "unargmaxable": ("#d55e00", "X"),
    "undecided": ("#8c8c8c", "^"),
}
_GLYPH = 0.6 / 72  # the width of a monospaced character in inches, per point of font size
_BOX = 1e4  # the audit bounds features by |v_j| <= 10^4; figures use this bound as their unit
_LINE = "#264653"
_LINE_MARKERS = "osD^vP*Xh<>"
_THRESHOLD = 1e-8


@dataclass(frozen=True)
class Lattice:
    """The lattice of all label assignments, ready to draw.

    Attributes:
        signs: ``(2^n, n)``, 1 for active labels and -1 for the others.
        verdicts: ``(2^n,)``, the audit's verdicts.
        positions: ``(2^n, 2)``: the centered position within a level, and the level: the number of active labels.
        edges: ``(n 2^(n-1), 2)``, the pairs of assignments that differ in one label.
    """

    signs: NDArray[np.int64]
    verdicts: NDArray[np.str_]
    positions: NDArray[np.float64]
    edges: NDArray[np.int64]


def all_assignments(num_labels: int) -> tuple[NDArray[np.int64], list[list[int]]]:
    """All ``2^n`` assignments as signs (label 0 changes slowest) and as label sets."""
    numbers = np.arange(2**num_labels)
    active = (numbers[:, None] >> np.arange(num_labels - 1, -1, -1)) & 1
    return 2 * active - 1, [np.flatnonzero(row).tolist() for row in active]


def sign_text(signs: NDArray[np.int64]) -> str:
    """The signs as ``+`` and ``-``; typographic minus signs would merge into a line."""
    return "".join("+" if sign > 0 else "-" for sign in signs)


def lattice(weight: Tensor | NDArray[Any] | nn.Module, *, bias: Tensor | NDArray[Any] | None = None) -> Lattice:
    """Audit every assignment and lay them out in levels.

    Args:
        weight: as for `shortlist.audit.audit`, at most 8 labels.
        bias: as for `shortlist.audit.audit`.
    """
    num_labels = read_system(weight, bias, mode="sign", key=None, dft=None).num_labels
    if num_labels > _LATTICE_LABELS:
        raise ValueError(
            f"`weight` must have at most {_LATTICE_LABELS} labels to draw all assignments; got {num_labels}."
        )
    signs, sets = all_assignments(num_labels)
    verdicts = np.asarray(audit(weight, sets, bias, radius=False).verdicts)
    active = (signs > 0).sum(axis=1)
    widest = np.bincount(active).max()
    positions = np.empty((len(signs), 2))
    for level in range(num_labels + 1):
        # In descending order, the first labels are active on the left.
        members = np.flatnonzero(active == level)[::-1]
        # Spread out short levels; otherwise the edges at both ends would merge.
        step = np.sqrt(widest / len(members))
        positions[members, 0] = step * (np.arange(len(members)) - (len(members) - 1) / 2)
        positions[members, 1] = level
    numbers = np.arange(len(signs))
    bits = 1 << np.arange(num_labels)
    edges = [np.stack([lower, lower | bit], axis=1) for bit in bits if len(lower := numbers[numbers & bit == 0])]
    return Lattice(signs, verdicts, positions, np.concatenate(edges))


def draw_lattice(
    weight: Tensor | NDArray[Any] | nn.Module,
    path: str | Path,
    *,
    bias: Tensor | NDArray[Any] | None = None,
    names: Sequence[str] | None = None,
) -> Path:
    """Draw every label assignment of a layer, marked by whether the layer can output it.

    Level j holds the assignments with j active labels. Lines connect assignments that differ in one label; dark lines
    connect two that the layer can output, which are regions that share a face.

    Args:
        weight: as for `shortlist.audit.audit`, at most 8 labels.
        path: the file; its suffix chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are created.
        bias: as for `shortlist.audit.audit`.
        names: one per label.

    Returns:
        ``path``.

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, figure 15a.
    """
    nodes = lattice(weight, bias=bias)
    num_labels = nodes.signs.shape[1]
    if names is not None and len(names) != num_labels:
        raise ValueError(f"`names` must have one name per label, {num_labels}; got {len(names)}.")
    upright = num_labels > 6  # vertical signs: levels of 35 and 70 leave no horizontal room
    widest = np.bincount(nodes.positions[:, 1].astype(int)).max()
    step = 0.27 if upright else 0.22 + 0.085 * num_labels
    figure = new_figure(max(6.5, widest * step + 2.6), 1.6 + (num_labels + 1) * (1.35 if upright else 1.05))
    axis = figure.subplots()
    _draw_edges(axis, nodes)
    _draw_nodes(axis, nodes, upright=upright)
    _write_levels(axis, nodes)
    order = ", ".join(names) if names is not None else ", ".join(map(str, range(num_labels)))
    reading = "from bottom to top" if upright else "from left to right"
    axis.set_title(f"All {2**num_labels} label assignments\nsigns {reading}: {order}", wrap=True)
    axis.axis("off")
    return save_figure(figure, path)


def _draw_edges(axis: Any, nodes: Lattice) -> None:
    """Lines between assignments that differ in one label."""
    collections = require("matplotlib.collections", extra="report")
    both = (nodes.verdicts[nodes.edges] == "argmaxable").all(axis=1)
    for chosen, color, width in ((~both, "#dddddd", 0.5), (both, "#6b9e8f", 0.9)):
        lines = nodes.positions[nodes.edges[chosen]]
        axis.add_collection(collections.LineCollection(lines, colors=color, linewidths=width, zorder=1))


def _draw_nodes(axis: Any, nodes: Lattice, *, upright: bool) -> None:
    """A marker and the signs of every assignment, and the legend."""
    for verdict, (color, marker) in _VERDICT_STYLES.items():
        chosen = nodes.verdicts == verdict
        if chosen.any():
            x, y = nodes.positions[chosen].T
            name = f"{verdict}: {chosen.sum()}"
            axis.scatter(x, y, s=75, color=color, marker=marker, edgecolors="white", label=name, zorder=3)
    for signs, (x, y) in zip(nodes.signs, nodes.positions, strict=True):
        axis.annotate(
            sign_text(signs),
            (x, y),
            xytext=(0, -8),
            textcoords="offset points",
            ha="center",
            va="top",
            rotation=90 if upright else 0,
            fontsize=8 if upright else 10,
            family="monospace",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6},
            zorder=4,
        )
    axis.legend(loc="upper right", frameon=False)


def _write_levels(axis: Any, nodes: Lattice) -> None:
    """On the left: the number of active labels of each level, and how many of its assignments are argmaxable."""
    left = nodes.positions[:, 0].min()
    for level in range(nodes.signs.shape[1] + 1):
        members = nodes.positions[:, 1] == level
        argmaxable = (nodes.verdicts[members] == "argmaxable").sum()
        text = f"{level} active\n{argmaxable} of {members.sum()}"
        axis.annotate(text, (left, level), xytext=(-34, 0), textcoords="offset points", ha="right", va="center")


@dataclass(frozen=True)
class Arrangement:
    """The regions into which a layer without a bias divides its feature space.

    Attributes:
        weight: ``(n, d)``, float64.
        signs: ``(regions, n)``, 1 and -1.
        centres: ``(regions, d)``, centers of the largest balls, in units of the bound on the features.
        radii: ``(regions,)``, in the same unit.
        undecided: number of assignments that the audit could not decide.
    """

    weight: NDArray[np.float64]
    signs: NDArray[np.int64]
    centres: NDArray[np.float64]
    radii: NDArray[np.float64]
    undecided: int


def arrangement(weight: Tensor | NDArray[Any] | nn.Module) -> Arrangement:
    """Audit every assignment and keep the argmaxable ones: each is a region.

    Args:
        weight: ``(n, d)`` or a layer without a bias; at most 10 labels, 2 or 3 features.
    """
    if getattr(weight, "bias", None) is not None:
        raise ValueError("`weight` must have no bias: its hyperplanes are drawn through the origin.")
    values = weight.weight if isinstance(weight, nn.Module) else weight
    matrix = np.asarray(values.detach().cpu().double() if isinstance(values, Tensor) else values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] not in (2, 3) or not 1 <= len(matrix) <= _ARRANGEMENT_LABELS:
        raise ValueError(
            f"`weight` must have 2 or 3 features and 1 to {_ARRANGEMENT_LABELS} labels; got {matrix.shape}."
        )
    signs, sets = all_assignments(len(matrix))
    report = audit(weight, sets)
    verdicts = np.asarray(report.verdicts)
    regions = (verdicts == "argmaxable") & np.isfinite(report.centres).all(axis=1)
    centres, radii = report.centres[regions] / _BOX, report.radii[regions] / _BOX
    return Arrangement(matrix, signs[regions], centres, radii, int((verdicts == "undecided").sum()))


def draw_arrangement(weight: Tensor | NDArray[Any] | nn.Module, path: str | Path) -> Path:
    """Draw the regions of a layer with two or three features, their signs and their Chebyshev balls.

    Two features: the lines, the signs of each region, and its largest ball with a center inside the bound on the
    features. Three features: the balls on the left; on the right, the half of the sphere of directions that faces the
    reader, in an equal-area projection, with the great circles of the labels and the signs of the regions. The other
    half is the same with all signs flipped.

    Args:
        weight: as for `arrangement`.
        path: the file; its suffix chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are created.

    Returns:
        ``path``.

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
    _write_color_legend(axis, num_labels)
    return save_figure(figure, path)


def _colors(num_labels: int) -> NDArray[np.float64]:
    """One color for each number of active labels, from a perceptually uniform map."""
    cmap = require("matplotlib", extra="report").colormaps["viridis"]
    return np.asarray(cmap(np.linspace(0.12, 0.95, num_labels + 1)))


def _write_color_legend(axis: Any, num_labels: int) -> None:
    """A legend below the axis: the color of each number of active labels."""
    patches = require("matplotlib.patches", extra="report")
    colors = _colors(num_labels)
    handles: list[Any] = [
        patches.Patch(color=colors[active], alpha=0.75, label=str(active)) for active in range(num_labels + 1)
    ]
    axis.legend(
        handles=handles,
        title="active labels (dotted: the bound |v| ≤ 10⁴ on the centers)",
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
    colors = _colors(num_labels)
    rim = 1.06 * (np.linalg.norm(regions.centres, axis=1) + regions.radii).max(initial=1.45)
    size = 11 if num_labels <= 6 else 9
    half_text = 0.5 * num_labels * _GLYPH * size * (2.6 * rim / 6.5)
    axis.add_patch(patches.Rectangle((-1, -1), 2, 2, fill=False, linestyle=":", edgecolor="#888888"))
    for row in regions.weight[np.any(regions.weight != 0, axis=1)]:
        along = np.array([-row[1], row[0]]) / np.linalg.norm(row) * rim
        axis.plot([-along[0], along[0]], [-along[1], along[1]], color="#333333", linewidth=1.1, zorder=2)
    for signs, centre, radius in zip(regions.signs, regions.centres, regions.radii, strict=True):
        color = colors[(signs > 0).sum()]
        axis.add_patch(patches.Circle(centre, radius, facecolor=color, edgecolor=color, alpha=0.6, zorder=1))
        axis.plot(*centre, ".", color="#333333", markersize=3)
        if half_text < radius:
            style = {"ha": "center", "family": "monospace", "fontsize": size}
            axis.annotate(sign_text(signs), centre, xytext=(0, 6), textcoords="offset points", zorder=4, **style)
    outside = half_text >= regions.radii
    _write_at_rim(axis, regions.signs[outside], regions.centres[outside], rim=rim, size=size)
    limit = rim + (0.15 + 2 * half_text if outside.any() else 0.1)
    axis.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
    axis.axis("off")


def _write_at_rim(axis: Any, signs: NDArray[np.int64], centres: NDArray[np.float64], *, rim: float, size: int) -> None:
    """Signs of the regions whose ball is too small for text: at the rim, along the ray, connected to the ball."""
    angles = np.arctan2(centres[:, 1], centres[:, 0])
    for row, centre, angle in zip(signs, centres, spread(angles, np.radians(4.5)), strict=True):
        start = 1.05 * rim * np.array([np.cos(angle), np.sin(angle)])
        axis.plot(*np.stack([centre, start], axis=1), color="#bbbbbb", linewidth=0.6, zorder=0)
        left = np.cos(angle) < 0  # flip the text there, so that none is upside down
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
    """Move ``angles`` (radians) as little as necessary to be ``gap`` apart on the circle, keeping their order."""
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
    """Orthonormal rows (right, up, toward the reader), facing the region of no label, or else the largest region."""
    if not len(regions.signs):
        return np.eye(3)
    empty = np.flatnonzero((regions.signs < 0).all(axis=1))
    toward = regions.centres[empty[0] if len(empty) else np.argmax(regions.radii)]
    toward = toward / np.linalg.norm(toward)
    aside = np.eye(3)[np.argmin(np.abs(toward))]
    right = np.cross(aside, toward)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(toward, right), toward])


def _draw_balls(axis: Any, regions: Arrangement, view: NDArray[np.float64]) -> None:
    """Three features: the balls in the box."""
    colors = _colors(len(regions.weight))
    longitude, latitude = np.mgrid[0 : 2 * np.pi : 25j, 0 : np.pi : 13j]
    unit = np.stack([np.cos(longitude) * np.sin(latitude), np.sin(longitude) * np.sin(latitude), np.cos(latitude)])
    for signs, centre, radius in zip(regions.signs, regions.centres, regions.radii, strict=True):
        x, y, z = centre[:, None, None] + radius * unit
        axis.plot_surface(x, y, z, color=colors[(signs > 0).sum()], antialiased=False, rcount=25, ccount=13)
    corners = np.array([[-1, -1, -1], [1, -1, -1], [1, 1, -1], [-1, 1, -1]], dtype=float)
    for low, high in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        flip = np.array([1, 1, -1])
        for ends in ((low, high), (low * flip, high * flip), (low, low * flip)):
            axis.plot(*np.stack(ends, axis=1), color="#aaaaaa", linewidth=0.8, linestyle=":")
    axis.set_title("the largest ball in each region")
    limit = (np.abs(regions.centres).max(axis=1) + regions.radii).max(initial=1.0)
    axis.set(xlim=(-limit, limit), ylim=(-limit, limit), zlim=(-limit, limit), proj_type="ortho")
    axis.set_box_aspect((1, 1, 1), zoom=1.35)
    azimuth, elevation = np.degrees([np.arctan2(view[2, 1], view[2, 0]), np.arcsin(np.clip(view[2, 2], -1, 1))])
    # Rotate slightly, so that the front balls do not hide all others.
    axis.view_init(elev=elevation + (20 if elevation < 45 else -20), azim=azimuth + 25)
    axis.set_axis_off()


def _draw_sphere(axis: Any, regions: Arrangement, view: NDArray[np.float64]) -> None:
    """Three features: great circles and signs on the half of the sphere that faces the reader."""
    num_labels = len(regions.weight)
    colors = _colors(num_labels)
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
        color = colors[(signs > 0).sum()]
        if not write:
            axis.plot(*place, "o", color=color, markersize=4, zorder=2)
            continue
        pale = tuple(0.5 + 0.5 * color[:3])
        box = {"boxstyle": "round,pad=0.15", "facecolor": pale, "edgecolor": "none", "alpha": 0.9}
        style = {"ha": "center", "va": "center", "family": "monospace", "fontsize": size}
        axis.text(*place, sign_text(signs), bbox=box, zorder=3, **style)
    signs_of = "signs of the regions" if roomy.all() else "signs of the regions, where they fit"
    axis.set(title=f"half of all directions: {signs_of}", aspect="equal")
    axis.axis("off")


def with_room(places: NDArray[np.float64], sizes: NDArray[np.float64], half: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which text boxes of half size ``half`` to write so that none overlaps the box of a larger region."""
    chosen: list[int] = []
    for label in np.argsort(-sizes, kind="stable"):
        apart = (np.abs(places[chosen] - places[label]) >= 2 * half).any(axis=1)
        if apart.all():
            chosen.append(int(label))
    return np.isin(np.arange(len(places)), chosen)


def _equal_area(directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lambert's equal-area projection of the hemisphere z >= 0 onto the unit disk, ``(..., 3) -> (..., 2)``."""
    return directions[:, :2] / np.sqrt(1 + np.maximum(directions[:, 2:], 0))


def draw_share(path: str | Path, num_labels: int = 1000) -> Path:
    """Draw the percentage of all label assignments that a layer can output, by its dimension.

    Left: the logarithm of the percentage over all dimensions. Right: the percentage itself around ``d = n / 2``, where
    nearly all of the change happens.

    Args:
        path: the file; its suffix chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are created.
        num_labels: n, at least 2.

    Returns:
        ``path``.

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, figure 2.
    """
    if num_labels < 2:
        raise ValueError(f"`num_labels` must be at least 2; got {num_labels}.")
    dims, log10_shares = share_by_dimension(num_labels)
    ticker = require("matplotlib.ticker", extra="report")
    figure = new_figure(10.5, 4.2)
    figure.suptitle(f"{num_labels} labels in general position: share of argmaxable assignments")
    left, right = figure.subplots(1, 2)
    # Plot the logarithm: below 10^-308 the percentage itself would be 0.
    left.plot(dims, log10_shares + 2, color=_LINE, linewidth=2)
    if log10_shares[0] < -3:
        left.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"$10^{{{value:.0f}}}$%"))
        left.yaxis.set_major_locator(ticker.MaxNLocator(nbins=7, integer=True))
    else:
        left.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{10**value:.3g}%"))
    near = np.abs(dims - num_labels / 2) <= max(2.0, 2.5 * np.sqrt(num_labels))
    marker = "o" if near.sum() <= 40 else None
    right.plot(dims[near], 100 * 10 ** log10_shares[near], marker=marker, color=_LINE, linewidth=2)
    right.axvline(num_labels / 2, color="#b5651d", linestyle=":", linewidth=1.2)
    right.annotate("d = n/2: 50%", (num_labels / 2, 50), xytext=(8, -4), textcoords="offset points", color="#b5651d")
    right.set(ylim=(-3, 103))
    right.yaxis.set_major_formatter(ticker.PercentFormatter())
    right.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    for axis, title in ((left, "logarithmic"), (right, "linear, near half the labels")):
        axis.set(xlabel="dimension d of the features", ylabel="argmaxable assignments", title=title)
        style_axis(axis, grid="both")
    return save_figure(figure, path)


def draw_radius_quantiles(path: str | Path, quantiles: RadiusQuantiles | Sequence[RadiusQuantiles]) -> Path:
    """Draw how the radius of hard label sets depends on the number of labels and on the slack.

    Each of ``quantiles`` is a row of two plots: by the number of labels with one line per slack, and by the slack with
    one line per number of labels. A radius of 0 is a hollow marker at the lower edge. The dotted line is
    :math:`10^{-8}`; the paper treats regions below it as empty.

    Args:
        path: the file; its suffix chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are created.
        quantiles: from `shortlist.audit.radius_quantiles`; one, or one per ``k``.

    Returns:
        ``path``.

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, figure 5.
    """
    rows = [quantiles] if isinstance(quantiles, RadiusQuantiles) else list(quantiles)
    if not rows:
        raise ValueError("`quantiles` must hold at least one result; got none.")
    positive = np.concatenate([row.radii[row.radii > 0] for row in rows])
    low = min(_THRESHOLD, positive.min(initial=1.0)) / 5
    high = max(1.0, positive.max(initial=1.0)) * 5
    figure = new_figure(11.5, 0.5 + 3.9 * len(rows))
    figure.suptitle("DFT layers with random slack: radius of random sets of k labels, features bounded by 10⁴")
    for axes, row in zip(figure.subplots(len(rows), 2, sharey=True, squeeze=False), rows, strict=True):
        title = f"k = {row.k}" + (f" ({row.undecided.sum()} sets undecided)" if row.undecided.any() else "")
        _draw_lines(axes[0], row.num_labels, row.slacks, row.radii.T, low=low, along="labels", of="slack")
        _draw_lines(axes[1], row.slacks, row.num_labels, row.radii, low=low, along="slack columns", of="labels")
        axes[0].set_xscale("log", base=2)
        axes[1].set_xscale("symlog", base=2, linthresh=1)
        axes[1].set_xlim(min(row.slacks) - 0.3, 1.25 * max(row.slacks) + 0.3)
        axes[0].set(ylabel=f"{100 * row.quantile:g}% quantile of the radius")
        for axis, places in zip(axes, (row.num_labels, row.slacks), strict=True):
            axis.set(title=title, yscale="log", ylim=(low, high))
            axis.set_xticks(places, [str(place) for place in places])
            axis.minorticks_off()
    return save_figure(figure, path)


def _draw_lines(
    axis: Any,
    places: Sequence[int],
    names: Sequence[int],
    radii: NDArray[np.float64],
    *,
    low: float,
    along: str,
    of: str,
) -> None:
    """One line per row of ``radii``, with its own color and marker."""
    cmap = require("matplotlib", extra="report").colormaps["viridis"]
    for number, (name, line) in enumerate(zip(names, radii, strict=True)):
        color = cmap(0.85 * number / max(1, len(names) - 1))
        marker = _LINE_MARKERS[number % len(_LINE_MARKERS)]
        axis.plot(places, np.where(line > 0, line, np.nan), marker=marker, color=color, label=str(name))
        for place in np.asarray(places)[line == 0]:
            axis.plot(place, low, marker, color=color, markerfacecolor="white", clip_on=False)
    axis.axhline(_THRESHOLD, color="#d55e00", linestyle=":", linewidth=1.2, label="10⁻⁸")
    axis.set_xlabel(along)
    axis.legend(title=of, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    style_axis(axis, grid="both")
