"""Binary losses, one decision per label: cross-entropy, and its asymmetric form for the many easy negatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from shortlist.functional.autograd import RowFunction, opaque
from shortlist.functional.losses.block_reductions import SumOfTerms
from shortlist.functional.losses.labeled_logits import (
    LabeledLogits,
    Reduction,
    add_at,
    check_reduction,
    hidden_and_own,
    hide,
    read_labeled,
    read_plain,
    read_raw,
    weighted,
    without_unknown_entries,
)
from shortlist.kernels.chooser import TRITON_DEVICES, triton_kernels, use_kernel
from shortlist.label_axis.linear_logits import LinearLogits
from shortlist.labels import Labels, read_labels
from shortlist.tensors import check_number, holds, may_look, solvable

__all__ = ["asymmetric", "bce"]

_BLOCK = 1 << 16
"""Entries per thread that are worked on at a time, so that the buffers stay in cache."""


def bce(
    logits: Tensor | LinearLogits, target: Tensor, *, weight: Tensor | None = None, reduction: Reduction = "mean"
) -> Tensor:
    r"""Binary cross-entropy of every label.

    .. math:: \ell_j = -t_j \log \sigma(x_j) - (1 - t_j) \log(1 - \sigma(x_j))

    Args:
        logits: ``(*rows, n)``, floating. ``-inf`` marks an absent label: value and gradient are 0 there.
            May be :class:`LinearLogits`, without the reduction ``"none"``. A ``DTensor`` may be sharded along its
            labels; every process passes the same target, with global label indices, and the loss is replicated (one
            value per entry: sharded).
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
    return _reduced(logits, target, (0.0, 0.0, 0.0), weight, reduction)


