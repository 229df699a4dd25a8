"""Every projection, potential and head once, with its module and its reference: lists for the shared tests."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import torch
from torch import Tensor

from shortlist import functional as F
from shortlist import nn
from tests import reference
from tests.reference import MP

Row = Sequence[float]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


@dataclass(frozen=True)
class Projection:
    """An operator ``(logits, k) -> rows``, its module, and the reference for one row with temperature 1.

    ``k`` is given to all alike; sparsemax, whose number of labels is always 1, leaves it out.
    """

    op: Callable[..., Tensor]
    reference: Callable[..., list]
    module: type[torch.nn.Module] | None
    budget: bool = False
    piecewise_linear: bool = False
    takes_k: bool = True
    is_log: bool = False
    is_dual: bool = False
    has_kernel: bool = True

    def __str__(self) -> str:
        return self.op.__name__

    def __call__(self, logits: Tensor, k: float | Tensor, **options) -> Tensor:
        return self.op(logits, k, **options) if self.takes_k else self.op(logits, **options)

    def probs(self, logits: Tensor, k: float | Tensor, **options) -> Tensor:
        """Return probabilities even where the operator returns their logarithms."""
        result = self(logits, k, **options)
        return result.exp() if self.is_log else result

    def layer(self, k: float | Tensor, **options) -> torch.nn.Module:
        """Return the module with these options."""
        return self.module(k, **options) if self.takes_k else self.module(**options)

    def wanted(self, k: float) -> float:
        """Return the number that a row sums to."""
        return k if self.takes_k else 1

    def expected(self, row: Row, k: float, temperature: float = 1) -> list:
        """Return the values of the reference for the logits divided by the temperature."""
        values = _expected(self, tuple(row), k, temperature)
        return [temperature * values[0]] if self.is_dual else values

    def allowance(self, expected, row: Row, dtype: torch.dtype):
        """Return the tolerance around ``expected``; a logarithm is no more precise than its own rounding."""
        limits, tolerance = torch.finfo(dtype), TOLERANCE[dtype]
        if self.piecewise_linear:
            return {torch.float32: 1e-5, torch.float64: 1e-11}[dtype]
        if self.is_dual:
            return tolerance + 4 * limits.eps * max(abs(x) for x in row if math.isfinite(x))
        if self.is_log:
            return tolerance + 4 * limits.eps * abs(expected)
        if expected == 0:
            return 0
        return expected * (tolerance + 4 * limits.eps * abs(MP.log(expected))) + 2 * limits.tiny

    def misses(self, logits: Tensor, answer: Tensor, k: float, temperature: float = 1) -> list[str]:
        """Describe the entries of one row's ``answer`` that are too far from the reference."""
        row = logits.tolist()
        pairs = zip(answer.reshape(-1).tolist(), self.expected(row, k, temperature), strict=True)
        return [
            f"{self}[{i}] = {got!r}, expected {MP.nstr(want, 17)}"
            for i, (got, want) in enumerate(pairs)
            if not (got == want or abs(MP.mpf(got) - want) <= self.allowance(want, row, logits.dtype))
        ]


class _Ratio(Fraction):
    """A fraction that the references convert in their own precision."""

    def _mpmath_(self, *_: object):
        return MP.mpf(self.numerator) / self.denominator


@lru_cache(maxsize=8192)
def _expected(projection: Projection, row: Row, k: float, temperature: float) -> list:
    scaled = [_Ratio(Fraction(x) / Fraction(temperature)) if math.isfinite(x) else x for x in row]
    values = projection.reference(scaled, k) if projection.takes_k else projection.reference(scaled)
    return [values] if projection.is_dual else values


PROJECTIONS = [
    Projection(F.lml, reference.lml, nn.LML),
    Projection(F.log_lml, reference.log_lml, nn.LogLML, is_log=True),
    Projection(F.lml_dual, reference.lml_dual, None, is_dual=True),
    Projection(F.lml_budget, reference.lml_budget, nn.LMLBudget, budget=True),
    Projection(F.sparse_top, reference.sparse_top, nn.SparseTop, piecewise_linear=True),
    Projection(
        F.sparse_top_budget, reference.sparse_top_budget, nn.SparseTopBudget, budget=True, piecewise_linear=True
    ),
    Projection(F.sparsemax, reference.sparsemax, nn.Sparsemax, piecewise_linear=True, takes_k=False),
    Projection(F.constrained_softmax, reference.constrained_softmax, nn.ConstrainedSoftmax, has_kernel=False),
]

