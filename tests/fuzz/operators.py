"""Property fuzzing of every projection and loss: hostile numbers, layouts and dtypes, drawn from a seed.

Whatever the finite input, the answer is finite and equal for every memory layout, the input is unchanged, and gradients
are not NaN. Projections also agree with their references in multiple precision.
"""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.contracts import PROJECTIONS, TOLERANCE, Projection
from tests.contracts_losses import LOSSES
from tests.loss_contract import Loss, random_hot

OPERATORS = [*PROJECTIONS, *LOSSES]
# Squares and sums of a few of the largest stay below the largest float32.
_SCALES = (1e-40, 1e-20, 1e-6, 1.0, 1.0, 1.0, 30.0, 1e4, 1e15)


def hostile_logits(draw: random.Random, rows: int, n: int, dtype: torch.dtype) -> Tensor:
    """Ties, huge and tiny numbers, nearly equal ones, alone and mixed."""
    generator = torch.Generator().manual_seed(draw.randrange(1 << 62))
    logits = torch.randn(rows, n, generator=generator, dtype=torch.float64) * draw.choice(_SCALES)
    kind = draw.randrange(6)
    if kind == 0:
        logits = logits.round()
    elif kind == 1:
        logits = logits * torch.tensor([[draw.choice(_SCALES) for _ in range(n)]], dtype=torch.float64)
    elif kind == 2:
        logits = logits[:, :1] * (1 + 2.0**-40 * torch.randn(rows, n, generator=generator, dtype=torch.float64))
    elif kind == 3:
        logits = torch.zeros(rows, n, dtype=torch.float64)
    largest = min(1e16, torch.finfo(dtype).max)
    return logits.clamp(-largest, largest).to(dtype)


def layouts(logits: Tensor) -> dict[str, Tensor]:
    """Equal tensors that differ in memory."""
    wide = torch.full((logits.shape[0], 2 * logits.shape[1]), float("nan"), dtype=logits.dtype)
    wide[:, ::2] = logits
    return {"column-major": logits.t().contiguous().t(), "strided": wide[:, ::2]}


def failure(seed: int) -> str:
    """Call one operator on one hostile input; a description of what is wrong, or nothing."""
    return failure_of(OPERATORS, _check, seed)


def failure_of(subjects: Sequence[Any], check: Callable[[Any, random.Random], str], seed: int) -> str:
    """Check the subject whose turn it is; a warning and an exception are failures too."""
    subject = subjects[seed % len(subjects)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            problem = check(subject, random.Random(seed))
    except Exception:
        problem = traceback.format_exc()
    return f"{subject}: {problem}" if problem else ""


def _check(operator: Projection | Loss, draw: random.Random) -> str:
    rows, n = draw.randint(1, 4), draw.randint(3, 12)
    dtype = draw.choice([torch.float32, torch.float64])
    logits = hostile_logits(draw, rows, n, dtype)
    before = logits.clone()
    if isinstance(operator, Projection):
        k = draw.choice([1.0, 2.0, n - 1.0, draw.uniform(0.05, n - 0.05)])
        call = lambda given: operator(given, k)
    else:
        generator = torch.Generator().manual_seed(draw.randrange(1 << 62))
        target = random_hot(operator, rows, n, generator, unknown=draw.choice([0.0, 0.3]))
        call = lambda given: operator(given, target.to(dtype), 2)
    answer, gradient = _value_and_gradient(call, logits)
    if not torch.equal(logits, before):
        return "the input is changed"
    if answer.dtype != dtype:
        return f"{dtype} became {answer.dtype}"
    if not (torch.isfinite(answer) | _may_be_infinite(operator, answer)).all():
        return f"not finite: {answer.tolist()} for {logits.tolist()}"
    if gradient.isnan().any():
        return f"NaN in the gradient {gradient.tolist()} for {logits.tolist()}"
    for name, other in layouts(logits).items():
        again, slope = _value_and_gradient(call, other)
        for left, right in ((answer, again), (gradient, slope)):
            if not torch.allclose(left, right, rtol=1e-4, atol=1e-6, equal_nan=True):
                return f"{name} gives another answer: {left.tolist()}, {right.tolist()} for {logits.tolist()}"
    if isinstance(operator, Projection) and dtype in TOLERANCE and draw.random() < 0.1:
        return " ".join(operator.misses(logits[0], operator(logits[0], k), k))
    return ""


def _value_and_gradient(call, logits: Tensor) -> tuple[Tensor, Tensor]:
    leaf = logits.detach().requires_grad_()
    answer = call(leaf)
    finite = torch.where(torch.isfinite(answer), answer, 0.0)
    (gradient,) = torch.autograd.grad(finite.sum(), leaf, allow_unused=True)
    return answer.detach(), torch.zeros_like(logits) if gradient is None else gradient


def _may_be_infinite(operator: Projection | Loss, answer: Tensor) -> Tensor:
    """The logarithm of a probability that underflows is minus infinity."""
    return (
        answer == -torch.inf
        if isinstance(operator, Projection) and operator.is_log
        else torch.zeros_like(answer).bool()
    )