def asymmetric(
    logits: Tensor | LinearLogits,
    target: Tensor,
    *,
    gamma_positive: float = 0.0,
    gamma_negative: float = 4.0,
    clip: float = 0.05,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Asymmetric loss: binary cross-entropy with less weight on easy labels, negatives more than positives.

    .. math:: \ell_j = -t_j\, (1 - p)^{\gamma_+} \log p - (1 - t_j)\, p_m^{\gamma_-} \log(1 - p_m), \quad
              p = \sigma(x_j), \; p_m = \max(p - \text{clip}, 0)

    Negatives below ``clip`` cost nothing and get no gradient. With both gammas and ``clip`` at 0 this is :func:`bce`.

    Args:
        logits: as for :func:`bce`.
        target: labels in any form of :mod:`shortlist.targets`; unknown labels are left out. Soft targets in [0, 1]
            weigh the two terms.
        gamma_positive: focusing exponent of the positives; at least 0.
        gamma_negative: focusing exponent of the negatives; at least 0.
        clip: negatives with a probability below this cost nothing; in [0, 1).
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
    if 0 < clip < _LEAST_CLIP:
        raise ValueError(f"`clip` must be 0 or at least {_LEAST_CLIP:g}; got {clip:g}.")
    return _reduced(logits, target, options, weight, reduction)


_LEAST_CLIP = 1e-30
"""The logarithm of anything smaller is no longer finite in float32, or has few digits."""

_FEW = 8
"""Up to this whole exponent a power is a handful of products; beyond it, an exponential of a logarithm."""

Options = tuple[float, float, float]
"""``gamma_positive``, ``gamma_negative`` and ``clip``, as `asymmetric` describes them."""

BCE: Options = (0.0, 0.0, 0.0)


def _reduced(
    logits: Tensor | LinearLogits, target: Tensor, options: Options, weight: Tensor | None, reduction: Reduction
) -> Tensor:
    """Reduce one value per label, as torch does: weights do not change the divisor of the mean."""
    check_reduction(reduction)
    raw = None if reduction == "none" else read_raw(logits, target, weight)
    if raw is not None:
        rows, counts = _Sums.run(raw.logits, raw.target, raw.weight, 1.0, *options)
        return rows.sum() / (counts.sum().clamp(min=1) if reduction == "mean" else 1)
    data = read_labeled(logits, target, weight)
    if reduction == "none":
        if isinstance(logits, LinearLogits):
            raise ValueError('`reduction` must be "mean" or "sum" for LinearLogits, which hold no entries; got "none".')
        values = binary_terms(data.tensor, data.labels, options, weight=data.weight, summed=False)
        return data.processes.shard(values.reshape(*data.row_shape, values.shape[-1]))
    total = _total(data, options)
    if reduction == "mean":
        known = data.known()
        total = total / (known.clamp(min=1).to(total.dtype) if isinstance(known, Tensor) else max(known, 1))
    return data.processes.replicate(total)


def _total(data: LabeledLogits, options: Options) -> Tensor:
    """The sum of the loss over all labels of all rows and processes."""
    if isinstance(data.logits, Tensor):
        rows = binary_terms(data.logits, data.labels, options, weight=data.weight)
        return data.processes.sum(rows.sum())
    if data.weight is not None and data.weight.requires_grad:
        raise ValueError("`weight` must not require a gradient for LinearLogits.")
    own, negatives = data.reduce(SumOfTerms(_negative_side, options[1], options[2], data.weight))
    return negatives.sum() + data.processes.sum(_entry_terms(own, data.labels, options, 1.0, data.weight).sum())


def binary_terms(
    x: Tensor,
    labels: Labels,
    options: Options = BCE,
    *,
    background: float = 1.0,
    weight: Tensor | None = None,
    summed: bool = True,
) -> Tensor:
    """The loss of each row, or of each label if not ``summed``, of logits ``(num_rows, n)``.

    Args:
        x: logits in float32 or float64.
        labels: their labels.
        options: as in `asymmetric`.
        background: how much a negative counts beside a positive.
        weight: ``(n,)``, multiplies the terms of each label.
        summed: whether to sum over the labels of a row.
    """
    if labels.is_dense:
        values = _entry_terms(without_unknown_entries(x, labels), labels, options, background, weight)
        return values.sum(-1) if summed else values
    level = x.new_ones((1, 1)) if weight is None else weight.unsqueeze(0)
    # At -inf, where the entries are put, the terms of negatives have neither a value nor a slope.
    values, own, _ = _Terms.run(x, None, level, labels.indices, labels.listed, summed, *options)
    values = values if background == 1 else background * values
    terms = _entry_terms(without_unknown_entries(own, labels), labels, options, background, weight)
    return values + labels.sum_along(terms) if summed else add_at(values, labels, terms)


def _entry_terms(own: Tensor, labels: Labels, options: Options, background: float, weight: Tensor | None) -> Tensor:
    """The terms of the entries: as positives, and, for what a soft target lacks to 1, as negatives."""
    present, absent = weighted(labels.present, labels, weight), labels.absent
    if absent is not None:
        absent = weighted(absent if background == 1 else background * absent, labels, weight)
    return weighted_terms(own, present, absent, options, summed=False)


def weighted_terms(
    x: Tensor, present: Tensor | None, absent: Tensor | None, options: Options = BCE, *, summed: bool = True
) -> Tensor:
    """``-present (1 - p)^γ+ log p - absent p_m^γ- log(1 - p_m)`` with ``p = σ(x)`` and ``p_m = max(p - clip, 0)``.

    One value per row, or per entry if not ``summed``. ``present`` and ``absent`` are any weights that broadcast to
    ``x``, with as many dimensions; None is 0. Infinite terms count as the largest number, so a weight of 0 leaves them
    out.
    """
    return _Terms.run(x, present, absent, None, None, summed, *options)[0]


class _Terms(RowFunction):
    """``x, present, absent, indices, hidden, summed, γ+, γ-, clip -> value, own, slope``.

    x is ``(..., rows, n)``. The entries at ``indices`` ``(..., m)`` of its flattened rows that are ``hidden`` (all if
    None) count as -inf; ``own`` are their logits. The slope has one number per entry of x.
    """

    @staticmethod
    def forward(
        x: Tensor,
        present: Tensor | None,
        absent: Tensor | None,
        indices: Tensor | None,
        hidden: Tensor | None,
        summed: bool,
        gamma_positive: float,
        gamma_negative: float,
        clip: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        # All parameters by name: the compiler counts them to see that there is no context among them.
        options = gamma_positive, gamma_negative, clip
        own = x.new_empty(*x.shape[:-2], 0)
        if indices is not None:
            x, own = hidden_and_own(x, indices, hidden)
        if summed and present is None and _has_kernel(x, options) and _is_one(absent):
            value, slope = _negatives(x.contiguous(), int(gamma_negative), clip)
            return value, own, slope
        if not may_look(x) or x.ndim < 2 or x.numel() <= _BLOCK:
            value, slope = _combined(x, present, absent, options)
            return value.sum(-1) if summed else value, own, slope
        # In blocks of rows that stay in the cache. The slope may overwrite a copy of x.
        slope, (rows, n) = x if indices is not None else torch.empty_like(x), x.shape[-2:]
        value = x.new_empty(*x.shape[:-1], 1) if summed else torch.empty_like(x)
        size = max(1, _BLOCK * torch.get_num_threads() // n)
        for start in range(0, rows, size):
            block = slice(start, start + size)
            weights = (w if w is None or w.shape[-2] == 1 else w[..., block, :] for w in (present, absent))
            term, slope[..., block, :] = _combined(x[..., block, :], next(weights), next(weights), options)
            value[..., block, :] = term.sum(-1, keepdim=True) if summed else term
        return value.squeeze(-1) if summed else value, own, slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.summed, *ctx.options = inputs[5:]
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)  # no zeros for the slope
        ctx.save_for_backward(*inputs[:5], output[2])
        ctx.save_for_forward(*inputs[:5])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, to_own: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        x, present, absent, indices, hidden, slope = ctx.saved_tensors
        to_x = to_present = to_absent = None
        again = torch.is_grad_enabled()
        if gradient is not None:
            gradient = gradient.unsqueeze(-1) if ctx.summed else gradient
            if again or any(ctx.needs_input_grad[1:3]):
                (positive, positive_slope), (negative, negative_slope) = _sides(x, indices, hidden, ctx.options)
                slope = _weighted_sum(present, positive_slope, absent, negative_slope)
                to_present = None if present is None else (gradient * positive).sum_to_size(present.shape)
                to_absent = None if absent is None else (gradient * negative).sum_to_size(absent.shape)
            to_x = gradient * slope
        if indices is not None and to_own is not None:
            flat = (torch.zeros_like(x) if to_x is None else to_x).flatten(-2)
            flat = flat.scatter_add(-1, indices, to_own) if again else flat.scatter_add_(-1, indices, to_own)
            to_x = flat.view(x.shape)
        return to_x, to_present, to_absent, *(None,) * 6

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor | None) -> tuple[Tensor, Tensor, None]:
        x, present, absent, indices, hidden = ctx.saved_tensors
        (positive, positive_slope), (negative, negative_slope) = _sides(x, indices, hidden, ctx.options)
        rates = _weighted_sum(present, positive_slope, absent, negative_slope), positive, negative
        moved = sum((t * rate for t, rate in zip(tangents, rates, strict=False) if t is not None), torch.zeros_like(x))
        own = x.new_zeros(*x.shape[:-2], 0)
        if indices is not None:
            own = (torch.zeros_like(x) if tangents[0] is None else tangents[0]).flatten(-2).gather(-1, indices)
        return moved.sum(-1) if ctx.summed else moved, own, None


def _is_one(weights: Tensor | None) -> bool:
    return weights is None or (weights.numel() == 1 and holds((weights == 1).all()))


def _has_kernel(x: Tensor, options: Options) -> bool:
    """Whether the kernel knows the negatives' terms: of binary cross-entropy, or clipped ones to a whole power."""
    gamma, clip = options[1:]
    return use_kernel(1.0, x) and (gamma == clip == 0 or (clip > 0 and _is_small_whole(gamma)))


def _is_small_whole(gamma: float) -> bool:
    # Not `in range`, which the compiler does not take for a number that may vary.
    return 1 <= gamma <= _FEW and gamma == int(gamma)


def _negatives(x: Tensor, gamma: int, clip: float) -> tuple[Tensor, Tensor]:
    """The sum of the terms of each row, all of them negatives, and their slopes, by a kernel."""
    from shortlist.kernels import binary_code, threads

    value, slope = x.new_empty(x.shape[:-1]), torch.empty_like(x)
    rows, slopes, sums = x.view(-1, x.shape[-1]).numpy(), slope.view(-1, x.shape[-1]).numpy(), value.view(-1).numpy()

    def work(start: int, stop: int) -> None:
        binary_code.negatives(rows, gamma, clip, slopes, sums, start, stop)

    threads.run_parts(work, value.numel(), x.numel())
    return value, slope


def row_sums(
    logits: Tensor, target: Tensor, options: Options = BCE, *, background: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """The loss of each row, summed over its labels, ``(*rows,)``; arguments as of `bce` and of `binary_terms`."""
    raw = read_raw(logits, target, weight)
    if raw is not None:
        return _Sums.run(raw.logits, raw.target, raw.weight, background, *options)[0].reshape(raw.row_shape)
    data = read_plain(logits, target, weight)
    values = binary_terms(data.tensor, data.labels, options, background=background, weight=data.weight)
    return values.reshape(data.row_shape)


class _Sums(RowFunction):
    """``x, target, weight, background, γ+, γ-, clip -> sums, known`` of each row, by a Triton kernel.

    A target is read as it was given; see `RawRows`.
    """

    @staticmethod
    def forward(
        x: Tensor,
        target: Tensor,
        weight: Tensor | None,
        background: float,
        gamma_positive: float,
        gamma_negative: float,
        clip: float,
    ) -> tuple[Tensor, Tensor]:
        compute = _sums_op if torch.compiler.is_compiling() else _sums_triton
        return compute(x, target, weight, [gamma_positive, gamma_negative, clip], background)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.background, *ctx.options = inputs[3:]
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:3])
        ctx.save_for_forward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        x, target, weight = ctx.saved_tensors
        if gradient is None:
            return (None,) * 7
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            labels = read_labels(target, x.shape, dtype=torch.float32)
            options = tuple(ctx.options)
            sums = binary_terms(solvable(x), labels, options, background=ctx.background, weight=weight)
            return *torch.autograd.grad(sums, x, gradient, create_graph=True), *(None,) * 6
        compute = _slopes_op if torch.compiler.is_compiling() else _slopes_triton
        return compute(x, target, weight, gradient, ctx.options, ctx.background), *(None,) * 6

    @staticmethod
    def tangent(ctx: Any, x_tangent: Tensor, *_: None) -> tuple[Tensor, None]:
        x, target, weight = ctx.saved_tensors
        slopes = _slopes_triton(x, target, weight, torch.ones(len(x), device=x.device), ctx.options, ctx.background)
        return (slopes * x_tangent).sum(-1, dtype=torch.float32), None


