"""Average-K accuracy: the exact number of labels, ties or not, in bounded memory."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist import functional as F
from shortlist.metrics import AverageKAccuracy


@given(seed=st.integers(0, 10**6), k=st.sampled_from([0, 0.3, 1, 1.1, 2.3, 5]), levels=st.sampled_from([1, 3, 1000]))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_bounded_memory_changes_nothing(seed, k, levels):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (30, 6), generator=generator).float()
    scores[:10] += levels // 2  # early rows hold most of the largest scores
    classes = torch.randint(6, (30,), generator=generator)
    metric = AverageKAccuracy(k, num_rows=30)
    for start in range(0, 30, 7):
        metric(scores[start : start + 7], classes[start : start + 7])
        assert len(metric.kept("values")) <= max(1, math.floor(k * 30))
    assert torch.allclose(metric.compute(), F.average_k_accuracy(scores, classes, k=k), rtol=1e-12)


@pytest.mark.parametrize("k", [0.5, 1, 2.3, 4])
@pytest.mark.parametrize("levels", [1, 2, 1000])
def test_sets_have_k_labels_on_average_with_ties_or_without(k, levels):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(levels, (40, 5), generator=generator).float()
    # Asking each label in turn whether it is in adds up to the sizes of the sets.
    chances = [F.average_k_accuracy(scores, torch.full((40,), label), k=k) for label in range(5)]
    assert sum(chances).item() == pytest.approx(k, rel=1e-12)


def test_a_number_of_labels_is_taken_as_it_is_written():
    assert math.floor(0.29 * 100) == 28  # in binary
    metric = AverageKAccuracy(0.29)
    metric.update(torch.arange(500.0).reshape(100, 5), torch.zeros(100, dtype=torch.int64))
    assert metric.average_size == 0.29


def test_absent_labels_do_not_fill_sets():
    scores = torch.tensor([[1.0, -math.inf, -math.inf], [2.0, 0.0, -math.inf]])
    metric = AverageKAccuracy(3)
    assert metric(scores, torch.tensor([1, 1])) == 0.5
    assert metric.average_size == 1.5


def test_the_average_size_at_a_threshold_is_measured():
    metric = AverageKAccuracy(threshold=0.3)
    metric.update(torch.tensor([[0.9, 0.3, 0.1], [0.4, 0.3, 0.3]]), torch.tensor([0, 1]))
    assert metric.average_size == 2.5
    assert math.isnan(AverageKAccuracy(threshold=0.3).average_size)


def test_a_threshold_fitted_on_other_data_is_used_as_it_is():
    scores = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]])
    for threshold, wanted in ((0.45, 2 / 3), (0.1, 1.0), (0.95, 0.0)):
        got = AverageKAccuracy(threshold=threshold)(scores, torch.tensor([0, 0, 1]))
        assert got.item() == pytest.approx(wanted)


def test_more_rows_than_announced_are_an_error():
    metric = AverageKAccuracy(1, num_rows=2)
    metric.update(torch.rand(3, 4), torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match=r"`num_rows` must be at least the number of rows seen; got 2 for 3."):
        metric.compute()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of `k` and `threshold` must be given; got neither."),
        ({"k": 1, "threshold": 0.5}, "one of `k` and `threshold` must be given; got both."),
        ({"threshold": 0.5, "num_rows": 3}, "`num_rows` must be None with `threshold`; got 3."),
        ({"threshold": math.nan}, "`threshold` must be finite; got nan."),
        ({"k": 1, "average": "weighted"}, "`average` must be 'micro' or 'macro'; got 'weighted'."),
    ],
)
def test_options_that_make_no_sense_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        AverageKAccuracy(**options)


def test_more_labels_than_there_are_is_an_error():
    with pytest.raises(ValueError, match=r"`k` must lie in \[0, 3\]; got 4."):
        AverageKAccuracy(4)(torch.rand(2, 3), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"`k` must lie in \[0, 3\]; got -1."):
        F.average_k_accuracy(torch.rand(2, 3), torch.tensor([0, 1]), k=-1)
