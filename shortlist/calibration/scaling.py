"""Temperature and vector scaling: logits times one slope, or times a slope per label plus a bias."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.calibration.calibrator import Calibrator, check_shape
from shortlist.calibration.held_out import HeldOut, Link
from shortlist.calibration.newton import Expansion, projected_newton
from shortlist.tensors import check_positive

# The temperature lies within this factor of the spread of the logits.
_WIDEST = 1e4
_MOST_STEPS = 200


class TemperatureScaling(Calibrator):
    r"""Logits divided by one temperature, which keeps the order of labels and of rows with sigmoid scores.

    .. math:: p = \operatorname{link}(x / T), \quad T = \arg\min_T -\sum_i \log p(y_i \mid x_i, T)

    The loss is convex in 1 / T, and Newton's method inside a bracket finds its minimum. If the logits separate the
    labels perfectly, the loss has none, and T is one ten-thousandth of the spread of the logits; ten thousand times
    the spread if they tell nothing.

    Args:
        link: as in `Calibrator`.

    Example:
        >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
        >>> calibrator = TemperatureScaling().fit(logits, torch.tensor([0, 0, 1, 1]))  # right in 3 of 4 rows
        >>> calibrator(torch.tensor([[4.0, 0.0]]))
        tensor([[0.7500, 0.2500]])

    References:
        Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", 2017.
    """

    name: ClassVar[str] = "temperature"
    temperature: Tensor

    def __init__(self, *, link: Link = "softmax") -> None:
        super().__init__(link=link)

    def _clear(self) -> None:
        self.register_buffer("temperature", torch.ones((), dtype=torch.float64))

    def _check_buffers(self, num_labels: int) -> None:
        check_positive("temperature", float(self.temperature))

    def _settle(self, held_out: HeldOut) -> None:
        self.temperature.fill_(1 / best_slope(held_out))

    def _transform(self, x: Tensor) -> Tensor:
        return x / self.temperature.to(x.dtype)


class VectorScaling(Calibrator):
    r"""Logits times a slope and plus a bias for each label, shrunk toward one temperature for all labels.

    .. math:: p = \operatorname{link}(w \odot x + b), \quad
              \min_{w, b} -\sum_i \log p(y_i \mid x_i) + \tfrac{\kappa}{2} \big(s^2 \|w - 1/T\|^2 + \|b\|^2\big)

    with s the root mean square of the logits. For sigmoid scores this is Platt scaling of each label, and a label
    without positives keeps nearly the common temperature. The order of labels may change.

    Args:
        prior: :math:`\kappa`, positive; the minimum is then unique and finite, also for labels that never occur.
        link: as in `Calibrator`.

    Example:
        >>> logits = torch.tensor([[2.0], [2.0], [2.0], [-1.0], [-1.0]])
        >>> labels = torch.tensor([[1.0], [1.0], [0.0], [0.0], [1.0]])
        >>> VectorScaling(prior=1e-6, link="sigmoid").fit(logits, labels)(torch.tensor([[2.0], [-1.0]]))
        tensor([[0.6667],
                [0.5000]])

    References:
        Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", 2017; Platt, "Probabilistic outputs
        for support vector machines", 1999.
    """

    name: ClassVar[str] = "vector"
    slopes: Tensor
    biases: Tensor

    def __init__(self, *, prior: float = 1.0, link: Link = "softmax") -> None:
        self.prior = check_positive("prior", prior)
        super().__init__(link=link)

    def _clear(self) -> None:
        self.register_buffer("slopes", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("biases", torch.zeros(0, dtype=torch.float64))

    def _check_buffers(self, num_labels: int) -> None:
        check_shape("slopes", self.slopes, (num_labels,))
        check_shape("biases", self.biases, (num_labels,))

    def _settle(self, held_out: HeldOut) -> None:
        spread = _root_mean_square(held_out)
        start = torch.zeros(held_out.num_labels, 2, dtype=torch.float64)
        start[:, 0] = best_slope(held_out) * spread
        fit = _fit_classes if held_out.link == "softmax" else _fit_labels
        scaled = fit(held_out, start, spread, self.prior)
        self.slopes, self.biases = scaled[:, 0] / spread, scaled[:, 1].clone()

    def _transform(self, x: Tensor) -> Tensor:
        finite = torch.where(x == -torch.inf, 0.0, x)
        return self.slopes.to(x.dtype) * finite + self.biases.to(x.dtype)


def best_slope(held_out: HeldOut) -> float:
    """1 / T that minimizes the loss, 1 if the logits of every row are constant (softmax) or all 0 (sigmoid)."""
    spread = max((_spread(x, held_out.link) for x, _ in held_out.rows()), default=0.0)
    if spread == 0 or spread == math.inf:
        return 1.0
    low, high = 1 / (_WIDEST * spread), _WIDEST / spread
    if _slopes_at(high, held_out)[0] <= 0:
        return high
    if _slopes_at(low, held_out)[0] >= 0:
        return low
    point = min(max(1.0, low), high)
    for _ in range(_MOST_STEPS):
        slope, curvature = _slopes_at(point, held_out)
        if slope == 0:
            return point
        low, high = (point, high) if slope < 0 else (low, point)
        following = point - slope / curvature if curvature > 0 else math.inf
        if not low < following < high:
            following = math.sqrt(low) * math.sqrt(high)
        if abs(following - point) <= 1e-14 * point:
            return following
        point = following
    return point


def _spread(x: Tensor, link: Link) -> float:
    present = x > -torch.inf
    x = x.double()
    if link == "sigmoid":
        return float(torch.where(present, x.abs(), 0.0).max()) if x.numel() else 0.0
    above, below = x.amax(-1, keepdim=True), torch.where(present, x, torch.inf).amin(-1, keepdim=True)
    return float((above - below).max()) if x.numel() else 0.0


@torch.no_grad()
def _slopes_at(point: float, held_out: HeldOut) -> tuple[float, float]:
    """First and second derivative of the loss in 1 / T."""
    slope = curvature = 0.0
    if held_out.link == "sigmoid":
        for x, labels in held_out.rows():
            x = torch.where(x > -torch.inf, x, 0.0).double()
            probs = (point * x).sigmoid()
            slope += float((probs * x).sum() - x[labels.pairs()].sum())
            curvature += float((probs * (1 - probs) * x * x).sum())
        return slope, curvature
    for x, labels in held_out.rows():
        x = (x.double() - x.double().amax(-1, keepdim=True)).clamp(min=torch.finfo(torch.float64).min / 4)
        probs = (point * x).softmax(-1)
        probs = torch.where(probs > 0, probs, 0.0)
        mean = (probs * x).sum(-1, keepdim=True)
        slope += float((mean.squeeze(-1) - x[labels.pairs()]).sum())
        curvature += float((probs * (x - mean).square()).sum())
    return slope, curvature


def _root_mean_square(held_out: HeldOut) -> float:
    total, count = 0.0, 0
    for x, _ in held_out.rows():
        present = x[x > -torch.inf].double()
        total, count = total + float(present.square().sum()), count + len(present)
    found = math.sqrt(total / count) if count else 0.0
    return found if 0 < found < math.inf else 1.0


def _fit_labels(held_out: HeldOut, start: Tensor, spread: float, prior: float) -> Tensor:
    """Slope times ``spread`` and bias of each label on its own, by Newton's method."""

    @torch.no_grad()
    def expand(point: Tensor) -> Expansion:
        sums = 0.0
        for x, true, counts in held_out.blocks():
            sums = sums + logistic_sums([x / spread, torch.ones_like(x)], point, true, counts, per_label=True)
        return with_prior(sums, point, start, prior)

    return projected_newton(expand, start, torch.full((2,), -torch.inf, dtype=torch.float64))


