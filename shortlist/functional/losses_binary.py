"""One binary question per label: cross-entropy, and its asymmetric form for the many easy negatives."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import relu

from shortlist.functional.observed import Observed, observed
from shortlist.functional.reduction import Reduction, check_reduction, check_weight
from shortlist.functional.rows import log_sigmoid, may_look

BLOCK = 1 << 16
"""Entries that one thread works on at a time."""

_FEW = 8
"""Up to this whole exponent a power is a handful of products; beyond it, an exponential of a logarithm."""


def bce(logits: Tensor, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean") -> Tensor:
    r"""Binary cross-entropy of every label.

    .. math:: \ell_j = -t_j \log \sigma(x_j) - (1 - t_j) \log(1 - \sigma(x_j))

    Args:
        logits: ``(*rows, n)``, floating. ``-inf`` marks an absent label: value and gradient are 0 there.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out. A floating multi-hot may
            hold soft targets in [0, 1].
        weight: ``(n,)``, multiplies the entries of each label.
        reduction: ``"none"`` gives one value per entry, ``"sum"`` their sum, ``"mean"`` the sum over the number of
            known entries, whatever their weights.

    Returns:
        The shape of ``logits`` for ``"none"``, else one number; float32 or float64.

    Example:
        >>> bce(torch.tensor([[2.0, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, -1.0]]), reduction="none")
        tensor([[0.1269, 0.3133, 0.0000]])

    References:
        Good, "Rational Decisions", 1952.
    """
    return _entries(observed(logits, target), (), weight, reduction)


def asymmetric(
    logits: Tensor,
    target: Tensor,
    *,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    clip: float = 0.05,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Binary cross-entropy that fades out easy labels, negatives more than positives.

    .. math:: \ell_j = -t_j\, (1 - p)^{\gamma_+} \log p - (1 - t_j)\, p_m^{\gamma_-} \log(1 - p_m), \quad
              p = \sigma(x_j), \; p_m = \max(p - \text{clip}, 0)

    Negatives below ``clip`` cost nothing and get no gradient. With both gammas and ``clip`` at 0 this is :func:`bce`.

    Args:
        logits: ``(*rows, n)``, floating. ``-inf`` marks an absent label: value and gradient are 0 there.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out. Soft targets in [0, 1]
            weigh the two terms.
        gamma_positive: how fast positives fade as they become certain; at least 0.
        gamma_negative: the same for negatives.
        clip: how probable a negative may be for free; in [0, 1).
        weight: ``(n,)``, multiplies the entries of each label.
        reduction: as for :func:`bce`.

    Returns:
        The shape of ``logits`` for ``"none"``, else one number; float32 or float64.

    Example:
        >>> asymmetric(torch.tensor([[2.0, -1.0, -9.0]]), torch.tensor([[1.0, 0.0, 0.0]]), reduction="none")
        tensor([[0.1269, 0.0006, 0.0000]])

    References:
        Ben-Baruch, Ridnik, Zamir, Noy, Friedman, Protter, Zelnik-Manor, "Asymmetric Loss For Multi-Label
        Classification", 2021.
    """
    options = (
        check_number("gamma_positive", gamma_positive, at_least=0),
        check_number("gamma_negative", gamma_negative, at_least=0),
        check_number("clip", clip, at_least=0, below=1),
    )
    return _entries(observed(logits, target), options, weight, reduction)


def check_number(name: str, value: float, *, at_least: float = -math.inf, below: float = math.inf) -> float:
    """``value`` as a finite float, checked to lie in [``at_least``, ``below``)."""
    if not isinstance(value, Real | torch.SymInt | torch.SymFloat):
        raise TypeError(f"`{name}` must be a number; got {type(value).__name__}.")
    if not at_least <= value < below or value == -math.inf:
        if below < math.inf:
            rule = f"lie in [{at_least:g}, {below:g})" if at_least > -math.inf else f"be below {below:g}"
        else:
            rule = f"be finite and at least {at_least:g}" if at_least > -math.inf else "be finite"
        raise ValueError(f"`{name}` must {rule}; got {value}.")
    return float(value)


