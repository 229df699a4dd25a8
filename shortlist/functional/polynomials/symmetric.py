"""Elementary symmetric polynomials of exponentials, in log space.

A shift ``v`` turns the exponentials into probabilities ``p = sigmoid(x + v)``, and

    S_k = P(k labels) * exp(-k v) * prod_j (1 + exp(x_j + v))

where ``P`` counts independent labels that are present with probability ``p``. This holds for every ``v``; with
``k - 1/2`` labels expected (the dual of the LML projection), both ``P(k)`` and ``P(k - 1)`` are far from underflow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist.checks import check_logits, whole_k
from shortlist.functional.autograd import RowFunction
from shortlist.functional.lml import lml_root, log_odds, solve_root
from shortlist.functional.polynomials.label_count import label_count
from shortlist.functional.polynomials.label_count_tree import label_count_tree
from shortlist.tensors import holds, is_plain, log_sigmoid, may_look, moved, solvable


def log_elementary_symmetric(x: Tensor, k: int, *, dim: int = -1) -> Tensor:
    r"""Logarithm of the elementary symmetric polynomial of degree ``k`` of the exponentials of ``x``.

    .. math:: \log S_k, \qquad S_k = \sum_{|A| = k} \prod_{j \in A} e^{x_j}

    the sum over all sets of ``k`` labels. Its gradient is the probability that a label is in a set drawn with
    probability proportional to its product, so it sums to ``k``.

    Args:
        x: any shape, floating; ``-inf`` marks an absent label. float16 and bfloat16 are computed in float32.
        k: the degree, a whole number in [0, n].
        dim: the label axis.

    Returns:
        The shape of ``x`` without ``dim`` (float32 for half precision); ``-inf`` where fewer than ``k`` labels are
        present, with a gradient of 0. Differentiable any number of times.

    Example:
        >>> log_elementary_symmetric(torch.tensor([1.0, 2.0, 3.0]).log(), 2).exp()
        tensor(11.0000)

    References:
        Berrada, Zisserman, Kumar, "Smooth Loss Functions for Deep Top-k
        Classification", 2018 (for a tree of products).
    """
    check_logits(x, dim)
    k = whole_k(k, x.shape[dim], lowest=0)
    rows = moved(solvable(x), dim, -1)
    if k == 0:
        return rows[..., :0].sum(-1)
    return _log_coefficient(rows, k, ratio=False)


def log_symmetric_ratio(x: Tensor, k: int) -> Tensor:
    """``log S_k - log S_(k-1)`` of ``x`` ``(..., n)``; ``-inf``, with gradient 0, where less than k are present."""
    return _log_coefficient(x, k, ratio=True)


def _log_coefficient(x: Tensor, k: int, *, ratio: bool) -> Tensor:
    expected = x.new_full((1,) * x.ndim, k - 0.5)
    value, _ = _LogCoefficient.run(x, expected, k, ratio, x.requires_grad)
    return value.squeeze(-1)


class _LogCoefficient(RowFunction):
    """``x -> log S_k`` or ``log (S_k / S_(k-1))``, and the derivatives if they will be wanted."""

    @staticmethod
    def forward(x: Tensor, expected: Tensor, k: int, ratio: bool, differentiate: bool) -> tuple[Tensor, Tensor]:
        pivot, delta = solve_root(x, expected, 1.0)
        enough = _enough(x, k)
        if may_look(x) and not torch.compiler.is_exporting():
            flat = x.reshape(-1, x.shape[-1]), pivot.reshape(-1, 1), torch.where(enough, delta, 0).reshape(-1, 1)
            law = label_count(*flat, k, ratio=ratio, derivatives=differentiate)
            high, low, log_none = (part.view(enough.shape) for part in law[:3])
            slopes = law.slopes.view(x.shape) if differentiate else law.slopes
        else:
            y = torch.where(enough, log_odds(x, pivot, delta, 1.0), 0)
            high, low, slopes = label_count_tree(y.sigmoid(), (-y).sigmoid(), k, ratio=ratio)
            high, low, log_none = high.unsqueeze(-1), low.unsqueeze(-1), log_sigmoid(-y).sum(-1, keepdim=True)
        value = high.log() + (-low.log() if ratio else -log_none)
        value = value + (1 if ratio else k) * (pivot - delta)
        if not differentiate:
            return torch.where(enough, value, -math.inf), x.new_empty(0)
        return torch.where(enough, value, -math.inf), slopes if holds(enough.all()) else slopes.where(enough, 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, ctx.expected, ctx.k, ctx.ratio, ctx.differentiate = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, output[1])
        ctx.save_for_forward(x, output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:
        return gradient * _derivative(ctx), None, None, None, None

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor, None]:
        return (_derivative(ctx) * x_tangent).sum(-1, keepdim=True), None


def _derivative(ctx: Any) -> Tensor:
    """The derivative by the logits: as computed on the way, or differentiable itself where that may be wanted."""
    x, known = ctx.saved_tensors
    if ctx.differentiate and not torch.is_grad_enabled():
        return known
    enough = _enough(x, ctx.k)
    y = torch.where(enough, log_odds(x, *lml_root(x.detach(), ctx.expected, 1.0), 1.0), 0)
    return label_count_tree(y.sigmoid(), (-y).sigmoid(), ctx.k, ratio=ctx.ratio)[2] * enough


def _enough(x: Tensor, k: int) -> Tensor:
    """Whether a row has k labels, ``(..., 1)``."""
    if is_plain(x):  # numpy counts several times faster
        present = x.detach().numpy() != -np.inf
        return torch.from_numpy(present.view(np.uint8).sum(-1, dtype=np.int32, keepdims=True) >= k)
    return (x != -math.inf).sum(-1, keepdim=True) >= k
