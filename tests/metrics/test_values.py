"""Every metric agrees with its reference and with its function, on rows with ties, absent and unknown labels."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts_metrics import METRICS, MetricCase, draw, flat

GROUPS = [[case for case in METRICS if case.one_class], [case for case in METRICS if not case.one_class]]
"""Metrics that take the same labels share the cases that are drawn; each sees all of them."""
MADE = {case: case.metric() for case in METRICS}

each_group = pytest.mark.parametrize("cases", GROUPS, ids=["one class", "sets of positives"])
seeds = st.integers(0, 10**6)


def close(got: list[float], wanted: list[float]) -> bool:
    pairs = torch.tensor([got, wanted], dtype=torch.float64)
    return torch.allclose(*pairs, rtol=1e-12, atol=1e-12, equal_nan=True)


def value(case: MetricCase, *batches: tuple) -> list[float]:
    """The value of a metric that was used before and reset."""
    metric = MADE[case]
    metric.reset()
    for batch in batches:
        case.update(metric, *batch)
    return flat(metric.compute())


@each_group
@given(rows=st.integers(0, 4), seed=seeds)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_metrics_agree_with_their_references(cases, rows, seed):
    scores, hot = draw(cases[0], rows, seed)
    for case in cases:
        got, wanted = value(case, (scores, hot)), case.expected(scores, hot)
        assert close(got, wanted), (str(case), got, wanted)


@each_group
@given(rows=st.integers(1, 8), seed=seeds)
@settings(derandomize=True, deadline=None, max_examples=20)
def test_metrics_agree_with_their_functions(cases, rows, seed):
    scores, hot = draw(cases[0], rows, seed)
    for case in (case for case in cases if case.function):
        assert close(value(case, (scores, hot)), flat(case.function(scores, hot))), str(case)


@each_group
@given(rows=st.integers(1, 12), seed=seeds, cuts=st.lists(st.integers(0, 12), max_size=4))
@settings(derandomize=True, deadline=None, max_examples=20)
def test_any_split_into_batches_gives_the_same_value(cases, rows, seed, cuts):
    scores, hot = draw(cases[0], rows, seed)
    ends = sorted([0, *(min(cut, rows) for cut in cuts), rows])
    parts = [(scores[start:end], hot[start:end]) for start, end in pairwise(ends)]
    for case in cases:
        assert close(value(case, *parts), value(case, (scores, hot))), str(case)


@each_group
@given(rows=st.integers(1, 8), seed=seeds)
@settings(derandomize=True, deadline=None, max_examples=20)
def test_rows_that_do_not_count_are_as_if_they_were_not_there(cases, rows, seed):
    scores, hot = draw(cases[0], rows, seed)
    mask = torch.rand(rows, generator=torch.Generator().manual_seed(seed)) < 0.6
    for case in (case for case in cases if case.takes_mask):
        got, left_out = value(case, (scores, hot, mask)), getattr(MADE[case], "rows_without_positives", None)
        assert close(got, value(case, (scores[mask], hot[mask]))), str(case)
        assert left_out == getattr(MADE[case], "rows_without_positives", None), str(case)
        if case.function:
            assert close(flat(case.function(scores, hot, mask=mask)), got), str(case)


@each_group
@given(rows=st.integers(1, 8), seed=seeds)
@settings(derandomize=True, deadline=None, max_examples=20)
def test_only_the_order_of_the_scores_matters(cases, rows, seed):
    scores, hot = draw(cases[0], rows, seed, absent=0)
    for case in (case for case in cases if case.rank_only):
        assert close(value(case, (torch.exp(scores / 3), hot)), value(case, (scores, hot))), str(case)


@each_group
@given(rows=st.integers(1, 8), seed=seeds)
@settings(derandomize=True, deadline=None, max_examples=20)
def test_the_order_of_the_rows_does_not_matter(cases, rows, seed):
    scores, hot = draw(cases[0], rows, seed)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    for case in cases:
        assert close(value(case, (scores[order], hot[order])), value(case, (scores, hot))), str(case)