def binary_terms(
    x: Tensor,
    present: Tensor,
    absent: Tensor,
    gamma_positive: float = 0.0,
    gamma_negative: float = 0.0,
    clip: float = 0.0,
    *,
    summed: bool = True,
) -> Tensor:
    """``-present (1 - p)^γ+ log p - absent p_m^γ- log(1 - p_m)``, finite also for infinite ``x``.

    One value per row, or per entry if not ``summed``. ``present`` and ``absent`` are any weights, shaped like ``x``.
    """
    return _Terms.run(x, present, absent, summed, gamma_positive, gamma_negative, clip)[0]


class LabelFunction(Function):
    """Base of the operators ``(x, present, absent, *options) -> (value, ..., slope)`` with their own derivative.

    A subclass defines ``forward``, ``setup_context``, ``backward`` and ``tangent`` (the forward derivative), all
    counting axes from the last. The slope is an output only to be kept for the backward pass. The compiler takes the
    class as it is; elsewhere its twin ``everywhere`` adds the forward-mode and batching rules, which the compiler
    does not accept.
    """

    tangent: ClassVar[Callable[..., Any]]
    everywhere: ClassVar[type[Function]]

    @classmethod
    def run(cls, x: Tensor, present: Tensor, absent: Tensor, *options: Any) -> Any:
        """Apply the operator in whatever mode the caller is."""
        if torch.compiler.is_exporting():
            return cls.forward(x, present, absent, *options)
        operator = cls if torch.compiler.is_compiling() else cls.everywhere
        return operator.apply(x, present, absent, *options)

    def __init_subclass__(cls) -> None:
        """Make the twin, once per operator."""
        if "tangent" not in vars(cls):
            return
        # `apply` asks for the signature at every call; kept here, the answer costs nothing.
        cls.forward.__signature__ = inspect.signature(cls.forward)

        class Everywhere(cls):
            @staticmethod
            def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
                return cls.tangent(ctx, *tangents)

            @staticmethod
            def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
                batched = (
                    tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
                    for tensor, dim in zip(inputs[:3], in_dims[:3], strict=True)
                )
                result = Everywhere.apply(*batched, *inputs[3:])
                return result, (0,) * len(result)

        cls.everywhere = Everywhere


class _Terms(LabelFunction):
    """``x, present, absent, summed, γ+, γ-, clip -> value, slope``; the slope has one number per entry."""

    @staticmethod
    def forward(x: Tensor, present: Tensor, absent: Tensor, summed: bool, *options: float) -> tuple[Tensor, Tensor]:
        if may_look(x) and x.numel():
            return _by_blocks(x, present, absent, summed, *options)
        (positive, positive_slope), (negative, negative_slope) = _sides(x, *options)
        value = present * positive + absent * negative
        slope = present * positive_slope + absent * negative_slope
        return value.sum(-1) if summed else value, slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.summed, *ctx.options = inputs[3:]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[:3], output[1])
        ctx.save_for_forward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, present, absent, slope = ctx.saved_tensors
        gradient = gradient.unsqueeze(-1) if ctx.summed else gradient
        to_labels = None, None
        if torch.is_grad_enabled() or any(ctx.needs_input_grad[1:3]):
            (positive, positive_slope), (negative, negative_slope) = _sides(x, *ctx.options)
            slope = present * positive_slope + absent * negative_slope
            to_labels = gradient * positive, gradient * negative
        return gradient * slope, *to_labels, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, None]:
        x, present, absent = ctx.saved_tensors
        (positive, positive_slope), (negative, negative_slope) = _sides(x, *ctx.options)
        rates = present * positive_slope + absent * negative_slope, positive, negative
        moved = sum((t * rate for t, rate in zip(tangents, rates, strict=False) if t is not None), torch.zeros_like(x))
        return moved.sum(-1) if ctx.summed else moved, None


