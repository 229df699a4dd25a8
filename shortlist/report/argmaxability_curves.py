"""How argmaxability fades: the share of assignments against the dimension, the radius against labels and slack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shortlist.audit.curves import RadiusQuantiles, share_by_dimension
from shortlist.extras import require
from shortlist.report.saving import new_figure, save_figure

_LINE = "#264653"
_MARKERS = "osD^vP*Xh<>"
_THRESHOLD = 1e-8


def draw_share(path: str | Path, num_labels: int = 1000) -> Path:
    """Draw what percentage of all label assignments a layer can output, against its dimension.

    On the left the logarithm of the percentage over all dimensions, on the right the percentage itself around
    ``d = n / 2``, where nearly all of the change happens.

    Args:
        path: where to write; the ending chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are made.
        num_labels: n, at least 2.

    Returns:
        ``path``, once the file is complete.

    References:
        Grivas, Vergari, Lopez, "Taming the sigmoid bottleneck", 2024, figure 2.
    """
    if num_labels < 2:
        raise ValueError(f"`num_labels` must be at least 2; got {num_labels}.")
    dims, log10_shares = share_by_dimension(num_labels)
    ticker = require("matplotlib.ticker", extra="report")
    figure = new_figure(10.5, 4.2)
    figure.suptitle(f"{num_labels} labels in general position: which share of the assignments is argmaxable?")
    left, right = figure.subplots(1, 2)
    # The logarithm is drawn and not the percentage: below 10^-308 that would be 0.
    left.plot(dims, log10_shares + 2, color=_LINE, linewidth=2)
    if log10_shares[0] < -3:
        left.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"$10^{{{value:.0f}}}$ %"))
        left.yaxis.set_major_locator(ticker.MaxNLocator(nbins=7, integer=True))
    else:
        left.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{10**value:.3g} %"))
    near = np.abs(dims - num_labels / 2) <= max(2.0, 2.5 * np.sqrt(num_labels))
    marker = "o" if near.sum() <= 40 else None
    right.plot(dims[near], 100 * 10 ** log10_shares[near], marker=marker, color=_LINE, linewidth=2)
    right.axvline(num_labels / 2, color="#b5651d", linestyle=":", linewidth=1.2)
    right.annotate("d = n/2: 50 %", (num_labels / 2, 50), xytext=(8, -4), textcoords="offset points", color="#b5651d")
    right.set(ylim=(-3, 103))
    right.yaxis.set_major_formatter(ticker.PercentFormatter())
    right.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    for axis, title in ((left, "logarithmic"), (right, "linear, near half the labels")):
        axis.set(xlabel="dimension d of the features", ylabel="argmaxable assignments", title=title)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e5e5e5", linewidth=0.7)
    return save_figure(figure, path)


def draw_radius_quantiles(path: str | Path, quantiles: RadiusQuantiles | Sequence[RadiusQuantiles]) -> Path:
    """Draw how the radius of hard label sets depends on the number of labels and on the slack.

    One row of two pictures for each of ``quantiles``: against the number of labels, a line for each slack, and against
    the slack, a line for each number of labels. A radius of 0 is drawn hollow at the lower edge. The dotted line marks
    :math:`10^{-8}`, below which the text takes a region for empty.

    Args:
        path: where to write; the ending chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are made.
        quantiles: of `shortlist.audit.radius_quantiles`; one, or one for each ``k``.

    Returns:
        ``path``, once the file is complete.

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
        axes[0].set(ylabel=f"{100 * row.quantile:g} % quantile of the radius")
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
    """One line per row of ``radii``, told apart by colour and by marker."""
    cmap = require("matplotlib", extra="report").colormaps["viridis"]
    for number, (name, line) in enumerate(zip(names, radii, strict=True)):
        colour = cmap(0.85 * number / max(1, len(names) - 1))
        marker = _MARKERS[number % len(_MARKERS)]
        axis.plot(places, np.where(line > 0, line, np.nan), marker=marker, color=colour, label=str(name))
        for place in np.asarray(places)[line == 0]:
            axis.plot(place, low, marker, color=colour, markerfacecolor="white", clip_on=False)
    axis.axhline(_THRESHOLD, color="#d55e00", linestyle=":", linewidth=1.2, label="10⁻⁸")
    axis.set_xlabel(along)
    axis.legend(title=of, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color="#e5e5e5", linewidth=0.7)