def _fit_classes(held_out: HeldOut, start: Tensor, spread: float, prior: float) -> Tensor:
    """Slopes times ``spread`` and biases of all classes together, by L-BFGS.

    In coordinates in which the curvature of each label's slope and bias is 1 at the start: labels differ by orders of
    magnitude in how often they occur, and so would the steps that they need.
    """
    root = torch.linalg.cholesky(_expand_classes(held_out, start, start, spread, prior, curvature=True).curvature)
    moved = torch.zeros_like(start).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [moved], max_iter=500, tolerance_grad=1e-9, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def place() -> Tensor:
        steps = torch.linalg.solve_triangular(root.mT, moved.detach().unsqueeze(-1), upper=True)
        return start + steps.squeeze(-1)

    def closure() -> Any:
        at = _expand_classes(held_out, place(), start, spread, prior)
        moved.grad = torch.linalg.solve_triangular(root, at.slope.unsqueeze(-1), upper=False).squeeze(-1)
        return at.loss

    optimizer.step(closure)
    return place()


@torch.no_grad()
def _expand_classes(
    held_out: HeldOut, point: Tensor, start: Tensor, spread: float, prior: float, *, curvature: bool = False
) -> Expansion:
    """The loss and its slopes; of the curvature, only the blocks of each label with itself, and only if asked for."""
    n = len(point)
    sums, slope, loss = torch.zeros(n, 3, dtype=torch.float64), torch.zeros_like(point), 0.0
    for x, labels in held_out.rows():
        rows, classes = labels.pairs()
        absent = x == -torch.inf
        scaled = (x.double() / spread).masked_fill_(absent, 0.0)
        logits = (scaled * point[:, 0]).add_(point[:, 1]).masked_fill_(absent, -torch.inf)
        total = logits.logsumexp(-1, keepdim=True)
        loss += float(total.sum() - logits[rows, classes].sum())
        probs = logits.sub_(total).exp_()
        slope += torch.stack([(probs * scaled).sum(0), probs.sum(0)], -1)
        slope.index_add_(0, classes, torch.stack([scaled[rows, classes], torch.ones(len(rows)).double()], -1), alpha=-1)
        if curvature:
            variance = probs.mul_(1 - probs)
            weighted = variance * scaled
            sums += torch.stack([(weighted * scaled).sum(0), weighted.sum(0), variance.sum(0)], -1)
    away = point - start
    blocks = sums[:, [0, 1, 1, 2]].reshape(n, 2, 2) + prior * torch.eye(2, dtype=torch.float64)
    return Expansion(
        torch.tensor(loss, dtype=torch.float64) + prior / 2 * away.square().sum(), slope + prior * away, blocks
    )


