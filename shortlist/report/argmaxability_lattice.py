"""All label assignments of a small layer in a lattice, marked by whether the layer can output them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from shortlist.audit import audit
from shortlist.audit.layer import read_system
from shortlist.extras import require
from shortlist.report.saving import new_figure, save_figure

_MOST_LABELS = 8
# Colours that stay apart for the colour-blind, and a shape for each, so that colour is never the only sign.
_MARKS = {
    "argmaxable": ("#009e73", "o"),
    "unargmaxable": ("#d55e00", "X"),
    "undecided": ("#8c8c8c", "^"),
}


@dataclass(frozen=True)
class Lattice:
    """The lattice of assignments, ready to draw.

    Attributes:
        signs: ``(2^n, n)``, 1 where a label is active and -1 where not.
        verdicts: ``(2^n,)``, of the auditor.
        positions: ``(2^n, 2)``: the place in its level, centred, and the level, which is the number of active labels.
        edges: ``(n 2^(n-1), 2)``, the pairs that differ in one label.
    """

    signs: NDArray[np.int64]
    verdicts: NDArray[np.str_]
    positions: NDArray[np.float64]
    edges: NDArray[np.int64]


def all_assignments(num_labels: int) -> tuple[NDArray[np.int64], list[list[int]]]:
    """The ``2^n`` assignments as signs, label 0 the slowest to change, and as sets of labels."""
    numbers = np.arange(2**num_labels)
    active = (numbers[:, None] >> np.arange(num_labels - 1, -1, -1)) & 1
    return 2 * active - 1, [np.flatnonzero(row).tolist() for row in active]


def sign_text(signs: NDArray[np.int64]) -> str:
    """The signs as ``+`` and ``-``: true minus signs side by side would run into one line."""
    return "".join("+" if sign > 0 else "-" for sign in signs)


def lattice(weight: Tensor | NDArray[Any] | nn.Module, *, bias: Tensor | NDArray[Any] | None = None) -> Lattice:
    """Ask the auditor for every assignment and lay them out in levels.

    Args:
        weight: as for `shortlist.audit.audit`, of at most 8 labels.
        bias: as for `shortlist.audit.audit`.

    Returns:
        The lattice.
    """
    num_labels = read_system(weight, bias, mode="sign", key=None, dft=None).num_labels
    if num_labels > _MOST_LABELS:
        raise ValueError(f"`weight` must have at most {_MOST_LABELS} labels to draw all assignments; got {num_labels}.")
    signs, sets = all_assignments(num_labels)
    verdicts = np.asarray(audit(weight, sets, bias, radius=False).verdicts)
    active = (signs > 0).sum(axis=1)
    widest = np.bincount(active).max()
    positions = np.empty((len(signs), 2))
    for level in range(num_labels + 1):
        # In falling order the labels at the front of a sign vector are active on the left.
        members = np.flatnonzero(active == level)[::-1]
        # Short levels are spread a little, else the edges at both ends run into each other.
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

    Levels hold the assignments with 0, 1, ... active labels. Lines join those that differ in one label, and are dark
    where the layer can output both: these are regions that share a face.

    Args:
        weight: as for `shortlist.audit.audit`, of at most 8 labels.
        path: where to write; the ending chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are made.
        bias: as for `shortlist.audit.audit`.
        names: of the labels, in their order.

    Returns:
        ``path``, once the file is complete.

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, figure 15a.
    """
    nodes = lattice(weight, bias=bias)
    num_labels = nodes.signs.shape[1]
    if names is not None and len(names) != num_labels:
        raise ValueError(f"`names` must have one name per label, {num_labels}; got {len(names)}.")
    upright = num_labels > 6  # signs from bottom to top, because levels of 35 and 70 leave no room across
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
    for chosen, colour, width in ((~both, "#dddddd", 0.5), (both, "#6b9e8f", 0.9)):
        lines = nodes.positions[nodes.edges[chosen]]
        axis.add_collection(collections.LineCollection(lines, colors=colour, linewidths=width, zorder=1))


def _draw_nodes(axis: Any, nodes: Lattice, *, upright: bool) -> None:
    """A mark and the signs of every assignment, and the legend."""
    for verdict, (colour, marker) in _MARKS.items():
        chosen = nodes.verdicts == verdict
        if chosen.any():
            x, y = nodes.positions[chosen].T
            name = f"{verdict}: {chosen.sum()}"
            axis.scatter(x, y, s=75, color=colour, marker=marker, edgecolors="white", label=name, zorder=3)
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
    """How many are active in each level, and how many of these are argmaxable, on the left."""
    left = nodes.positions[:, 0].min()
    for level in range(nodes.signs.shape[1] + 1):
        members = nodes.positions[:, 1] == level
        argmaxable = (nodes.verdicts[members] == "argmaxable").sum()
        text = f"{level} active\n{argmaxable} of {members.sum()}"
        axis.annotate(text, (left, level), xytext=(-34, 0), textcoords="offset points", ha="right", va="center")