BY_NAME = {str(projection): projection for projection in PROJECTIONS}
PER_LABEL = [projection for projection in PROJECTIONS if not projection.is_dual]
EXACTLY_K = [projection for projection in PER_LABEL if not projection.budget]
WITH_K = [projection for projection in PROJECTIONS if projection.takes_k]
SMOOTH = [projection for projection in PROJECTIONS if not projection.piecewise_linear]


@dataclass(frozen=True)
class PotentialCase:
    """A potential of ``k`` labels, its reference for one row, and the projection that it trains."""

    potential: Callable[[float], Callable[[Tensor], Tensor]]
    reference: Callable[[Row, float], object]
    prediction: Callable[[Tensor, float], Tensor]
    labels: int | None  # how many a row has: None where that is the potential's k, 0 where it is free

    def __str__(self) -> str:
        return type(self.potential(1)).__name__

    def positives(self, k: int) -> int:
        """Return the number of positives of a target that this potential can predict."""
        return k if self.labels in (None, 0) else self.labels


POTENTIALS = [
    PotentialCase(
        lambda k: F.SigmoidPotential(),
        lambda row, k: reference.sigmoid_potential(row),
        lambda x, k: x.sigmoid(),
        0,
    ),
    PotentialCase(
        lambda k: F.SoftmaxPotential(),
        lambda row, k: reference.softmax_potential(row),
        lambda x, k: x.softmax(-1),
        1,
    ),
    PotentialCase(F.LMLPotential, reference.lml_potential, F.lml, None),
    PotentialCase(F.SparseTopPotential, reference.sparse_top_potential, F.sparse_top, None),
    PotentialCase(
        lambda k: F.SparsemaxPotential(),
        lambda row, k: reference.sparsemax_potential(row),
        lambda x, k: F.sparsemax(x),
        1,
    ),
]


@dataclass(frozen=True)
class Head:
    """An output layer, created by ``head(in_features, num_labels)`` with small values for its other arguments."""

    module: type[torch.nn.Module]
    make: Callable[..., torch.nn.Module]
    option: str = ""

    def __str__(self) -> str:
        return self.module.__name__ + self.option

    def __call__(self, in_features: int = 5, num_labels: int = 9, **where) -> torch.nn.Module:
        torch.manual_seed(0)
        return self.make(in_features, num_labels, **where)


HEADS = [
    Head(nn.BottleneckHead, lambda *sizes, **where: nn.BottleneckHead(*sizes, 3, **where)),
    Head(nn.DFTHead, lambda *sizes, **where: nn.DFTHead(*sizes, 2, **where)),
    Head(nn.DFTHead, lambda *sizes, **where: nn.DFTHead(*sizes, 2, 3, **where), "-slack"),
    Head(nn.CosineHead, nn.CosineHead),
    Head(nn.CosineHead, lambda *sizes, **where: nn.CosineHead(*sizes, scale=4.0, learn_scale=True, **where), "-scale"),
    Head(nn.TwoHead, nn.TwoHead.linear),
]

HEADS_WITHOUT_TENSORS = [nn.ChunkedHead, nn.ColumnParallelHead]
"""Heads whose logits are not one tensor, and that are not run through every loss."""
NN_EXTRAS = [
    nn.CandidateLogits,
    nn.ClusterHead,
    nn.Loss,
    nn.LossMemory,
    nn.Task,
    nn.HeadWitness,
    *HEADS_WITHOUT_TENSORS,
]
FUNCTIONAL_EXTRAS = [
    F.DFTWitness,
    F.LinearLogits,
    F.Potential,
    F.TopLabels,
    F.dft_logits,
    F.dft_matrix,
    F.dft_witness,
    F.fenchel_young_loss,
    F.sign_changes,
]
"""Exports with tests of their own."""
