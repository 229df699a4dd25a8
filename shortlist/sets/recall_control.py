"""Conformal risk control: sets that miss at most a given share of the true labels on average."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.labels import Labels
from shortlist.sets.rule import SetRule, check_alpha, read_label_sets
from shortlist.sets.scores import Block, Link
from shortlist.tensors import as_written


class RecallControl(SetRule):
    r"""Sets with a bound on the expected share of missing true labels.

    .. math:: C(x) = \{l : s_l(x) \ge t\}, \quad t = \max\Big\{t : \tfrac{1}{N + 1} \Big(1 + \sum_i \big(1 -
              \tfrac{|Y_i \cap C_t(x_i)|}{|Y_i|}\big)\Big) \le \alpha\Big\}

    For exchangeable data :math:`E[1 - |Y \cap C| / |Y|] \le \alpha`. The threshold is exact, without a grid: the risk
    changes only at the scores of true labels. Rows without true labels have no recall and are left out.

    Args:
        alpha: the share of true labels that may be missing, in (0, 1).
        link, min_size: as in `SetRule`.

    Example:
        >>> scores = torch.tensor([[0.9, 0.8, 0.1], [0.2, 0.7, 0.6], [0.8, 0.1, 0.5]])
        >>> rule = RecallControl(0.5).fit(scores, torch.tensor([[0, 1], [1, 2], [0, -1]]), from_logits=False)
        >>> rule.predict(scores).sizes
        tensor([2, 0, 1])

    References:
        Angelopoulos, Bates, Fisch, Lei, Schuster, "Conformal risk control", 2024.
    """

    threshold_name: ClassVar[str | None] = "threshold"
    threshold: Tensor

    def __init__(self, alpha: float, *, link: Link = "sigmoid", min_size: int = 0) -> None:
        self.alpha = check_alpha(alpha)
        super().__init__(link=link, min_size=min_size)

    def _clear(self) -> None:
        self.register_buffer("threshold", torch.tensor(-torch.inf, dtype=torch.float64))

    def _read_labels(self, labels: Tensor, rows: int) -> Labels:
        return read_label_sets(labels, rows, self.num_labels)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        return block.at(*labels.pairs()), labels.counts

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        true, row_counts = observed
        counts, rows = row_counts.repeat_interleave(row_counts), int((row_counts > 0).sum())
        if not len(true):
            raise ValueError("`labels` must have at least one positive; without one, recall is undefined.")
        order = true.argsort()
        true, counts = true[order], counts[order]
        budget = as_written(self.alpha) * (rows + 1) - 1
        allowed = -1 if budget < 0 else _allowed(counts, budget)
        # The threshold is the score of the first true label that must not be missing. Labels that tie with it are
        # included.
        threshold = -torch.inf if allowed < 0 else float(true[min(allowed, len(true) - 1)])
        self.threshold.fill_(threshold)
        outside = (true < threshold) | (true == -torch.inf)
        lost = float((1.0 / counts[outside].double()).sum()) / rows
        return {"constraint": "average share of true labels missing", "wanted": self.alpha, "achieved": lost}


def _allowed(counts: Tensor, budget: Fraction) -> int:
    """How many labels, lowest score first, may be missing if each costs one over the number of labels in its row."""
    sums = (1.0 / counts.double()).cumsum(0)
    most = int((sums <= float(budget) * (1 + 1e-9) + 1e-9).sum())
    while most and _cost(counts[:most]) > budget:
        most -= 1
    return most


def _cost(counts: Tensor) -> Fraction:
    sizes, times = counts.unique(return_counts=True)
    return sum((Fraction(n, size) for size, n in zip(sizes.tolist(), times.tolist(), strict=True)), Fraction(0))
