"""What the conformal rules with one threshold share."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.sets.conformal import conformal_threshold, missing_share
from shortlist.sets.row_labels import read_classes
from shortlist.sets.rule import Link, SetRule, check_alpha


class ConformalRule(SetRule):
    """One threshold on how well a label conforms, at the rank that makes the true label missing at rate ``alpha``."""

    constraint: ClassVar[str]
    threshold: Tensor
    tie_share: Tensor

    def __init__(self, alpha: float, *, link: Link, min_size: int) -> None:
        self.alpha = check_alpha(alpha)
        super().__init__(link=link, min_size=min_size)

    def _clear(self) -> None:
        self.register_buffer("threshold", torch.tensor(-torch.inf, dtype=torch.float64))
        self.register_buffer("tie_share", torch.tensor(1.0, dtype=torch.float64))
        self._true: list[Tensor] = []

    def _read_labels(self, labels: Tensor, rows: int) -> Tensor:
        return read_classes(labels, rows, self.num_labels)

    def _settle(self) -> dict[str, Any]:
        true = torch.cat(self._true)
        threshold, share = conformal_threshold(true, self.alpha)
        self.threshold.fill_(threshold)
        self.tie_share.fill_(share)
        return {"constraint": self.constraint, "wanted": self.alpha, "achieved": missing_share(true, threshold)}

    def _forget(self) -> None:
        self._true = []
