"""Isotonic calibration: the increasing curve that fits best, by pooling adjacent violators."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shortlist.calibration.calibrator import LabelwiseCalibrator, check_shape
from shortlist.calibration.held_out import HeldOut, Link, log_odds

Array = NDArray[np.float64]

# A share of 0 or 1 in a block becomes this far from it, so that its log odds are finite.
_LEAST = 2.0**-23


class IsotonicCalibration(LabelwiseCalibrator):
    r"""Probabilities as an increasing function of the score, with no other assumption.

    .. math:: \min_g \sum_i (g(s_i) - y_i)^2, \quad g \text{ increasing}

    The curve is flat on each block of scores where an increasing fit must average, and linear between blocks, as in
    scikit-learn. Scores are the log odds of the model. Probabilities of 0 and 1 become :math:`2^{-23}` and one minus
    that, so that no label with a score is taken for an absent one. With ``per_label``, the curve of a label with P
    positives has the weight :math:`P / (P + \kappa)`, and the common curve the rest. Labels whose scores lie in one
    block get equal probabilities.

    Args:
        per_label: a curve for each label instead of one for all.
        prior: :math:`\kappa`, how many positives the common curve is worth.
        link: as in `Calibrator`.

    Example:
        >>> logits = torch.tensor([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
        >>> labels = torch.tensor([[0.0], [1.0], [0.0], [1.0], [1.0]])
        >>> IsotonicCalibration(link="sigmoid").fit(logits, labels)(torch.tensor([[-0.5], [0.5], [3.0]]))
        tensor([[0.5000],
                [0.7500],
                [1.0000]])

    References:
        Zadrozny, Elkan, "Transforming classifier scores into accurate multiclass probability estimates", 2002.
    """

    name: ClassVar[str] = "isotonic"
    knots: Tensor
    values: Tensor
    own_knots: Tensor
    own_values: Tensor
    own_weights: Tensor

    def __init__(self, *, per_label: bool = False, prior: float = 20.0, link: Link = "softmax") -> None:
        super().__init__(per_label=per_label, prior=prior, link=link)

    def _clear(self) -> None:
        self.register_buffer("knots", torch.zeros(1, 0, dtype=torch.float64))
        self.register_buffer("values", torch.zeros(1, 0, dtype=torch.float64))
        self.register_buffer("own_knots", torch.zeros(0, 0, dtype=torch.float64))
        self.register_buffer("own_values", torch.zeros(0, 0, dtype=torch.float64))
        self.register_buffer("own_weights", torch.zeros(0, dtype=torch.float64))

    def _check_buffers(self, num_labels: int) -> None:
        own = num_labels if self.per_label else 0
        check_shape("own_weights", self.own_weights, (own,))
        for prefix, rows in (("", 1), ("own_", own)):
            knots, values = self.get_buffer(f"{prefix}knots"), self.get_buffer(f"{prefix}values")
            check_shape(f"{prefix}values", values, tuple(knots.shape))
            if len(knots) != rows or (rows and not knots.shape[1]):
                raise ValueError(f"`{prefix}knots` must have {rows} rows, none empty; got {tuple(knots.shape)}")
            if (knots.diff() < 0).any() or (values.diff() < 0).any():
                raise ValueError(f"`{prefix}knots` and `{prefix}values` must ascend")
        for name in ("values", "own_values", "own_weights"):
            if ((buffer := self.get_buffer(name)) < 0).any() or (buffer > 1).any():
                raise ValueError(f"`{name}` must lie in [0, 1]")

    def _settle(self, held_out: HeldOut) -> None:
        odds = [log_odds(x, held_out.link) for x, _ in held_out.rows()]
        labels = [rows for _, rows in held_out.rows()]
        true = torch.cat([x[own.pairs()] for x, own in zip(odds, labels, strict=True)])
        x, classes = torch.cat(odds), torch.cat([own.pairs()[1] for own in labels])
        del odds
        present = true > -torch.inf
        true, classes = true[present], classes[present]
        self.knots, self.values = (
            torch.from_numpy(part)[None] for part in isotonic_curve(x[x > -torch.inf].numpy(), true.numpy())
        )
        if not self.per_label:
            return
        curves = [
            isotonic_curve(own[own > -torch.inf].numpy(), true[classes == label].numpy())
            for label, own in enumerate(x.T.contiguous())
        ]
        width = max(len(knots) for knots, _ in curves)
        # Repeating the last knot does not change a curve.
        padded = [[np.pad(part, (0, width - len(part)), mode="edge") for part in curve] for curve in curves]
        self.own_knots, self.own_values = (torch.from_numpy(np.stack(part)) for part in zip(*padded, strict=True))
        positives = classes.bincount(minlength=held_out.num_labels).double()
        self.own_weights = torch.where(positives > 0, positives / (positives + self.prior), 0.0)

    def _curve(self, odds: Tensor) -> Tensor:
        found = _interpolate(odds, self.knots, self.values)
        if self.per_label:
            own = _interpolate(odds, self.own_knots, self.own_values)
            found = found + self.own_weights.to(odds.dtype) * (own - found)
        found = found.clamp(_LEAST, 1 - _LEAST)
        return found.log() - (1 - found).log()


def isotonic_curve(scores: NDArray[np.floating], true: NDArray[np.floating]) -> tuple[Array, Array]:
    """The ends of the blocks of an isotonic fit, ascending, and the value at each; 1/2 without scores.

    Args:
        scores: of all labels.
        true: of the true ones among them.

    Example:
        >>> isotonic_curve(np.array([3.0, 1.0, 2.0]), np.array([3.0, 1.0]))
        (array([1., 2., 3.]), array([0.5, 0.5, 1. ]))
    """
    if not len(scores):
        return np.zeros(1), np.full(1, 0.5)
    scores = np.sort(scores)  # of values alone: faster than an order of them
    # Blocks begin at the lowest score or at that of a true label: after it, the share of true ones does not rise.
    points, positives = np.unique(true, return_counts=True)
    starts = np.searchsorted(scores, points)
    if not len(starts) or starts[0]:
        starts, positives = np.append(0, starts), np.append(0, positives)
    values = pool_adjacent_violators(positives.astype(np.float64), np.diff(np.append(starts, len(scores))))
    starts = starts[np.append(True, values[1:] > values[:-1])]
    ends = np.append(starts[1:], len(scores)) - 1
    knots = np.stack([scores[starts], scores[ends]], axis=-1).reshape(-1).astype(np.float64)
    levels = np.unique(values).repeat(2)
    distinct = np.append(True, knots[1:] > knots[:-1])
    return knots[distinct], levels[distinct]


def pool_adjacent_violators(positives: Array, totals: NDArray[Any]) -> Array:
    """Isotonic regression of ``positives / totals``: adjacent blocks that violate the order are pooled."""
    blocks: list[list[float]] = []
    for positive, total in zip(positives.tolist(), totals.tolist(), strict=True):
        blocks.append([positive, max(total, 1e-300), 1])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            last = blocks.pop()
            blocks[-1] = [mine + other for mine, other in zip(blocks[-1], last, strict=True)]
    return np.repeat([block[0] / block[1] for block in blocks], [int(block[2]) for block in blocks])


def _interpolate(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Piecewise linear curves, constant beyond their ends: one for all labels, ``(1, m)``, or ``(n, m)``."""
    knots, values = knots.to(x.dtype), values.to(x.dtype)
    lines = x.reshape(1, -1) if len(knots) == 1 else x.reshape(-1, x.shape[-1]).T.contiguous()
    if torch.compiler.is_exporting():  # ONNX has no binary search
        passed = (lines.unsqueeze(-1) >= knots.unsqueeze(-2)).sum(-1)
    else:
        passed = torch.searchsorted(knots, lines, right=True)
    left, right = (passed - 1).clamp(min=0), passed.clamp(max=knots.shape[-1] - 1)
    low, high = (knots.gather(-1, index) for index in (left, right))
    # Halved, so that the difference of two finite numbers is finite.
    share = torch.where(high > low, (lines / 2 - low / 2) / (high / 2 - low / 2), 0.0).clamp(0.0, 1.0)
    start = values.gather(-1, left)
    found = start + share * (values.gather(-1, right) - start)
    return (found if len(knots) == 1 else found.T).reshape(x.shape)
