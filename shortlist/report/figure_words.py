"""Names and numbers of a comparison as people read them."""

from __future__ import annotations

import re
from typing import Any

_TITLES = {"map": "mean average precision", "average_size": "average size"}
_SHORT = {"ndcg": "nDCG", "f1": "F1"}
RULES = {"average-k": "average-K", "top-k": "top-K", "aps": "APS"}
"""Rules in the order in which they are offered, by their names in a document."""


def shown_name(name: str) -> str:
    r"""A user's name in one line; an empty one is said to be so.

    Example:
        >>> shown_name(" red\n rose "), shown_name("")
        ('red rose', '(no name)')
    """
    return " ".join(name.split()) or "(no name)"


def figure_title(name: str) -> str:
    """What a figure is called in a sentence.

    Example:
        >>> [figure_title(name) for name in ("average2.5_error", "top1_error", "ndcg@5", "map", "my_figure")]
        ['average-2.5 error', 'top-1 error', 'nDCG@5', 'mean average precision', 'my figure']
    """
    if name in _TITLES:
        return _TITLES[name]
    found = re.fullmatch(r"(average|top)([0-9.]+)_(error|accuracy)", name)
    if found is not None:
        return f"{found[1]}-{found[2]} {found[3]}"
    family, at, size = name.partition("@")
    return shown_name(f"{_SHORT.get(family, family)}{at}{size}".replace("_", " "))


def k_words(k: float) -> str:
    """A K without needless digits.

    Example:
        >>> k_words(3), k_words(2.0), k_words(2.5)
        ('3', '2', '2.5')
    """
    return f"{k:g}"


def share_words(share: float, decimals: int = 1) -> str:
    """A share as percent.

    Example:
        >>> share_words(0.12345), share_words(0.00012, 2)
        ('12.3 %', '0.01 %')
    """
    return f"{100 * share:.{decimals}f} %"


class FigureWords:
    """How the values of one figure are written, alike for all candidates.

    Shares are written as percent, other figures with three digits. A column has one decimal, or two where the intervals
    are too narrow to be seen with one.

    Args:
        document: the comparison.
        name: of the figure.

    Example:
        >>> intervals = {"map": {"mean": 0.2512, "half_width": 0.0103}}
        >>> words = FigureWords({"candidates": {"lml": {"intervals": intervals}}, "optimum": None}, "map")
        >>> words.unit, words.value(0.2512), words.interval({"mean": 0.2512, "half_width": 0.0103})
        ('%', '25.1', '25.1 ± 1.0')
        >>> words.sentence({"mean": 0.2512, "half_width": None})
        '25.1 %'
    """

    def __init__(self, document: dict[str, Any], name: str) -> None:
        intervals = [candidate["intervals"][name] for candidate in document["candidates"].values()]
        values = [interval["mean"] for interval in intervals if interval["mean"] is not None]
        if document["optimum"] is not None:
            values += [value for value in [document["optimum"]["values"].get(name)] if value is not None]
        self.is_share = name != "average_size" and all(0 <= value <= 1 for value in values)
        self.unit = "%" if self.is_share else ""
        widths = [100 * interval["half_width"] for interval in intervals if interval["half_width"]]
        self._decimals = 2 if widths and min(widths) < 0.05 else 1
        if not self.is_share:
            largest = max(map(abs, values), default=0.0)
            self._decimals = 2 if largest < 10 else 1 if largest < 100 else 0

    def value(self, value: float | None) -> str:
        """A value without its unit."""
        if value is None:
            return "–"
        return f"{100 * value:.{self._decimals}f}" if self.is_share else f"{value:.{self._decimals}f}"

    def interval(self, interval: dict[str, float | None]) -> str:
        """A mean and half its interval, without the unit."""
        width = interval["half_width"]
        spread = "" if width is None or interval["mean"] is None else f" ± {self.value(width)}"
        return self.value(interval["mean"]) + spread

    def sentence(self, interval: dict[str, float | None]) -> str:
        """The same with the unit."""
        return f"{self.interval(interval)} {self.unit}".strip()

    def difference(self, difference: float) -> str:
        """A signed difference; of shares, in points of percent."""
        return ("+" if difference >= 0 else "−") + self.value(abs(difference))
