"""Annotations that are probably wrong, worst first."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from shortlist.extras import MissingExtraError

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """Annotations to look at again, the least credible first.

    Attributes:
        rows: ``(m,)`` int64.
        labels: ``(m,)`` int64, the label that the row has, or lacks if it is ``missing``.
        missing: ``(m,)`` bool: the label is probably true but was not given. False: it was given and is probably wrong.
        suggested: ``(m,)`` int64, the class to put in place of a wrong one; -1 if there is nothing to put.
        quality: ``(m,)`` float64 in [0, 1], how credible the annotation is.
        expected_wrong: ``(n,)`` float64, how many rows with the label probably should not have it.
        expected_missing: ``(n,)`` float64, how many rows without the label probably should.
        names: of the labels, or None.

    Example:
        >>> none = torch.zeros(3, dtype=torch.float64)
        >>> LabelIssues(*(torch.zeros(0, dtype=torch.int64) for _ in range(5)), none, none)
        <LabelIssues: 0 probably wrong, 0 probably missing>
    """

    rows: Tensor
    labels: Tensor
    missing: Tensor
    suggested: Tensor
    quality: Tensor
    expected_wrong: Tensor
    expected_missing: Tensor
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        """The number of annotations."""
        return len(self.rows)

    def __repr__(self) -> str:
        missing = int(self.missing.sum())
        return f"<LabelIssues: {len(self) - missing} probably wrong, {missing} probably missing>"

    def to_list(self) -> list[dict[str, Any]]:
        """One record per annotation, with the names of labels if there are any."""
        name = (lambda label: label) if self.names is None else self.names.__getitem__
        return [
            {
                "row": row,
                "label": name(label),
                "issue": "missing" if missing else "wrong",
                "suggested": name(suggested) if suggested >= 0 else None,
                "quality": quality,
            }
            for row, label, missing, suggested, quality in zip(
                self.rows.tolist(),
                self.labels.tolist(),
                self.missing.tolist(),
                self.suggested.tolist(),
                self.quality.tolist(),
                strict=True,
            )
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """The records of `to_list` as a table of pandas, which must be installed."""
        try:
            frame = importlib.import_module("pandas").DataFrame
        except ModuleNotFoundError as error:
            raise MissingExtraError("`pandas` is not installed: run `pip install pandas`.", name="pandas") from error
        return frame(self.to_list(), columns=["row", "label", "issue", "suggested", "quality"])


def check_names(names: Sequence[str] | None, num_labels: int) -> tuple[str, ...] | None:
    """The names of the labels, checked to be one for each."""
    if names is not None and len(names) != num_labels:
        raise ValueError(f"`names` must have one entry per label, {num_labels}; got {len(names)}.")
    return None if names is None else tuple(names)


def mean_with_prior(sums: Tensor, counts: Tensor, *, prior: float) -> Tensor:
    """The mean of each label, drawn towards that of all labels as if it had ``prior`` more entries with that mean."""
    pooled = sums.sum() / counts.sum().clamp(min=1)
    return (sums + prior * pooled) / (counts + prior).clamp(min=1e-300)
