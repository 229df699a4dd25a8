"""Sets of exactly k labels."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

from torch import Tensor

from shortlist.sets.rule import Draw, SetRule
from shortlist.sets.scores import Block, Link, Scores, Selection, top_mask


class TopK(SetRule):
    """Every set has exactly ``k`` labels: those with the largest scores.

    Ties are broken by ascending label. Fitting only records the number of labels and whether scores are logits. Scores
    may be a ``DTensor`` sharded along the labels: processes exchange their k best labels, all get the same sets, and
    ``forward`` returns a mask with the same sharding.

    Args:
        k: number of labels, at least 1.
        link, min_size: as in `SetRule`.

    Example:
        >>> rule = TopK(2).fit(torch.tensor([[0.1, 0.7, 0.2]]), from_logits=False)
        >>> [label for label, _ in rule.predict(torch.tensor([[0.5, 0.1, 0.4]]))[0]]
        [0, 2]
    """

    needs_labels: ClassVar[bool] = False
    takes_shards: ClassVar[bool] = True

    def __init__(self, k: int, *, link: Link = "softmax", min_size: int = 0) -> None:
        if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
            raise ValueError(f"`k` must be an integer, at least 1; got {k!r}.")
        self.k = int(k)
        super().__init__(link=link, min_size=min_size)

    def _check_labels_count(self, num_labels: int) -> None:
        super()._check_labels_count(num_labels)
        if self.k > num_labels:
            raise ValueError(f"`k` must be at most the number of labels, {num_labels}; got {self.k}.")

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        return ()

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        return {"constraint": "size", "wanted": self.k, "achieved": self.k}

    def _select(self, block: Block, draw: Draw | None) -> Tensor:
        # The order is that of the scores, among which absent labels are marked.
        return top_mask(block.scores, self.k)

    def _select_local(self, block: Block, scores: Scores, draw: Draw) -> Selection:
        return scores.only_local(self._select_all(block, scores, draw))

    def _select_all(self, block: Block, scores: Scores, draw: Draw) -> Selection:
        return scores.top(block, max(self.k, self.min_size))