def _by_blocks(
    x: Tensor, present: Tensor, absent: Tensor, summed: bool, gamma_positive: float, gamma_negative: float, clip: float
) -> tuple[Tensor, Tensor]:
    """Value and slope: negatives a few rows at a time, so that all steps stay in the cache; positives are few."""
    shape, n = x.shape, x.shape[-1]
    x, absent = x.reshape(-1, n).contiguous(), absent.reshape(-1, n)
    slope = torch.empty_like(x)
    value = x.new_empty(len(x), 1) if summed else torch.empty_like(x)
    size = max(1, BLOCK * torch.get_num_threads() // n)
    for start in range(0, len(x), size):
        block = slice(start, start + size)
        term, rate = _negative_side(x[block], gamma_negative, clip)
        torch.mul(rate, absent[block], out=slope[block])
        value[block] = term.mul_(absent[block]).sum(-1, keepdim=True) if summed else term.mul_(absent[block])
    scale = present.detach().reshape(-1)
    places = torch.from_numpy(np.flatnonzero(scale.numpy() != 0))
    term, rate = _positive_side(x.view(-1)[places], gamma_positive)
    scale = scale[places]
    slope.view(-1).index_add_(0, places, rate.mul_(scale))
    value.view(-1).index_add_(0, places // n if summed else places, term.mul_(scale))
    return value.view(shape[:-1] if summed else shape), slope.view(shape)


def _sides(
    x: Tensor, gamma_positive: float, gamma_negative: float, clip: float
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return _positive_side(x, gamma_positive), _negative_side(x, gamma_negative, clip)


def _positive_side(x: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """``-(1 - p)^γ log p`` and its slope."""
    x = _finite(x)
    loss, slope = _minus_log_sigmoid(x), -(-x).sigmoid()
    if gamma == 0:
        return loss, slope
    fade = _times(_minus_log_sigmoid(-x), -gamma).exp()
    slope = _plus(slope, _times(_times(x.sigmoid(), loss), -gamma))
    return _times(loss, fade), _times(slope, fade)


def _negative_side(x: Tensor, gamma: float, clip: float) -> tuple[Tensor, Tensor]:
    """``-p_m^γ log(1 - p_m)`` and its slope; without a clip it mirrors the positive side."""
    if clip == 0:
        loss, slope = _positive_side(-x, gamma)
        return loss, -slope
    p, limits = x.sigmoid(), torch.finfo(x.dtype)
    above = relu(p - clip, inplace=not torch.is_grad_enabled())
    # With the rest rounded once and short of 1, log(rest) / (1 - rest) has all its digits, and is 1 up to the clip.
    rest = (1 - above).clamp(max=1 - limits.eps / 2)
    ratio = -rest.log() / (1 - rest)
    if gamma in range(1, _FEW + 1):
        fade = _power(above, int(gamma))
    else:
        fade = _times((gamma * above.clamp(min=limits.tiny).log()).exp(), above.sign())
    slope = _times(_times(p, (-x).sigmoid()), fade)
    rate = _plus(gamma * ratio, 1 / rest)
    return _times(_times(ratio, above), fade), _times(slope, rate)


def _power(base: Tensor, exponent: int) -> Tensor:
    """``base ** exponent`` for an exponent from 1 on, by squaring: torch's own takes as long as ten products."""
    if exponent == 1:
        return base
    half = _power(base, exponent // 2)
    return half * half * base if exponent % 2 else half * half


def _times(a: Tensor, b: Tensor | float) -> Tensor:
    """``a * b``, in the place of ``a`` where autograd does not watch."""
    return a * b if torch.is_grad_enabled() else a.mul_(b)


def _plus(a: Tensor, b: Tensor) -> Tensor:
    """``a + b``, in the place of ``a`` where autograd does not watch."""
    return a + b if torch.is_grad_enabled() else a.add_(b)


def _minus_log_sigmoid(x: Tensor) -> Tensor:
    """``-log σ(x)`` with all its digits in both tails."""
    if torch.is_grad_enabled():
        return -log_sigmoid(x)
    # The same in half the time; but its parts have no derivative at 0.
    return x.abs().neg_().exp_().log1p_().sub_(x.clamp(max=0))


def _finite(x: Tensor) -> Tensor:
    """``x`` with infinities as the largest numbers: an infinite loss times a weight of 0 would be NaN."""
    largest = torch.finfo(x.dtype).max
    return x.clamp(-largest, largest)


def _entries(labels: Observed, options: tuple[float, ...], weight: Tensor | None, reduction: Reduction) -> Tensor:
    """Reduce one value per entry, as torch does: weights do not change the divisor of the mean."""
    check_reduction(reduction)
    x, present, absent = labels
    weight = check_weight(weight, x)
    weighted = (present, absent) if weight is None else (present * weight, absent * weight)
    values = binary_terms(x, *weighted, *options, summed=reduction != "none")
    if reduction == "none":
        return values
    return values.sum() if reduction == "sum" else values.sum() / (present.sum() + absent.sum()).clamp(min=1)
