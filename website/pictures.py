"""The pictures of the pages on methods: ``python -m website.pictures [FOLDER]`` draws them, the same each time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import torch

from shortlist.data import AmbiguousWorld
from shortlist.functional import lml, lml_dual, noised_kth_largest, sparse_top
from shortlist.report.chart_matplotlib import new_figure, style_axis
from shortlist.sets import AverageError, AverageK, tradeoff

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "understand"
DARK, WARM, GREEN, PALE = "#264653", "#b5651d", "#2a9d8f", "#c8c8c8"
OTHERS = torch.tensor([1.5, 0.5, 0.0, -0.5, -1.5])


def draw_lml() -> Any:
    """Left: logits and what softmax and LML make of them; right: the shift at which the sigmoids sum to k."""
    figure = new_figure(9, 3.4)
    left, right = figure.subplots(1, 2)
    logits = torch.tensor([3.1, 2.9, 2.2, 1.4, 0.3, -1.0, -2.5])
    places = torch.arange(len(logits))
    left.bar(places - 0.2, logits.softmax(-1), width=0.38, color=PALE, label="softmax: sum 1")
    left.bar(places + 0.2, lml(logits, 3), width=0.38, color=DARK, label="LML: sum 3")
    left.set(xticks=places, xticklabels=[f"{x:.1f}" for x in logits.tolist()], xlabel="logit", ylabel="p")
    left.set_title("Seven labels, k = 3")
    shifts = torch.linspace(-8, 6, 281)
    right.plot(shifts, torch.sigmoid(logits + shifts[:, None]).sum(-1), color=DARK)
    for k in (1, 3, 5):
        root = lml_dual(logits, k).item()
        right.plot([-8, root, root], [k, k, 0], color=WARM, linestyle=":")
        right.annotate(f"k = {k}", (-7.8, k + 0.12), color=WARM)
    right.set(xlabel="ν", ylabel="sum of σ(x + ν)", xlim=(-8, 6), ylim=(0, 7), title="One root for every k")
    return styled(figure)


def draw_sparse_top() -> Any:
    """The probability of one label as its logit varies: smooth with LML, clipped with sparse-top."""
    figure = new_figure(9, 3.4)
    left, right = figure.subplots(1, 2)
    moving = torch.linspace(-4, 5, 361)
    logits = torch.cat([moving[:, None], OTHERS.expand(len(moving), -1)], dim=-1)
    for name, p, color in (("LML", lml(logits, 2), PALE), ("sparse-top", sparse_top(logits, 2), GREEN)):
        left.plot(moving, p[:, 0], color=color, label=name, linewidth=2)
    left.set(xlabel="logit of one label among six", ylabel="its p", title="Exact zeros and ones, k = 2")
    row = torch.tensor([2.4, 1.9, 1.5, 1.2, 0.2, -1.0])
    p = sparse_top(row, 2)
    threshold = float((row - p)[(p > 0) & (p < 1)][0])
    right.bar(range(6), row, color=PALE, width=0.6, label="logit")
    right.bar(range(6), p, color=GREEN, width=0.3, label="sparse-top")
    right.axhline(threshold, color=WARM, linestyle=":")
    right.annotate(f"λ = {threshold:.2f}", (4.3, threshold + 0.08), color=WARM)
    right.set(xlabel="label", title="p = clip(x − λ, 0, 1)")
    return styled(figure)


def draw_noised_top_k() -> Any:
    """The second largest score, with and without noise, as one score moves; and which scores get its gradient."""
    figure = new_figure(9, 3.4)
    left, right = figure.subplots(1, 2)
    moving = torch.linspace(-1, 4, 101)
    row = torch.cat([moving[:, None], torch.tensor([2.6, 2.3, 0.5]).expand(len(moving), -1)], dim=-1)
    for epsilon, color in ((0.3, GREEN), (1.0, WARM)):
        generator = torch.Generator().manual_seed(0)
        smooth = noised_kth_largest(row, 2, epsilon=epsilon, samples=40_000, generator=generator)
        left.plot(moving, smooth, color=color, label=f"ε = {epsilon:g}", linewidth=2)
    left.plot(moving, row.topk(2, -1).values[:, 1], color=DARK, label="no noise", linewidth=1.5)
    left.set(
        xlabel="score of one label among four", ylabel="second largest score", title="Noise smooths the k-th score"
    )
    scores = torch.tensor([2.4, 2.6, 2.3, 0.5], requires_grad=True)
    for shift, (epsilon, color) in enumerate(((0.0, DARK), (0.3, GREEN), (1.0, WARM))):
        generator = torch.Generator().manual_seed(0)
        found = noised_kth_largest(scores, 2, epsilon=epsilon, samples=4000, generator=generator)
        (gradient,) = torch.autograd.grad(found, scores)
        right.bar(torch.arange(4) + 0.26 * (shift - 1), gradient, width=0.24, color=color, label=f"ε = {epsilon:g}")
    right.set(xticks=range(4), xticklabels=[f"{x:.1f}" for x in scores.tolist()], xlabel="score", ylabel="gradient")
    right.set_title("Labels near the threshold learn")
    return styled(figure)


def draw_average_k() -> Any:
    """Error against size with the true probabilities of a world, and how many labels each answer has."""
    figure = new_figure(9, 3.4)
    left, right = figure.subplots(1, 2)
    world = AmbiguousWorld()
    x, y, _ = world.sample(20_000, seed=0).batch(range(20_000))
    probs = world.probabilities(x)
    found = tradeoff(probs, y, from_logits=False, sizes=[1 + i / 4 for i in range(29)])
    for name, label, color in (("top-k", "k in every answer", PALE), ("average-k", "k on average", DARK)):
        left.plot([1 + i / 4 for i in range(29)], found.errors[name], color=color, label=label, linewidth=2)
    left.set(xlabel="labels on average", ylabel="error", ylim=(0, None), title="Same size, fewer misses")
    sizes = AverageK(3).fit(probs[:10_000], from_logits=False).predict(probs[10_000:]).sizes
    right.bar(range(16), torch.bincount(sizes, minlength=16)[:16] / len(sizes), color=DARK, label="k on average")
    right.bar([3], [1.0], fill=False, edgecolor=PALE, linewidth=2, label="k in every answer")
    right.set(xlabel="labels in an answer, k = 3", ylabel="share of the answers", title="Where the labels go")
    return styled(figure)


def draw_two_way() -> Any:
    """A batch as a table of scores: what a positive competes with in its row, and in its column."""
    figure = new_figure(9, 3.2)
    generator = torch.Generator().manual_seed(4)
    scores = torch.randn(6, 9, generator=generator)
    positive = torch.rand(6, 9, generator=generator) < 0.25
    positive[2, 3], positive[2, 5] = True, False
    for axis, way in zip(figure.subplots(1, 2), ("in its row", "in its column"), strict=True):
        axis.imshow(scores, cmap="Greys", alpha=0.35, aspect="auto")
        rows, labels = positive.nonzero(as_tuple=True)
        axis.scatter(labels, rows, color=DARK, s=40)
        inside = torch.zeros(6, 9, dtype=torch.bool)
        inside[2, :] = way == "in its row"
        inside[:, 3] |= torch.tensor(way == "in its column")
        rows, labels = (inside & ~positive).nonzero(as_tuple=True)
        axis.scatter(labels, rows, marker="x", color=WARM, s=40)
        axis.scatter([3], [2], s=160, facecolors="none", edgecolors=WARM, linewidths=2)
        axis.set(xlabel="label", ylabel="row of the batch", title=f"A positive against the negatives {way}")
        axis.set(xticks=range(9), yticks=range(6))
    return figure


def draw_argmaxability() -> Any:
    """Three labels with two features: six of the eight label sets have a region, two have none."""
    figure = new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    angles = torch.tensor([90.0, 210.0, 330.0]).deg2rad()
    weights = torch.stack([angles.cos(), angles.sin()], -1)
    colors = (DARK, WARM, GREEN)
    for row, color in zip(weights.tolist(), colors, strict=True):
        left.plot([3 * row[1], -3 * row[1]], [-3 * row[0], 3 * row[0]], color=color)
    for step in range(6):
        angle = torch.tensor(60.0 * step + 30).deg2rad()
        point = 1.1 * torch.stack([angle.cos(), angle.sin()])
        name = ", ".join("ABC"[i] for i in range(3) if weights[i] @ point > 0)
        left.annotate(f"{{{name}}}", point.tolist(), ha="center", va="center")
    left.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7), aspect="equal", xticks=[], yticks=[])
    left.set_title("No {A, B, C} and no { }")
    left.set_xlabel("two features; a line per label")
    from shortlist.audit import count_argmaxable

    widths = list(range(2, 101, 2))
    right.plot(widths, [float(count_argmaxable(100, d)) / 2.0**100 for d in widths], color=DARK)
    right.axvline(50, color=PALE, linestyle=":")
    right.set(xlabel="features, for 100 labels", ylabel="share of the label sets", title="What a layer can say")
    return styled(figure, legends=False)


def draw_conformal() -> Any:
    """The threshold as a quantile of held-out scores, and the error of many calibrations."""
    figure = new_figure(9, 3.4)
    left, right = figure.subplots(1, 2)
    world = AmbiguousWorld()
    x, y, _ = world.sample(12_000, seed=1).batch(range(12_000))
    probs = world.probabilities(x)
    conformity = 1 - probs[torch.arange(12_000), y]
    threshold = float(conformity[:1000].sort().values[900])
    left.hist(conformity[:1000].numpy(), bins=40, range=(0, 1), color=PALE)
    left.axvline(threshold, color=WARM, linestyle=":", label="the 901st of 1000")
    left.set(xlabel="1 − p of the true label", ylabel="held-out rows", title="Where nine tenths lie below")
    errors, generator = [], torch.Generator().manual_seed(0)
    for _ in range(200):
        order = torch.randperm(12_000, generator=generator)
        held_out, new = order[:1000], order[1000:3000]
        rule = AverageError(0.1).fit(probs[held_out], y[held_out], from_logits=False)
        sets = rule.predict(probs[new], generator=generator)
        errors.append(1 - float(sets.contains(y[new]).double().mean()))
    right.hist(errors, bins=24, color=DARK)
    right.axvline(0.1, color=WARM, linestyle=":", label="promised, on average")
    right.set(
        xlabel="error on 2000 new rows", ylabel="calibrations", ylim=(0, 34), title="200 calibrations of 1000 rows"
    )
    return styled(figure)


def styled(figure: Any, *, legends: bool = True) -> Any:
    """The look of all pictures."""
    for axis in figure.axes:
        style_axis(axis)
        if legends and axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False)
    return figure


PICTURES: dict[str, Callable[[], Any]] = {
    "lml": draw_lml,
    "sparse-top": draw_sparse_top,
    "noised-top-k": draw_noised_top_k,
    "average-k": draw_average_k,
    "two-way": draw_two_way,
    "argmaxability": draw_argmaxability,
    "conformal": draw_conformal,
}


def draw(folder: Path) -> None:
    """Write every picture as SVG, without anything that differs from run to run."""
    with matplotlib.rc_context({"svg.hashsalt": "shortlist", "svg.fonttype": "none", "font.family": "sans-serif"}):
        for name, picture in PICTURES.items():
            picture().savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