def _sums_triton(
    x: Tensor, target: Tensor, weight: Tensor | None, options: list[float], background: float
) -> tuple[Tensor, Tensor]:
    return triton_kernels("binary").binary_sums(x, target, weight, options, background)


def _slopes_triton(
    x: Tensor, target: Tensor, weight: Tensor | None, gradient: Tensor, options: list[float], background: float
) -> Tensor:
    return triton_kernels("binary").binary_gradient(x, target, weight, gradient, options, background)


_sums_op = opaque(
    "binary_sums",
    "(Tensor x, Tensor target, Tensor? weight, float[] options, float background) -> (Tensor, Tensor)",
    _sums_triton,
    lambda x, *_: tuple(x.new_empty(x.shape[:1], dtype=torch.float32) for _ in range(2)),
    devices=TRITON_DEVICES,
)
_slopes_op = opaque(
    "binary_gradient",
    "(Tensor x, Tensor target, Tensor? weight, Tensor gradient, float[] options, float background) -> Tensor",
    _slopes_triton,
    lambda x, *_: x.new_empty(x.shape),
    devices=TRITON_DEVICES,
)


Side = tuple[Tensor, Tensor]
"""Terms with their slopes."""


def _combined(x: Tensor, present: Tensor | None, absent: Tensor | None, options: Options) -> Side:
    """Both terms and both slopes, each times its weight."""
    if present is None:
        return _added((None, None), _negative_side(x, *options[1:]), absent)
    positive = _added((None, None), _positive_side(x, options[0]), present)
    return positive if absent is None else _added(positive, _negative_side(x, *options[1:]), absent)


