"""Split conformal prediction: one threshold on any conformity score, with exact ties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.labels import LabelsLike, Numbers, read_scores, read_target
from shortlist.sets.conformal.conformity import APS, LAC, ConformityScore
from shortlist.sets.conformal.thresholds import check_shares, conformal_threshold, kept_with_ties, missing_share
from shortlist.sets.rule import Draw, SetRule, check_alpha, read_classes
from shortlist.sets.scores import Block, Link, Selection, select_where


class ConformalRule(SetRule):
    """Labels whose conformity reaches a calibrated threshold, so that the true one is missing at a rate of ``alpha``.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        score: the conformity score.
        link, min_size: as in `SetRule`.
    """

    def __init__(self, alpha: float, score: ConformityScore, *, link: Link, min_size: int) -> None:
        self.alpha = check_alpha(alpha)
        if not isinstance(score, ConformityScore):
            raise TypeError(f"`score` must be a ConformityScore such as APS(); got {score!r}.")
        self.score = score
        self.needs_probabilities = score.needs_probabilities
        super().__init__(link=link, min_size=min_size)

    @classmethod
    def _read_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        score = options.get("score")
        return options | {"score": ConformityScore.from_options(score)} if isinstance(score, Mapping) else options

    @torch.no_grad()
    def true_conformity(self, scores: Numbers, labels: LabelsLike) -> Tensor:
        """The conformity of the true label of each row, ``(rows,)``; -inf if it is absent.

        Args:
            scores: ``(rows, n)``, as in ``predict``.
            labels: the true class of each row.
        """
        self._check_fitted()
        read = read_scores(scores)
        self._check_reading(read, bool(self.from_logits))
        source = self._read_scores(read)
        self._check_values(source)
        classes = read_classes(read_target(labels, read.shape[1], name="labels").cpu(), len(read), self.num_labels)
        found, start = [torch.zeros(0, dtype=self.precision)], 0
        for block in source.blocks(self._link_used, on_host=True):
            stop = start + len(block.values)
            found.append(self._true_conformity(block, classes[start:stop]))
            start = stop
        return torch.cat(found[1:] or found)

    def _cut(self, block: Block | None) -> tuple[Tensor, Tensor]:
        """The threshold, and the share of labels at it to keep; tensors that broadcast against the block.

        With ``None`` they must not depend on the row.
        """
        raise NotImplementedError

    def _threshold(self) -> Tensor | None:
        return super()._threshold() if isinstance(self.score, LAC) else None

    def _read_labels(self, labels: Tensor, rows: int) -> Any:
        return read_classes(labels, rows, self.num_labels)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        return (self._true_conformity(block, labels),)

    def _true_conformity(self, block: Block, labels: Tensor) -> Tensor:
        """Of the one true label of each row; an absent one is in no set, so it must conform less than any other."""
        values = self._true_scores(block, labels)
        if isinstance(self.score, LAC):
            return values
        classes = labels.to(values.device).clamp(0, block.values.shape[-1] - 1)
        return torch.where(values == -torch.inf, -torch.inf, self.score.of_labels(block, classes))

    def _select(self, block: Block, draw: Draw | None) -> Tensor:
        if self._threshold() is not None:
            return super()._select(block, draw)  # in one pass
        present, marks = block.scores > -torch.inf, self._marks(block)
        if marks is not None:
            return (marks > 0) & present
        conformity = self.score(block)
        return (conformity >= self._cut(block)[0].to(conformity)) & present

    def _marks(self, block: Block) -> Tensor | None:
        """The labels that reach the threshold, by `ConformityScore.reaching`."""
        threshold = self._cut(block)[0]
        if threshold.ndim == 1 or torch.compiler.is_compiling():  # by label, or a graph for any number of rows
            return None
        return self.score.reaching(block, threshold.reshape(-1).expand(len(block.values)))

    def _select_entries(self, block: Block, draw: Draw) -> Selection:
        threshold, share = self._cut(block)
        marks = self._marks(block)
        if marks is None:
            conformity = self.score(block)
            cut = threshold.to(conformity).expand_as(conformity)
            found = select_where(conformity >= cut, block)
            tied = (conformity[found.rows, found.labels] == cut[found.rows, found.labels]).cpu()
        else:
            found = select_where(marks, block)
            tied = marks[found.rows, found.labels] == 2
        present = (block.scores[found.rows, found.labels] > -torch.inf).cpu()
        if not present.all():
            found, tied = found.where(present), tied[present]
        kept = kept_with_ties(
            tied, share.expand(block.values.shape)[found.rows, found.labels] if share.ndim else share, draw
        )
        return found if kept is None else found.where(kept)

    def _kept(self, found: Selection, draw: Draw) -> Tensor | None:
        threshold, share = (part[found.labels] if part.ndim else part for part in self._cut(None))
        return kept_with_ties(found.values == threshold.to(found.values.dtype), share, draw)


class LabelThresholds(ConformalRule):
    """A conformal threshold for each label."""

    threshold_name: ClassVar[str | None] = "thresholds"
    thresholds: Tensor
    tie_shares: Tensor

    def _clear(self) -> None:
        self.register_buffer("thresholds", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("tie_shares", torch.zeros(0, dtype=torch.float64))

    def _check_buffers(self, num_labels: int) -> None:
        check_shares("tie_shares", self.tie_shares)

    def _cut(self, block: Block | None) -> tuple[Tensor, Tensor]:
        return self.thresholds, self.tie_shares

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        return (*super()._observe(block, labels), labels)

    def _worst_error(self, true: Tensor, classes: Tensor, *rest: Tensor) -> float:
        """The largest share, over all classes, of calibration rows whose true label is missing."""
        missed = self._missed(true, classes, *rest).double()
        rates = torch.zeros_like(self.thresholds).index_add(0, classes, missed)
        return float((rates / torch.bincount(classes, minlength=len(rates)).clamp(min=1)).max())

    def _missed(self, true: Tensor, classes: Tensor, *rest: Tensor) -> Tensor:
        """Mask of the calibration rows whose true label is missing."""
        return (true < self.thresholds[classes]) | (true == -torch.inf)


class SingleThreshold(SetRule):
    """One threshold, at the rank that bounds the miscoverage by ``alpha``, and the share of its ties to keep."""

    constraint: ClassVar[str] = "average error"
    alpha: float
    threshold: Tensor
    tie_share: Tensor

    def _clear(self) -> None:
        self.register_buffer("threshold", torch.tensor(-torch.inf, dtype=torch.float64))
        self.register_buffer("tie_share", torch.tensor(1.0, dtype=torch.float64))

    def _check_buffers(self, num_labels: int) -> None:
        check_shares("tie_share", self.tie_share)

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        (true,) = observed
        threshold, share = conformal_threshold(true, self.alpha)
        self.threshold.fill_(threshold)
        self.tie_share.fill_(share)
        return {"constraint": self.constraint, "wanted": self.alpha, "achieved": missing_share(true, threshold)}


class SplitConformal(SingleThreshold, ConformalRule):
    r"""Split conformal prediction with a conformity score of your choice.

    .. math:: C(x) = \{l : s_l(x) \ge t\}, \quad
              t = \text{the } \lceil (N+1)(1-\alpha) \rceil \text{-th largest } s_{y_i}(x_i)

    For exchangeable data, the set contains the true label with probability between :math:`1 - \alpha` and :math:`1 -
    \alpha + 1 / (N + 1)`, for any model, any score and any pattern of ties: ties at the threshold are broken at random,
    with the exact probability.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        score: the conformity score: `LAC`, `APS`, `SAPS`, `Margin`, `Entropy`, or one of your own.
        link, min_size: as in `SetRule`. Randomized sets may be empty; ``min_size=1`` prevents that.

    Example:
        >>> from shortlist.sets import SAPS, SplitConformal
        >>> scores = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.5, 0.2, 0.3]])
        >>> rule = SplitConformal(0.5, score=SAPS(0.1, randomized=False))
        >>> rule = rule.fit(scores, torch.tensor([0, 1, 2]), from_logits=False)
        >>> rule.predict(torch.tensor([[0.55, 0.3, 0.15], [0.42, 0.33, 0.25]])).sizes
        tensor([1, 2])

    References:
        Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005.
    """

    threshold_name: ClassVar[str | None] = "threshold"

    def __init__(self, alpha: float, *, score: ConformityScore, link: Link = "softmax", min_size: int = 0) -> None:
        super().__init__(alpha, score, link=link, min_size=min_size)

    def _cut(self, block: Block | None) -> tuple[Tensor, Tensor]:
        return self.threshold, self.tie_share


class AverageError(SplitConformal):
    r"""Split conformal prediction: all labels that score at least as high as most true labels.

    .. math:: C(x) = \{l : s_l(x) \ge t\}, \quad
              t = \text{the } \lceil (N+1)(1-\alpha) \rceil \text{-th largest } s_{y_i}(x_i)

    For exchangeable data, the set contains the true label with probability between :math:`1 - \alpha` and :math:`1 -
    \alpha + 1 / (N + 1)`, for any model and any pattern of ties: ties at the threshold are broken at random, with the
    exact probability. If the scores are the true probabilities, no rule with this guarantee has smaller sets on
    average.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
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

    def __init__(self, alpha: float, *, link: Link = "softmax", min_size: int = 0) -> None:
        super().__init__(alpha, score=LAC(), link=link, min_size=min_size)


