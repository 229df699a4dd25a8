"""Newton's method for several small convex problems at once, with bounds from below."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_MOST_STEPS = 100
_MOST_HALVINGS = 40
_TOLERANCE = 1e-20


class Expansion(NamedTuple):
    """Second-order expansion of L problems of d parameters: ``(L,)``, ``(L, d)`` and ``(L, d, d)``, in float64."""

    loss: Tensor
    slope: Tensor
    curvature: Tensor


def projected_newton(expand: Callable[[Tensor], Expansion], start: Tensor, lower: Tensor) -> Tensor:
    """Minimize strictly convex functions of ``(L, d)`` parameters, none below ``lower``, ``(d,)``.

    Parameters at their bound whose slope pushes below it stay there; the others take a damped Newton step that is
    projected onto the bounds.

    References:
        Bertsekas, "Projected Newton methods for optimization problems with simple constraints", 1982.
    """
    point, at = start.clone(), expand(start)
    for _ in range(_MOST_STEPS):
        free = ~((point <= lower) & (at.slope > 0))
        slope = at.slope * free
        masked = at.curvature * free.unsqueeze(-1) * free.unsqueeze(-2) + torch.diag_embed((~free).double())
        step = torch.linalg.solve(masked, slope.unsqueeze(-1)).squeeze(-1)
        gain = (slope * step).sum(-1)
        # Twice the decrease that a quadratic would have.
        active = gain > _TOLERANCE * (1 + at.loss.abs())
        if not active.any():
            break
        trial, found = _searched(expand, point, at, torch.where(active.unsqueeze(-1), step, 0.0), slope, lower)
        # Where rounding hides any decrease, the point is as good as it gets.
        better = (found.loss < at.loss).reshape(-1)
        if not better.any():
            break
        point = torch.where(better.unsqueeze(-1), trial, point)
        at = Expansion(
            torch.where(better, found.loss, at.loss),
            torch.where(better.unsqueeze(-1), found.slope, at.slope),
            torch.where(better[:, None, None], found.curvature, at.curvature),
        )
    return point


def _searched(
    expand: Callable[[Tensor], Expansion], point: Tensor, at: Expansion, step: Tensor, slope: Tensor, lower: Tensor
) -> tuple[Tensor, Expansion]:
    """A point along the projected step whose loss is lower by a share of what the slope promises."""
    size = torch.ones_like(at.loss)
    trial = (point - step).maximum(lower)
    found = expand(trial)
    for _ in range(_MOST_HALVINGS):
        worse = ~(found.loss <= at.loss - 1e-4 * (slope * (point - trial)).sum(-1))
        if not worse.any():
            break
        size = torch.where(worse, size / 2, size)
        trial = (point - size.unsqueeze(-1) * step).maximum(lower)
        found = expand(trial)
    return trial, found
