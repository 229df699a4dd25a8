"""Level sets on a triangle: one panel for each loss, on one color scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from experiments.lml_drawings import PALE
from experiments.lml_entropies import simplex_mesh
from shortlist.extras import require
from shortlist.report.chart import INK, candidate_style
from shortlist.report.chart_matplotlib import new_figure

_PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])
_LEVELS = np.linspace(0, 1, 11)
_NUDGE = 1e-6  # a plateau at a level itself would be torn by rounding, or stay white at the last one
_WIDTH, _HEIGHT = 1.95, 2.0


def draw_triangles(
    rows: Sequence[Sequence[Tensor]], titles: Sequence[str], *, names: Sequence[str] = (), lines: bool = True
) -> Any:
    """Level sets of functions on the triangle, each scaled to [0, 1].

    Args:
        rows: by row of the picture and by column, values at the points of `simplex_mesh`.
        titles: of all panels, row by row.
        names: of the rows, on the left; may be left out.
        lines: between the levels; best not where values are noisy.
    """
    tri = require("matplotlib.tri", extra="report")
    columns = max(len(row) for row in rows)
    width = min(_WIDTH, 4 * _WIDTH / columns)
    figure = new_figure(width * columns + 0.9, _HEIGHT * width / _WIDTH * len(rows) + 0.2)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    drawn, titles = None, list(titles)
    for at, row in enumerate(rows):
        for axis, values in zip(axes[at], [*row, *[None] * (columns - len(row))], strict=True):
            axis.axis("off")
            if values is None:
                continue
            points = simplex_mesh(_steps(len(values))) @ _PLACES
            low, high = float(values.min()), float(values.max())
            scaled = ((values - low) / max(high - low, 1e-12) + _NUDGE).clamp(0, 1 - _NUDGE).numpy()
            mesh = tri.Triangulation(*points.T)
            drawn = axis.tricontourf(mesh, scaled, levels=_LEVELS, cmap="viridis")
            if lines:
                axis.tricontour(mesh, scaled, levels=_LEVELS[1:-1], colors="white", linewidths=0.4, alpha=0.6)
            axis.plot(*_PLACES[2], "o", color=candidate_style(1).color, markersize=5, zorder=5, clip_on=False)
            axis.set_title(titles.pop(0), fontsize=9.5, color=INK, pad=6)
            axis.set(aspect="equal", xlim=(-0.04, 1.04), ylim=(-0.03, 0.93))
        if names:
            axes[at, 0].text(-0.06, 0.45, names[at], rotation=90, ha="right", va="center", fontsize=10, color=INK)
    bar = figure.colorbar(drawn, ax=axes, shrink=min(1.0, 1.4 / len(rows) + 0.2), ticks=[0, 0.5, 1], pad=0.02)
    bar.set_label("loss, scaled to [0, 1]", color=INK, fontsize=9)
    bar.ax.tick_params(colors=PALE, labelsize=9)
    return figure


def _steps(points: int) -> int:
    """How fine the mesh of so many points is: they are (s + 1)(s + 2) / 2."""
    return (math.isqrt(8 * points + 1) - 3) // 2
