"""Selective answers: as many answers as a bound on their error allows."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from shortlist.labels import Labels
from shortlist.sets.rejection.binomial import binomial_cdf, upper_bound
from shortlist.sets.rejection.rejecting_rule import RejectingRule
from shortlist.sets.rule import SetRule, read_label_sets
from shortlist.sets.scores import Block, Link
from shortlist.tensors import check_number

Confidence = Literal["best", "margin"]

_MOST_TESTS = 20


class SelectiveAnswers(RejectingRule):
    r"""Answers the most confident rows, with a bound on the error of the answers given.

    With probability at least :math:`1 - \delta` over the held-out rows,

    .. math:: P(\text{the set misses a true label} \mid \text{it is given}) \le \varepsilon

    for new rows like the held-out ones. Among 20 numbers of answers, at equal distances and fixed before labels are
    read, it chooses the largest m whose k errors are few enough: :math:`P(\text{Bin}(m, \varepsilon) \le k) \le \delta
    / 20`, the exact bound of Clopper and Pearson with a union bound. A row is answered if its confidence exceeds that
    of the first held-out row that is not, so ties are answered together. If no number of answers passes, it abstains
    from every row.

    The error is that of a set: a set without one of the row's true labels is wrong. ``rule`` must be fitted on other
    rows than those that this rule is fitted on.

    Args:
        max_error: :math:`\varepsilon`, in (0, 1): how often an answer that is given may be wrong.
        rule: whose sets are given; None for the best label.
        delta: in (0, 1): how often the bound may fail, over draws of the held-out rows.
        confidence: ``"best"``, the best score of a row after the link, or ``"margin"``, its distance to the second.
        link: as in `SetRule`; that of ``rule`` by default.

    Example:
        >>> scores = torch.cat([torch.tensor([[0.9, 0.1]]).repeat(200, 1), torch.tensor([[0.6, 0.4]]).repeat(200, 1)])
        >>> labels = torch.tensor([0] * 200 + [0, 1] * 100)  # always right at 0.9, half the time at 0.6
        >>> rule = SelectiveAnswers(0.05).fit(scores, labels, from_logits=False)
        >>> sets = rule.predict(torch.tensor([[0.8, 0.2], [0.55, 0.45]]))
        >>> sets.to_list(), sets.abstained
        ([[0], []], tensor([False,  True]))
        >>> rule.evidence["answered"], round(rule.evidence["bound"], 3)
        (0.5, 0.03)

    References:
        Geifman, El-Yaniv, "Selective classification for deep neural networks", 2017 (they search for the number of
        answers by bisection); Clopper, Pearson, 1934.
    """

    def __init__(
        self,
        max_error: float,
        *,
        rule: SetRule | None = None,
        delta: float = 0.05,
        confidence: Confidence = "best",
        link: Link | None = None,
    ) -> None:
        self.max_error, self.delta = (
            check_share(name, share) for name, share in (("max_error", max_error), ("delta", delta))
        )
        if confidence not in ("best", "margin"):
            raise ValueError(f'`confidence` must be "best" or "margin"; got {confidence!r}.')
        self.confidence: Confidence = confidence
        super().__init__(rule, link=link)

    def _read_labels(self, labels: Tensor, rows: int) -> Labels:
        return read_label_sets(labels, rows, self.num_labels)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        rows, at = labels.pairs()
        answer = self._answer(block)
        missing = ~answer[rows.to(answer.device), at.to(answer.device)].cpu()
        wrong = torch.zeros(len(block.values), dtype=torch.int64).index_add(0, rows, missing.long()) > 0
        return self._confidence(block), wrong

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        confidence, wrong = observed
        order = confidence.argsort(descending=True)
        confidence, errors = confidence[order].double(), wrong[order].long().cumsum(0)
        sizes = sizes_to_test(len(wrong), self.max_error, self.delta)
        answered, bound = 0, 1.0
        for size in sizes:
            threshold = float(confidence[size]) if size < len(wrong) else -math.inf
            count = int((confidence > threshold).sum())
            failed = int(errors[count - 1]) if count else 0
            if count and binomial_cdf(failed, count, self.max_error) <= self.delta / len(sizes):
                answered, bound = count, upper_bound(failed, count, self.delta / len(sizes))
                self.threshold.fill_(threshold)
                break
        return {
            "constraint": "error of the answers given",
            "wanted": self.max_error,
            "achieved": int(errors[answered - 1]) / answered if answered else 0.0,
            "bound": bound if answered else 0.0,
            "answered": answered / len(wrong),
        }

    def _answered(self, block: Block) -> Tensor:
        return self._confidence(block).double() > self.threshold.to(block.values.device)

    def _confidence(self, block: Block) -> Tensor:
        if self.confidence == "best" or block.scores.shape[-1] == 1:
            return block.values.amax(-1).masked_fill(block.scores.amax(-1) == -torch.inf, -torch.inf)
        values = block.marked()
        best = values.topk(2, dim=-1).values
        # With one label left, the second has probability 0.
        margin = best[..., 0] - best[..., 1].clamp(min=0.0 if self._link_used else torch.finfo(values.dtype).min)
        return torch.where(best[..., 0] == -torch.inf, -torch.inf, margin)


def sizes_to_test(rows: int, max_error: float, delta: float) -> list[int]:
    """Numbers of answers to test, largest first, at equal distances: at most 20, none too small to pass.

    Example:
        >>> sizes_to_test(200, 0.1, 0.05)[:3], sizes_to_test(200, 0.1, 0.05)[-1], sizes_to_test(30, 0.1, 0.05)
        ([200, 192, 185], 57, [])
    """
    least = math.ceil(math.log(delta / _MOST_TESTS) / math.log1p(-max_error))
    if rows < least:
        return []
    steps = min(_MOST_TESTS, rows - least + 1)
    return sorted({rows - round((rows - least) * step / max(steps - 1, 1)) for step in range(steps)}, reverse=True)


def check_share(name: str, value: float) -> float:
    """A number strictly between 0 and 1."""
    if not 0 < check_number(name, value) < 1:
        raise ValueError(f"`{name}` must lie strictly between 0 and 1; got {value}.")
    return float(value)
