"""Comparisons: several ways to train on the same data, with several seeds each."""

from shortlist.train.comparison.candidates import Comparison, compare
from shortlist.train.comparison.document import comparison_document
from shortlist.train.comparison.intervals import Interval

__all__ = ["Comparison", "Interval", "compare", "comparison_document"]