def _added(totals: tuple[Tensor | None, Tensor | None], side: Side, weights: Tensor | None) -> Side:
    """``totals``, or 0, plus a term and its slope, both times their weights."""
    whole = _is_one(weights)

    def plus(total: Tensor | None, part: Tensor) -> Tensor:
        if whole:
            return part if total is None else _step(total, "add", part)
        return _step(part, "mul", weights) if total is None else _step(total, "addcmul", part, weights)

    return plus(totals[0], side[0]), plus(totals[1], side[1])


def _weighted_sum(present: Tensor | None, positive: Tensor, absent: Tensor | None, negative: Tensor) -> Tensor:
    if present is None or absent is None:
        return absent * negative if absent is not None else present * positive  # pyright: ignore[reportOptionalOperand]
    return present * positive + absent * negative


def _sides(x: Tensor, indices: Tensor | None, hidden: Tensor | None, options: Options) -> tuple[Side, Side]:
    """Both sides, in operations that differentiate."""
    x = x if indices is None else hide(x, indices, hidden)
    return _positive_side(x, options[0]), _negative_side(x, *options[1:])


def _positive_side(x: Tensor, gamma: float) -> Side:
    """``-(1 - p)^γ log p`` and its slope: the mirror image of the negative side."""
    loss, slope = _negative_side(-x, gamma, 0)
    return loss, _step(slope, "neg")


