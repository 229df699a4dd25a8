"""What metrics report besides their value: absent classes, rows left out, groups of classes; and their errors."""

import math

import pytest
import torch

from shortlist import functional as F
from shortlist import metrics as M

SCORES = torch.tensor([[3.0, 1.0, 2.0, 0.0], [1.0, 3.0, 2.0, 0.0], [0.0, 1.0, 2.0, 3.0]])


def test_absent_classes_are_reported_and_do_not_count_as_zero():
    metric = M.TopKAccuracy(1, average="macro", num_labels=4)
    assert metric(SCORES, torch.tensor([0, 1, 1])) == 0.75
    assert metric.absent.tolist() == [2, 3]
    metric = M.MacroF1(4, k=1)
    assert metric(SCORES, torch.tensor([0, 1, 1])).item() == pytest.approx((1 + 2 / 3) / 2)
    assert metric.absent.tolist() == [2, 3]
    metric = M.SceneGraphRecall(1, constrained=True, average="predicate", num_labels=4)
    metric.update(SCORES, torch.tensor([0, 1, 1]), torch.arange(3))
    assert metric.absent.tolist() == [2, 3]


def test_absent_classes_are_not_known_to_means_over_rows():
    with pytest.raises(ValueError, match=r'absent classes are known only for `average="macro"`'):
        _ = M.TopKAccuracy(1).absent
    with pytest.raises(ValueError, match=r'absent predicates are known only for `average="predicate"`'):
        _ = M.SceneGraphRecall(1, constrained=True).absent
    with pytest.raises(ValueError, match=r'`by` must be "class" for per-class values; got "sample".'):
        M.MeanAveragePrecision(by="sample").values()


@pytest.mark.parametrize(
    "make",
    [
        lambda: M.RankingMetrics(1),
        lambda: M.TopKAccuracy(1),
        lambda: M.AverageKAccuracy(1),
        lambda: M.MeanAveragePrecision(),
        lambda: M.MeanAveragePrecision(by="sample"),
        lambda: M.PropensityScoredPrecisionAtK(torch.full((4,), 0.5), 1),
    ],
)
def test_rows_without_positives_are_counted(make):
    metric = make()
    target = torch.tensor([[0], [-1], [-1]])
    metric.update(SCORES, target)
    metric.update(SCORES, target, mask=torch.tensor([True, True, False]))
    assert metric.rows_without_positives == 3


def test_shots_are_told_apart_by_their_training_counts():
    counts = torch.tensor([19, 20, 100, 101])
    scores = torch.eye(4)
    for average in ("macro", "micro"):
        metric = M.ShotAccuracy(counts, average=average)
        values = metric(scores[[0, 2, 2, 0]], torch.tensor([0, 1, 2, 3]))
        assert {name: value.item() for name, value in values.items()} == {"few": 1.0, "medium": 0.5, "many": 0.0}


def test_macro_shots_weigh_classes_and_micro_shots_weigh_rows():
    counts, classes = torch.tensor([500, 500, 5]), torch.tensor([0, 0, 0, 1])
    scores = torch.eye(3)[[0, 0, 0, 0]]
    macro, micro = (M.ShotAccuracy(counts, average=average)(scores, classes) for average in ("macro", "micro"))
    assert macro["many"] == 0.5
    assert micro["many"] == 0.75
    assert math.isnan(micro["few"])


def test_shots_at_several_k():
    values = M.ShotAccuracy(torch.tensor([500, 50, 5, 5]), (1, 2))(SCORES, torch.tensor([0, 2, 2]))
    assert values["few"].tolist() == [0, 1]


def test_values_of_single_classes_are_there():
    metric = M.MeanAveragePrecision()
    target = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]])
    metric.update(SCORES, target)
    assert torch.equal(metric.values().isnan(), torch.tensor([False, False, True, True]))
    assert torch.equal(metric.values()[:2], F.average_precision(SCORES, target, reduction="none")[:2])


@pytest.mark.parametrize(
    "make",
    [
        lambda: M.TopKAccuracy(1, average="macro", num_labels=3),
        lambda: M.ShotAccuracy(torch.tensor([1, 2, 3])),
        lambda: M.MacroF1(3, k=1),
        lambda: M.BinnedMeanAveragePrecision(3),
    ],
)
def test_a_metric_keeps_to_its_number_of_labels(make):
    with pytest.raises(ValueError, match=r"`scores` must have the 3 labels of the metric; got 4."):
        make().update(SCORES, torch.tensor([0, 1, 2]))


def test_exact_precision_keeps_to_the_labels_of_the_first_batch():
    metric = M.MeanAveragePrecision()
    metric.update(SCORES, torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match=r"`scores` must have 4 labels as in earlier batches; got 3."):
        metric.update(SCORES[:, :3], torch.tensor([0, 1, 2]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: M.PrecisionAtK(0), "`k` must be at least 1; got 0."),
        (lambda: M.PrecisionAtK(()), "`k` must contain at least one number; got none."),
        (lambda: M.TopKAccuracy(1, average="macro"), '`num_labels` must be given for `average="macro"`; got None.'),
        (lambda: M.TopKAccuracy(1, num_labels=3), '`num_labels` must be None for `average="micro"`; got 3.'),
        (lambda: M.ShotAccuracy(torch.zeros(2, 2)), r"`counts` must have one value per label; got shape \(2, 2\)."),
        (lambda: M.MeanAveragePrecision("row"), "`by` must be 'class' or 'sample'; got 'row'."),
        (lambda: M.MicroF1(), "one of `k` and `threshold` must be given; got neither."),
        (lambda: M.MacroF1(3, threshold=0.5, k=1), "one of `k` and `threshold` must be given; got both."),
        (lambda: M.SceneGraphRecall(constrained=True, num_labels=3), "`num_labels` must be given if and only if"),
        (lambda: M.BinnedMeanAveragePrecision(3, limits=(1, 0)), "`limits` must be two finite numbers"),
        (lambda: M.BinnedMeanAveragePrecision(3, bins=0), "`bins` must lie in"),
    ],
)
def test_options_that_make_no_sense_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
