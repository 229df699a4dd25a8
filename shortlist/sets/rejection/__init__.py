"""Abstaining: answers with a bound on their error, and inputs that belong to no label."""

from shortlist.sets.rejection.novelty import FeatureDistance, NoneOfThese, p_values
from shortlist.sets.rejection.selective import SelectiveAnswers

__all__ = ["FeatureDistance", "NoneOfThese", "SelectiveAnswers", "p_values"]
