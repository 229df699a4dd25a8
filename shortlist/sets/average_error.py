"""Sets that miss the true label at a given rate on average."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from shortlist.sets.conformal import kept_with_ties, reaching
from shortlist.sets.conformal_rule import ConformalRule
from shortlist.sets.entries import Entries
from shortlist.sets.rule import Draw, Link


class AverageError(ConformalRule):
    r"""Split conformal prediction: all labels whose score reaches that of most true labels.

    .. math:: C(x) = \{l : s_l(x) \ge t\}, \quad
              t = \text{the } \lceil (N+1)(1-\alpha) \rceil \text{-th largest } s_{y_i}(x_i)

    For exchangeable data the true label is inside with probability between :math:`1 - \alpha` and
    :math:`1 - \alpha + 1 / (N + 1)`, whatever the model and however its scores tie: ties at the threshold are
    decided at random, with the exact probability. Among rules with that guarantee, and for scores that are the true
    probabilities, the sets are the smallest on average.

    Args:
        alpha: how often the true label may be missing, in (0, 1).
        link, min_size: as in `SetRule`.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> rule = AverageError(0.2).fit(scores, torch.tensor([0, 0, 1, 0]), from_logits=False)
        >>> rule.predict(torch.tensor([[0.5, 0.7]])).sizes
        tensor([1])

    References:
        Sadinle, Lei, Wasserman, "Least ambiguous set-valued classifiers with bounded error levels", 2019; Vovk,
        Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005.
    """

    constraint: ClassVar[str] = "average error"

    def __init__(self, alpha: float, *, link: Link = "softmax", min_size: int = 0) -> None:
        super().__init__(alpha, link=link, min_size=min_size)

    def options(self) -> dict[str, Any]:
        return {"alpha": self.alpha}

    def _observe(self, values: Tensor, labels: Any) -> None:
        self._true.append(values.gather(1, labels[:, None])[:, 0])

    def _select(self, values: Tensor, draw: Draw | None) -> Tensor:
        return reaching(values, self.threshold.to(values.dtype))

    def _floor(self) -> Tensor:
        return self.threshold

    def _kept(self, found: Entries, draw: Draw) -> Tensor:
        return kept_with_ties(found.values, self.threshold.to(found.values.dtype), self.tie_share, draw)