def logistic_sums(features: list[Tensor], point: Tensor, true: Tensor, counts: Tensor, *, per_label: bool) -> Tensor:
    """Loss, slope and curvature of logistic regression in one vector, ``(L, 1 + d + d * d)``, to add over blocks.

    Args:
        features: d tensors ``(rows, labels)``.
        point: ``(L, d)``, with one row for each label, or one for all.
        true: 1 for positives, else 0.
        counts: 1 for entries that count, else 0.
        per_label: whether to sum over rows only.
    """
    total = (lambda values: values.sum(0)) if per_label else (lambda values: values.sum().reshape(1))
    odds = torch.zeros_like(true)
    for feature, weight in zip(features, point.unbind(-1), strict=True):
        odds = odds + feature * weight
    probs = odds.sigmoid()
    surplus, variance = (probs - true) * counts, probs * (1 - probs) * counts
    loss = total(torch.nn.functional.softplus((1 - 2 * true) * odds) * counts)
    slopes = [total(surplus * feature) for feature in features]
    curvatures = [total(variance * one * other) for one in features for other in features]
    return torch.stack([loss, *slopes, *curvatures], dim=-1)


def with_prior(sums: Tensor | float, point: Tensor, center: Tensor, prior: Tensor | float) -> Expansion:
    """Sums of `logistic_sums` as an expansion, plus ``prior / 2`` times the squared distance from ``center``."""
    d, away = point.shape[-1], point - center
    sums = torch.as_tensor(sums)
    loss, slope, curvature = sums[..., 0], sums[..., 1 : d + 1], sums[..., d + 1 :].reshape(-1, d, d)
    ridge = torch.as_tensor(prior, dtype=torch.float64) * torch.eye(d, dtype=torch.float64)
    return Expansion(loss + prior / 2 * away.square().sum(-1), slope + prior * away, curvature + ridge)
