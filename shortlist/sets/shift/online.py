"""Thresholds that follow a stream: error rates and average sizes that hold for every sequence of rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.labels import LabelsLike, Numbers, read_scores
from shortlist.sets.average_k import AverageK
from shortlist.sets.conformal.conformity import LAC, ConformityScore
from shortlist.sets.conformal.split import ConformalRule
from shortlist.sets.conformal.thresholds import conformal_rank, conformal_threshold, missing_share
from shortlist.sets.rule import SetRule
from shortlist.sets.scores import Block, Link
from shortlist.tensors import check_number


class _FollowsErrors(ConformalRule):
    """Predicts with the threshold of the moment; `update` moves it after each row whose true label is known.

    Sets are deterministic: labels that tie at the threshold are inside. Buffers ``steps`` and ``missed`` count the rows
    of the stream and those without their true label.
    """

    threshold_name: ClassVar[str | None] = "threshold"
    threshold: Tensor
    steps: Tensor
    missed: Tensor

    def _clear(self) -> None:
        self.register_buffer("threshold", torch.tensor(-torch.inf, dtype=torch.float64))
        for name in ("steps", "missed"):
            self.register_buffer(name, torch.tensor(0))

    def _check_buffers(self, num_labels: int) -> None:
        if not 0 <= int(self.missed) <= int(self.steps):
            raise ValueError("`missed` must lie between 0 and `steps`")

    def _cut(self, block: Block | None) -> tuple[Tensor, Tensor]:
        return self.threshold, torch.ones_like(self.threshold)

    @property
    def error(self) -> float:
        """The share of rows of the stream so far whose true label was missing."""
        return int(self.missed) / max(1, int(self.steps))

    @torch.no_grad()
    def update(self, scores: Numbers, labels: LabelsLike) -> Tensor:
        """Learn from rows whose true labels became known, in the order in which they arrived.

        Args:
            scores: ``(B, n)``, as given to ``predict``.
            labels: the true class of each.

        Returns:
            ``(B,)`` bool: whether the true label was missing from the set, with the threshold that preceded the row.
            These are the sets that ``predict`` returned if it was called anew after each row.
        """
        true = self.true_conformity(scores, labels)
        return torch.tensor([self._step(value) for value in true], dtype=torch.bool)

    def _step(self, true: Tensor) -> bool:
        """Move the threshold after one row, given the conformity of its true label."""
        missed = bool((true < self.threshold.cpu().to(true.dtype)) | (true == -torch.inf))
        self.steps += 1
        self.missed += int(missed)
        self._move(missed)
        return missed

    @abstractmethod
    def _move(self, missed: bool) -> None:
        """Set the next threshold."""


class AdaptiveConformal(_FollowsErrors):
    r"""Conformal sets whose level follows their errors, for any sequence of rows (ACI).

    .. math:: \alpha_{t+1} = \alpha_t + \gamma\,(\alpha - \text{err}_t)

    The set of row t is that of `SplitConformal` at level :math:`\alpha_t`: all labels if that is below 0, none if it is
    1 or above. For *every* sequence of T rows, also one chosen by an adversary,

    .. math:: \Big|\tfrac1T \textstyle\sum_t \text{err}_t - \alpha\Big|
              \le \frac{\max(\alpha_1, 1 - \alpha_1) + \gamma}{\gamma T}, \quad \alpha_1 = \alpha,

    if each true label is updated before the next row is predicted and is not absent (-inf). Nothing is promised about a
    single row, or about a few. Calibration scores stay those of ``fit``.

    Args:
        alpha: the share of rows whose true label may be missing, in (0, 1).
        step: :math:`\gamma`, above 0: larger ones follow a shift faster, and sets vary more.
        score: the conformity score.
        link, min_size: as in `SetRule`.

    Example:
        >>> from shortlist.sets import AdaptiveConformal
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> rule = AdaptiveConformal(0.4, step=0.1).fit(scores, torch.tensor([0, 0, 1, 0]), from_logits=False)
        >>> rule.update(torch.tensor([[0.5, 0.5], [0.9, 0.1]]), torch.tensor([0, 0]))
        tensor([ True, False])
        >>> rule.level  # 0.4, then 0.1 * (0.4 - 1) and 0.1 * 0.4 more
        tensor(0.3800, dtype=torch.float64)

    References:
        Gibbs, Candès, "Adaptive conformal inference under distribution shift", 2021.
    """

    other_shapes: ClassVar[tuple[str, ...]] = ("calibration",)
    level: Tensor
    calibration: Tensor

    def __init__(
        self,
        alpha: float,
        *,
        step: float = 0.005,
        score: ConformityScore = LAC(),
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        self.step = _check_step(step)
        super().__init__(alpha, score, link=link, min_size=min_size)

    def _clear(self) -> None:
        super()._clear()
        self.register_buffer("level", torch.tensor(0.0, dtype=torch.float64))
        self.register_buffer("calibration", torch.zeros(0, dtype=torch.float64))

    def _check_buffers(self, num_labels: int) -> None:
        super()._check_buffers(num_labels)
        if not len(self.calibration) or not (self.calibration[1:] >= self.calibration[:-1]).all():
            raise ValueError("`calibration` must be ascending, at least one number")
        if not -self.step <= float(self.level) <= 1 + self.step:
            raise ValueError("`level` must lie within one step of [0, 1]")

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        (true,) = observed
        self.calibration = true.double().sort().values
        self.level.fill_(self.alpha)
        self._set_threshold()
        achieved = missing_share(true, float(self.threshold))
        return {"constraint": "error along the stream", "wanted": self.alpha, "achieved": achieved}

    def _move(self, missed: bool) -> None:
        self.level += self.step * (self.alpha - missed)
        self._set_threshold()

    def _set_threshold(self) -> None:
        count = len(self.calibration)
        rank = conformal_rank(count, float(self.level))
        if rank > count:
            self.threshold.fill_(-torch.inf)
        elif rank <= 0:
            self.threshold.fill_(torch.inf)
        else:
            self.threshold.copy_(self.calibration[count - rank])


class OnlineConformal(_FollowsErrors):
    r"""Conformal sets whose threshold itself follows their errors, with steps that may become smaller.

    .. math:: t_{j+1} = t_j - \eta_j\,(\text{err}_j - \alpha), \quad \eta_j = \text{step} \cdot j^{-\text{decay}}

    For *every* sequence of T rows, if conformity lies in an interval of length B in which the first threshold is,

    .. math:: \Big|\tfrac1T \textstyle\sum_j \text{err}_j - \alpha\Big| \le \frac{B + \eta_1}{\eta_T T}.

    B is 1 for `LAC` with probabilities and for `APS` without penalty. If rows are exchangeable and ``decay`` is above
    1/2, the threshold converges to the best fixed one, unlike with steps that stay as they are (``decay=0``), which
    follow a shift faster. As for `AdaptiveConformal`, labels must be updated row by row, and not be absent.

    Args:
        alpha: the share of rows whose true label may be missing, in (0, 1).
        step: the first step, above 0, in units of conformity.
        decay: in [0, 1).
        score: the conformity score.
        link, min_size: as in `SetRule`.

    Example:
        >>> from shortlist.sets import OnlineConformal
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> rule = OnlineConformal(0.4, step=0.1).fit(scores, torch.tensor([0, 0, 1, 0]), from_logits=False)
        >>> _ = rule.update(torch.tensor([[0.5, 0.5]]), torch.tensor([0]))
        >>> rule.threshold  # 0.7 - 0.1 * (1 - 0.4)
        tensor(0.6400, dtype=torch.float64)

    References:
        Angelopoulos, Barber, Bates, "Online conformal prediction with decaying step sizes", 2024.
    """

    def __init__(
        self,
        alpha: float,
        *,
        step: float = 0.05,
        decay: float = 0.6,
        score: ConformityScore = LAC(),
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        self.step, self.decay = _check_step(step), _check_decay(decay)
        super().__init__(alpha, score, link=link, min_size=min_size)

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        (true,) = observed
        threshold, _ = conformal_threshold(true, self.alpha)
        present = true[true > -torch.inf]
        if not len(present):
            raise ValueError("`labels` must have a true label that is not absent.")
        # A threshold of -inf would never move.
        self.threshold.fill_(max(threshold, float(present.min())))
        achieved = missing_share(true, float(self.threshold))
        return {"constraint": "error along the stream", "wanted": self.alpha, "achieved": achieved}

    def _move(self, missed: bool) -> None:
        self.threshold -= self.step * int(self.steps) ** -self.decay * (missed - self.alpha)


class OnlineAverageK(SetRule):
    r"""Sets of ``k`` labels on average along a stream, by a threshold that follows their sizes; no labels needed.

    .. math:: t_{j+1} = t_j + \eta_j\,(|C_j| - k), \quad \eta_j = \text{step} \cdot j^{-\text{decay}}

    For *every* sequence of T rows, if scores lie in an interval of length B in which the first threshold is,

    .. math:: \Big|\tfrac1T \textstyle\sum_j |C_j| - k\Big| \le \frac{B + \eta_1 n}{\eta_T T}.

    B is 1 for probabilities. The first threshold is that of `AverageK`. Labels that tie at the threshold are inside.

    Args:
        k: average number of labels, a real number of at least 0.
        step: the first step, above 0, in units of scores.
        decay: in [0, 1); 0 follows a shift fastest.
        link, min_size: as in `SetRule`. ``min_size`` adds labels beyond the average.

    Example:
        >>> from shortlist.sets import OnlineAverageK
        >>> scores = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3]])
        >>> rule = OnlineAverageK(1.5, step=0.1).fit(scores, from_logits=False)
        >>> rule.update(torch.tensor([[0.4, 0.3, 0.3]]))
        tensor([3])
        >>> rule.threshold  # 0.3 + 0.1 * (3 - 1.5)
        tensor(0.4500, dtype=torch.float64)
    """

    needs_labels: ClassVar[bool] = False
    threshold_name: ClassVar[str | None] = "threshold"
    threshold: Tensor
    steps: Tensor
    answered: Tensor

    def __init__(
        self, k: float, *, step: float = 0.001, decay: float = 0.0, link: Link = "softmax", min_size: int = 0
    ) -> None:
        self.k = check_number("k", k, at_least=0.0)
        self.step, self.decay = _check_step(step), _check_decay(decay)
        super().__init__(link=link, min_size=min_size)

    def _clear(self) -> None:
        self.register_buffer("threshold", torch.tensor(torch.inf, dtype=torch.float64))
        for name in ("steps", "answered"):
            self.register_buffer(name, torch.tensor(0))
        self._counter: list[AverageK] = []  # a list, so that it is no part of this module

    def _check_buffers(self, num_labels: int) -> None:
        if not 0 <= int(self.answered) <= num_labels * int(self.steps):
            raise ValueError("`answered` must lie between 0 and the number of labels times `steps`")

    @property
    def average_size(self) -> float:
        """The average size of the sets of the stream so far."""
        return int(self.answered) / max(1, int(self.steps))

    @torch.no_grad()
    def update(self, scores: Numbers) -> Tensor:
        """Follow rows in the order in which they arrived.

        Args:
            scores: ``(B, n)``, as given to ``predict``.

        Returns:
            ``(B,)`` int64: the size of each set, with the threshold that preceded the row and without ``min_size``.
            These are the sets that ``predict`` returned if it was called anew after each row.
        """
        self._check_fitted()
        read = read_scores(scores)
        self._check_reading(read, bool(self.from_logits))
        source = self._read_scores(read)
        self._check_values(source)
        sizes = []
        for block in source.blocks(self._link_used, on_host=True):
            for row in block.marked():
                bound = self.threshold.cpu().to(row.dtype).clamp(min=torch.finfo(row.dtype).min)
                size = int((row >= bound).sum())
                self.steps += 1
                self.answered += size
                self.threshold += self.step * int(self.steps) ** -self.decay * (size - self.k)
                sizes.append(size)
        return torch.tensor(sizes, dtype=torch.int64)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        values = block.marked()
        self._counter = self._counter or [AverageK(self.k, rows=self._expected)]
        self._counter[0].partial_fit(values, from_logits=False)
        return values.amax(-1), values.masked_fill(values == -torch.inf, torch.inf).amin(-1)

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        highest, lowest = observed
        low, high = float(lowest.min()), float(highest.max())
        if low > high:
            raise ValueError("`scores` must have a label that is not absent.")
        counter, self._counter = self._counter[0].finish(), []
        # An infinite threshold would never move.
        self.threshold.fill_(min(max(float(counter.threshold), low), high))
        achieved = counter.evidence["achieved"]
        return {"constraint": "average size along the stream", "wanted": self.k, "achieved": achieved}


def _check_step(step: float) -> float:
    step = check_number("step", step, at_least=0.0)
    if step == 0:
        raise ValueError("`step` must be above 0; got 0.0.")
    return step


def _check_decay(decay: float) -> float:
    decay = check_number("decay", decay, at_least=0.0)
    if decay >= 1:
        raise ValueError(f"`decay` must lie in [0, 1); got {decay}.")
    return decay
