"""Conformal sets with a threshold for each group of rows (Mondrian conformal prediction)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, ClassVar

import torch
from torch import Tensor

from shortlist.labels import Numbers, read_numbers
from shortlist.sets.conformal.conformity import LAC, ConformityScore
from shortlist.sets.conformal.split import ConformalRule
from shortlist.sets.conformal.thresholds import check_shares, conformal_threshold, members
from shortlist.sets.scores import Block, Link

Groups = Numbers | Sequence[str]

_HASH_BITS = (1 << 63) - 1


class GroupConditional(ConformalRule):
    r"""A conformal threshold for each group of rows, so that no group has more errors than promised.

    .. math:: C(x) = \{l : s_l(x) \ge t_{g(x)}\}

    with the threshold of `AverageError`, fitted on the calibration rows of group g alone. For rows that are
    exchangeable within their group, the set contains the true label with probability between :math:`1 - \alpha` and
    :math:`1 - \alpha + 1 / (N_g + 1)` in *every* group, and the groups may become more or less frequent. Groups are
    known when predicting: a hospital, a camera, a language, a bin of the largest score; not the label, for which there
    is `ClassConditional`. A group with fewer than 1 / alpha - 1 calibration rows gets all labels.

    ``fit`` and ``predict`` take ``groups``, an integer or a name for each row; of a name, the rule keeps a hash.

    Args:
        alpha: miscoverage level, in (0, 1): how often the true label may be missing.
        score: the conformity score.
        link, min_size: as in `SetRule`.

    Example:
        >>> from shortlist.sets import GroupConditional
        >>> scores = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> rule = GroupConditional(0.4)
        >>> _ = rule.fit(scores, torch.tensor([0, 0, 0, 0]), from_logits=False, groups=torch.tensor([7, 7, 8, 8]))
        >>> rule.predict(torch.tensor([[0.5, 0.4], [0.5, 0.4]]), groups=torch.tensor([7, 8])).sizes
        tensor([0, 2])

    References:
        Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005, section 4.5.
    """

    row_option: ClassVar[str | None] = "groups"
    other_shapes: ClassVar[tuple[str, ...]] = ("group_ids", "thresholds", "tie_shares")
    group_ids: Tensor
    thresholds: Tensor
    tie_shares: Tensor

    def __init__(
        self, alpha: float, *, score: ConformityScore = LAC(), link: Link = "softmax", min_size: int = 0
    ) -> None:
        super().__init__(alpha, score, link=link, min_size=min_size)

    def forward(self, scores: Numbers, groups: Numbers | None = None) -> Tensor:
        """Bool mask of the shape of ``scores``, deterministic; rows of unknown groups get all labels."""
        self._check_given(groups)
        per_row = None if groups is None else read_numbers(groups, name="groups").reshape(-1).long()
        return self._mask(scores, per_row)

    @property
    def row_argument(self) -> str | None:
        """``"groups"`` if the rule was fitted with several."""
        return "groups" if len(self.group_ids) > 1 else None

    def _read_rows(self, given: Any, count: int) -> Tensor:
        if self.fitted:
            self._check_given(given)
        read = _read_groups(given, count)
        unseen = (~torch.isin(read, self.group_ids.cpu())).nonzero()[:1, 0].tolist() if self.fitted else []
        if unseen:
            row, group = unseen[0], _as_given(given, unseen[0])
            raise ValueError(
                f"`groups` must be among those of the fit; row {row} has {group}, which had no calibration row."
            )
        return read

    def _check_given(self, groups: Numbers | None) -> None:
        if groups is None and self.row_argument is not None:
            raise ValueError("`groups` must be given, as in `fit`.")

    def _clear(self) -> None:
        for name, dtype in (("group_ids", torch.int64), ("thresholds", torch.float64), ("tie_shares", torch.float64)):
            self.register_buffer(name, torch.zeros(0, dtype=dtype))

    def _check_buffers(self, num_labels: int) -> None:
        check_shares("tie_shares", self.tie_shares)
        sizes = {len(self.group_ids), len(self.thresholds), len(self.tie_shares)}
        if len(sizes) > 1 or 0 in sizes or not (self.group_ids.diff() > 0).all():
            raise ValueError("`group_ids` must be ascending, with one of `thresholds` and `tie_shares` for each")

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        (true,) = super()._observe(block, labels)
        return true, torch.zeros(len(true), dtype=torch.int64) if block.rows is None else block.rows

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        true, groups = observed
        self.group_ids, place = groups.unique(return_inverse=True)
        cuts = [conformal_threshold(true[own], self.alpha) for own in members(place).values()]
        self.thresholds, self.tie_shares = (torch.tensor(part, dtype=torch.float64) for part in zip(*cuts, strict=True))
        missed = ((true < self.thresholds[place]) | (true == -torch.inf)).double()
        worst = torch.zeros(len(cuts), dtype=torch.float64).index_add(0, place, missed) / torch.bincount(place)
        achieved = {"achieved": float(worst.max()), "groups": len(cuts)}
        return {"constraint": "error of each group", "wanted": self.alpha} | achieved

    def _threshold(self) -> None:
        return None

    def _cut(self, block: Block | None) -> tuple[Tensor, Tensor]:
        if block is None:
            raise NotImplementedError
        # Not by the number of rows, which would fix it in an exported graph.
        groups = torch.zeros_like(block.scores[:, 0]).long() if block.rows is None else block.rows
        own = groups.to(self.group_ids.device)[:, None] == self.group_ids
        known, place = own.any(-1), own.long().argmax(-1)
        threshold = torch.where(known, self.thresholds[place], -torch.inf)
        return threshold[:, None], self.tie_shares[place][:, None]


def _read_groups(groups: Groups | None, rows: int) -> Tensor:
    """``(rows,)`` int64 on the CPU; names as a part of their hash, so that the rule need not keep them."""
    if groups is None:
        return torch.zeros(rows, dtype=torch.int64)
    given: Any = groups
    if not isinstance(given, Tensor):
        listed = list(given)
        if listed and all(isinstance(each, str) for each in listed):
            hashes = (blake2b(each.encode(), digest_size=8).digest() for each in listed)
            given = [_HASH_BITS & int.from_bytes(each, "big") for each in hashes]
    read = read_numbers(given, name="groups").cpu()
    if read.shape != (rows,) or read.is_floating_point() or read.is_complex():
        raise ValueError(
            f"`groups` must have one integer or name per row of scores, {rows}; got {read.dtype} {tuple(read.shape)}."
        )
    return read.long()


def _as_given(groups: Any, row: int) -> str:
    """The group of a row for an error: a name in quotes, or a number."""
    group = 0 if groups is None else list(groups)[row]
    return repr(group) if isinstance(group, str) else str(int(group))
