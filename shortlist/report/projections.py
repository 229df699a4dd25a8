"""Figures of the projections: the response to one logit, the dual root, and the polytope."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from shortlist.functional import constrained_softmax, lml, lml_dual, sparse_top
from shortlist.report.chart_matplotlib import new_figure, save_figure, style_axis

_COLORS = {"lml": "#264653", "constrained softmax": "#b5651d", "sparse-top": "#2a9d8f"}
_OTHERS = torch.tensor([1.5, 0.5, 0.0, -0.5, -1.5])


def draw_projections(path: str | Path) -> Path:
    """Draw the three projections at k = 2.

    Args:
        path: the file; its suffix chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are created.

    Returns:
        ``path``.
    """
    figure = new_figure(13, 4.2)
    axes = figure.subplots(1, 3)
    _draw_response(axes[0])
    _draw_root(axes[1])
    _draw_polytope(axes[2])
    return save_figure(figure, path)


def _draw_response(axis: Any) -> None:
    """The probability of one label as its logit varies, against five others."""
    moving = torch.linspace(-5, 5, 301)
    logits = torch.cat([moving[:, None], _OTHERS.expand(len(moving), -1)], dim=-1)
    answers = {
        "lml": lml(logits, 2),
        "constrained softmax": constrained_softmax(logits, 2),
        "sparse-top": sparse_top(logits, 2),
    }
    for name, p in answers.items():
        axis.plot(moving, p[:, 0], color=_COLORS[name], label=name, linewidth=2)
    axis.set(xlabel="logit of one label among six", ylabel="its probability", title="Probability of one label at k = 2")
    axis.legend(frameon=False, loc="upper left")
    style_axis(axis)


def _draw_root(axis: Any) -> None:
    """The sum of sigmoids crosses k at the dual root."""
    logits = torch.cat([torch.tensor([3.0]), _OTHERS])
    nu = torch.linspace(-7, 6, 301)
    parts = torch.sigmoid(logits + nu[:, None])
    axis.plot(nu, parts, color="#cccccc", linewidth=1)
    axis.plot(nu, parts.sum(-1), color=_COLORS["lml"], linewidth=2)
    for k in (1, 2, 4):
        root = lml_dual(logits, k).item()
        axis.plot([nu[0], root, root], [k, k, 0], color="#b5651d", linewidth=1, linestyle=":")
        axis.plot(root, k, "o", color="#b5651d")
        axis.annotate(f"k = {k}", (root, k), textcoords="offset points", xytext=(-8, 6), ha="right")
    axis.set(
        xlabel="shift ν of all logits",
        ylabel="sum of the sigmoids",
        title="LML: the sigmoids sum to k at the dual root",
    )
    style_axis(axis)


def _draw_polytope(axis: Any) -> None:
    """Three labels, k = 2: the paths of the projections inside the triangle as the logits grow."""
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])
    away = torch.eye(3)  # the corner without label j

    def point(p: torch.Tensor) -> torch.Tensor:
        return (1 - p) @ corners

    outline = torch.cat([point(1 - away), point(1 - away)[:1]])
    axis.plot(outline[:, 0], outline[:, 1], color="#888888", linewidth=1)
    for corner, name in zip(point(1 - away), ("without a", "without b", "without c"), strict=True):
        above = corner[1] > 0.5
        offset = (0, 8) if above else (0, -16)
        axis.annotate(name, corner, textcoords="offset points", xytext=offset, ha="center")
    angles = torch.linspace(0, 2 * math.pi, 13)[:-1]
    plane = torch.tensor([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / torch.tensor([[math.sqrt(2)], [math.sqrt(6)]])
    directions = torch.stack([angles.cos(), angles.sin()], dim=-1) @ plane
    lengths = torch.linspace(0, 12, 200)
    for name, project in {"lml": lml, "constrained softmax": constrained_softmax, "sparse-top": sparse_top}.items():
        for number, direction in enumerate(directions):
            line = point(project(lengths[:, None] * direction, 2))
            label = name if number == 0 else None
            axis.plot(line[:, 0], line[:, 1], color=_COLORS[name], linewidth=1.2, alpha=0.9, label=label)
    axis.set(title="Three labels, k = 2: paths as the logits grow")
    axis.set_aspect("equal")
    axis.set_ylim(-0.12, 1.02)
    axis.axis("off")
