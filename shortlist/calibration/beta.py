"""Beta calibration: a curve of three parameters that contains the identity."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from shortlist.calibration.calibrator import LabelwiseCalibrator, check_shape
from shortlist.calibration.held_out import HeldOut, Link
from shortlist.calibration.newton import Expansion, projected_newton
from shortlist.calibration.scaling import logistic_sums, with_prior
from shortlist.tensors import log_sigmoid

# Keeps the minimum unique and finite where the labels are separable or all equal; elsewhere it is lost in rounding.
_RIDGE = 1e-6
_IDENTITY = (1.0, 1.0, 0.0)


class BetaCalibration(LabelwiseCalibrator):
    r"""Log odds that rise with those of the model, with a shape for low and one for high probabilities.

    .. math:: \log\frac{q}{1 - q} = a \log p - b \log(1 - p) + c, \quad a, b \ge 0

    Fitted by maximum likelihood under the constraints, by projected Newton steps. ``a = b = 1`` and ``c = 0`` is no
    change, so unlike a sigmoid of the probabilities it cannot make calibrated ones worse in the limit.

    Args:
        per_label: a curve for each label instead of one for all.
        prior: for ``per_label``: the weight of the squared distance from the parameters of the common curve; a label
            with few positives stays near it.
        link: as in `Calibrator`.

    Example:
        >>> logits = torch.tensor([[-3.0], [-3.0], [-3.0], [3.0], [3.0], [3.0]])
        >>> labels = torch.tensor([[0.0], [0.0], [1.0], [0.0], [1.0], [1.0]])
        >>> BetaCalibration(link="sigmoid").fit(logits, labels)(torch.tensor([[-3.0], [3.0]]))
        tensor([[0.3333],
                [0.6667]])

    References:
        Kull, Silva Filho, Flach, "Beta calibration: a well-founded and easily implemented improvement on logistic
        calibration for binary classifiers", 2017.
    """

    name: ClassVar[str] = "beta"
    curve: Tensor

    def __init__(self, *, per_label: bool = False, prior: float = 1.0, link: Link = "softmax") -> None:
        super().__init__(per_label=per_label, prior=prior, link=link)

    def _clear(self) -> None:
        self.register_buffer("curve", torch.zeros(0, 3, dtype=torch.float64))

    def _check_buffers(self, num_labels: int) -> None:
        check_shape("curve", self.curve, (num_labels if self.per_label else 1, 3))
        if (self.curve[:, :2] < 0).any():
            raise ValueError("`curve` must have first parameters that are not negative")

    def _settle(self, held_out: HeldOut) -> None:
        identity = torch.tensor([_IDENTITY], dtype=torch.float64)
        self.curve = _fit(held_out, identity, _RIDGE, per_label=False)
        if self.per_label:
            start = self.curve.expand(held_out.num_labels, -1)
            self.curve = _fit(held_out, start, self.prior + _RIDGE, per_label=True)

    def _curve(self, odds: Tensor) -> Tensor:
        low, high, bias = self.curve.to(odds.dtype).unbind(-1)
        return low * log_sigmoid(odds) - high * log_sigmoid(-odds) + bias


def _fit(held_out: HeldOut, start: Tensor, prior: float, *, per_label: bool) -> Tensor:
    @torch.no_grad()
    def expand(point: Tensor) -> Expansion:
        sums = 0.0
        for x, true, counts in held_out.blocks():
            features = [log_sigmoid(x), -log_sigmoid(-x), torch.ones_like(x)]
            sums = sums + logistic_sums(features, point, true, counts, per_label=per_label)
        return with_prior(sums, point, start, prior)

    return projected_newton(expand, start, torch.tensor([0.0, 0.0, -torch.inf], dtype=torch.float64))