class PointwiseError(SplitConformal):
    r"""Adaptive prediction sets: the best labels until their probabilities sum to a calibrated level (APS, RAPS).

    .. math:: S_l(x) = \sum_{j : \text{before } l} p_j + U p_l + \eta\,(\text{rank}_l - \text{free})_+, \quad
              C(x) = \{l : S_l(x) \le q\}

    With the true probabilities and q = 1 - alpha, the set of *every* example contains its true label with probability 1
    - alpha. The calibrated q guarantees this on average, for any model. U is one uniform number per row, a hash of its
    scores as given, so the same row always gets the same set: from ``predict``, the module and an exported graph.
    Without randomization U is 1, which makes sets larger.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        randomized: whether to use U.
        penalty: :math:`\eta`, per label beyond ``free``: smaller sets on hard examples (RAPS).
        free: number of labels without penalty.
        link, min_size: as in `SetRule`. Randomized sets may be empty; ``min_size=1`` prevents that.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.5, 0.2, 0.3]])
        >>> rule = PointwiseError(0.4, randomized=False).fit(scores, torch.tensor([0, 1, 2]), from_logits=False)
        >>> rule.predict(torch.tensor([[0.6, 0.3, 0.1], [0.4, 0.35, 0.25]])).sizes
        tensor([1, 2])

    References:
        Romano, Sesia, Candès, "Classification with valid and adaptive coverage", 2020; Angelopoulos, Bates, Malik,
        Jordan, "Uncertainty sets for image classifiers using conformal prediction", 2021.
    """

    constraint: ClassVar[str] = "average error, with the mass of each answer"

    def __init__(
        self,
        alpha: float,
        *,
        randomized: bool = True,
        penalty: float = 0.0,
        free: int = 0,
        link: Link = "softmax",
        min_size: int = 0,
    ) -> None:
        score = APS(penalty, free, randomized)
        self.randomized, self.penalty, self.free = score.randomized, score.penalty, score.free
        super().__init__(alpha, score=score, link=link, min_size=min_size)
