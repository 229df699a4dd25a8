"""What the sets of a rule hold on labelled rows, and how that is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist.cli.row_progress import watched_blocks
from shortlist.cli.scores_file import Scores
from shortlist.cli.true_labels import labels_of
from shortlist.data.summary.tally import Tally
from shortlist.formatting import format_count, format_percent
from shortlist.sets import SetRule

_MOST_BINS = 10


class SetFigures(NamedTuple):
    """Size and content of sets.

    Attributes:
        sizes: how often each size occurred.
        one_class: whether rows have one true class; None without labels.
        coverage: share of the true labels of a row that are inside, averaged over rows that have some: for one class,
            how often it is inside; for sets, recall. None without labels.
        macro_coverage: averaged over the classes that occur; for one class only.
        smallest_coverage: the smallest coverage among groups of sets of similar size; empty sets are one of them.
        micro_f1, macro_f1: of the sets as answers, for sets of labels only.
        rows_without_labels: rows that no coverage speaks of.
    """

    sizes: Tally
    one_class: bool | None = None
    coverage: float | None = None
    macro_coverage: float | None = None
    smallest_coverage: float | None = None
    micro_f1: float | None = None
    macro_f1: float | None = None
    rows_without_labels: int = 0

    @property
    def empty(self) -> int:
        """How many sets have no label."""
        return dict(zip(self.sizes.values, self.sizes.times, strict=True)).get(0, 0)

    def to_json(self) -> dict[str, Any]:
        """Numbers by name; what does not apply is left out."""
        sizes = {str(size): times for size, times in zip(self.sizes.values, self.sizes.times, strict=True)}
        content: dict[str, Any] = {
            "average_size": self.sizes.mean,
            "median_size": self.sizes.median,
            "largest_size": self.sizes.maximum,
            "empty": self.empty,
            "sizes": sizes,
        }
        if self.one_class is not None:
            name = "coverage" if self.one_class else "recall"
            content[name] = number(self.coverage)
            content["error"] = None if self.coverage is None else number(1 - self.coverage)
            content["smallest_coverage_by_size"] = number(self.smallest_coverage)
            content["rows_without_labels"] = self.rows_without_labels
            if self.one_class:
                content["macro_coverage"] = number(self.macro_coverage)
            else:
                content |= {"micro_f1": number(self.micro_f1), "macro_f1": number(self.macro_f1)}
        return content

    def lines(self) -> Iterator[tuple[str, str]]:
        """Name and text of each figure, for people."""
        sizes = self.sizes
        text = f"{sizes.mean:.4g} labels on average, median {sizes.median:g}, {sizes.minimum:,} to {sizes.maximum:,}"
        yield "set size", text
        yield "empty sets", f"{self.empty:,} ({format_percent(self.empty / sizes.members)})" if self.empty else "none"
        if self.coverage is None:
            return
        if self.one_class:
            missing = format_percent(1 - self.coverage)
            yield "coverage", f"{format_percent(self.coverage)} of rows have their true label inside (error {missing})"
            if self.macro_coverage is not None:
                yield "by class", f"{format_percent(self.macro_coverage)} on average over classes"
        else:
            missing = format_percent(1 - self.coverage)
            yield (
                "recall",
                f"{format_percent(self.coverage)} of the true labels of a row are inside ({missing} missing)",
            )
            if self.micro_f1 is not None and self.macro_f1 is not None:
                yield "F1", f"micro {format_percent(self.micro_f1)}, macro {format_percent(self.macro_f1)}"
        if self.rows_without_labels:
            yield "left out", f"{format_count(self.rows_without_labels, 'row')} without a true label"

    def bins(self) -> list[tuple[str, int]]:
        """Ranges of sizes, and how many sets are in each."""
        return [
            (f"{low:,}" if low == high else f"{low:,}-{high:,}", times)
            for low, high, times in self.sizes.bins(_MOST_BINS)
        ]


def measure_sets(
    rule: SetRule, scores: Scores, target: Tensor | None, *, seed: int, about: str = "measuring sets"
) -> SetFigures:
    """Predict all rows in blocks and measure the sets, with the metrics of the library.

    Args:
        rule: fitted.
        scores: what it predicts from.
        target: the true labels of the rows in a form of ``shortlist.targets``, or None.
        seed: of the chance that decides ties at a conformal threshold.
        about: for the bar.
    """
    from shortlist.metrics import MacroF1, MicroF1, SetCoverage, SetSize, SizeStratifiedCoverage

    n = scores.num_labels
    size, coverage, stratified = SetSize(n), SetCoverage(), SizeStratifiedCoverage()
    one_class = None if target is None else target.ndim == 1
    by_class = SetCoverage(average="macro", num_labels=n)
    f1 = (MicroF1(threshold=0.5), MacroF1(n, threshold=0.5))
    generator = torch.Generator().manual_seed(seed)
    with watched_blocks(scores, about) as blocks:
        for block in blocks:
            sets = rule.predict(block.scores, generator=generator)
            size.update(sets)
            if target is None:
                continue
            labels = labels_of(target, block)
            coverage.update(sets, labels)
            stratified.update(sets, labels)
            if one_class:
                by_class.update(sets, labels)
            else:
                # As scores of 0 and 1, a set is its own answer at any threshold in between.
                inside = sets.to_mask().float()
                for metric in f1:
                    metric.update(inside, labels)
    tally = _tally(size.histogram)
    if target is None:
        return SetFigures(tally)
    return SetFigures(
        tally,
        one_class,
        float(coverage.compute()),
        float(by_class.compute()) if one_class else None,
        float(stratified.compute()),
        None if one_class else float(f1[0].compute()),
        None if one_class else float(f1[1].compute()),
        int(coverage.rows_without_positives),
    )


def number(value: float | None) -> float | None:
    """The number, or None where there is none: JSON has no NaN."""
    return None if value is None or value != value else value


def _tally(histogram: Tensor) -> Tally:
    sizes = histogram.nonzero().squeeze(-1)
    return Tally(tuple(sizes.tolist()), tuple(histogram[sizes].tolist()))