def _negative_side(x: Tensor, gamma: float, clip: float) -> Side:
    """``-p_m^γ log(1 - p_m)`` and its slope."""
    if clip > 0:
        return _clipped_side(x, gamma, clip)
    loss, slope = _softplus(x), x.sigmoid()
    if gamma == 0:
        return loss, slope
    fade = _step(_step(_softplus(-x), "mul", -gamma), "exp")
    rest = _step(_step((-x).sigmoid(), "mul", gamma), "mul", loss)
    return _step(loss, "mul", fade), _step(_step(slope, "add", rest), "mul", fade)


def _clipped_side(x: Tensor, gamma: float, clip: float) -> tuple[Tensor, Tensor]:
    q = _step(-x, "sigmoid")
    if not _is_small_whole(gamma):
        return _clipped_side_of_any_power(q, gamma, clip)
    rest = _step(q + clip, "clamp", None, 1)
    shifted = 1 - rest
    over_rest = rest.reciprocal()
    loss = over_rest.log()
    rate = _step(_step(over_rest, "mul", shifted), "add", loss, alpha=gamma)
    slope = _step(_step(1 - q, "mul", q), "mul", rate)
    if gamma > 1:
        lower = _power(shifted, int(gamma) - 1)
        slope, shifted = _step(slope, "mul", lower), lower * shifted
    return _step(loss, "mul", shifted), slope


def _clipped_side_of_any_power(q: Tensor, gamma: float, clip: float) -> tuple[Tensor, Tensor]:
    """The same without ``p_m^(γ - 1)``, which below a gamma of 1 is infinite at the clip."""
    limits = torch.finfo(q.dtype)
    # With 1 - p_m rounded and short of 1, log(1 - p_m) / p_m has all its digits, and is finite up to the clip.
    rest = (q + clip).clamp(max=1 - limits.eps / 2)
    ratio = rest.log() / (rest - 1)
    shifted = (1 - clip - q).relu()
    # At a gamma of 0 the slope still jumps from 0 at the clip.
    fade = (gamma * shifted.clamp(min=limits.tiny).log()).exp() * shifted.sign()
    return fade * shifted * ratio, (1 - q) * q * fade * (gamma * ratio + 1 / rest)


def _power(base: Tensor, exponent: int) -> Tensor:
    """``base ** exponent`` for an exponent from 1 on, by squaring: torch's own takes as long as ten products."""
    if exponent == 1:
        return base
    half = _power(base, exponent // 2)
    return half * half * base if exponent % 2 else half * half


def _softplus(x: Tensor) -> Tensor:
    """``log(1 + exp x)`` with all its digits in both tails; at most the largest number."""
    # From a threshold of 40 on it is x, in float64 too.
    return _step(softplus(x, threshold=40.0), "clamp", None, torch.finfo(x.dtype).max)


def _step(a: Tensor, name: str, *arguments: Any, **options: Any) -> Tensor:
    """``a.name(...)``, in place unless autograd records."""
    return getattr(a, name if torch.is_grad_enabled() else name + "_")(*arguments, **options)
