"""Coverage and size of sets: from masks and from objects, by class and by size."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from shortlist.metrics import LabelSets, SetCoverage, SetSize, SizeStratifiedCoverage
from tests.contracts_losses import FORMS

MASK = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 0]]).bool()
HOT = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]).double()


@dataclass
class Listed:
    """Sets as lists, as another package might have them."""

    lists: list[set[int]]

    @property
    def sizes(self) -> Tensor:
        return torch.tensor([len(one) for one in self.lists])

    def contains(self, labels: Tensor) -> Tensor:
        return torch.tensor([int(label) in one for label, one in zip(labels, self.lists, strict=True)])

    def count_hits(self, labels: Tensor) -> Tensor:
        pairs = zip(labels.tolist(), self.lists, strict=True)
        return torch.tensor([len({label for label in line if label >= 0} & one) for line, one in pairs])


SETS = [MASK, Listed([set(row.nonzero().flatten().tolist()) for row in MASK])]
each_kind = pytest.mark.parametrize("sets", SETS, ids=["mask", "object"])


def test_an_object_with_the_right_methods_is_a_set_of_labels():
    assert isinstance(SETS[1], LabelSets)


@each_kind
@pytest.mark.parametrize("form", [name for name in FORMS if name != "class indices"])
def test_coverage_is_the_share_of_the_positives_and_leaves_out_rows_without(sets, form):
    metric = SetCoverage()
    assert metric(sets, FORMS[form](HOT)).item() == pytest.approx((0.5 + 0 + 1) / 3)
    assert metric.rows_without_positives == 1


@each_kind
def test_unknown_labels_are_neither_inside_nor_outside(sets):
    unknown = HOT.masked_fill(HOT == 0, -1)
    assert SetCoverage()(sets, unknown) == SetCoverage()(sets, HOT)


@each_kind
def test_coverage_of_classes_micro_macro_and_one_by_one(sets):
    classes = torch.tensor([0, 1, 1, 2])
    assert SetCoverage()(sets, classes) == 0.75
    metric = SetCoverage(average="macro", num_labels=4)
    assert metric(sets, classes).item() == pytest.approx((1 + 0.5 + 1) / 3)
    assert torch.equal(metric.by_class()[:3], torch.tensor([1.0, 0.5, 1.0]).double())
    assert metric.by_class()[3].isnan()


@each_kind
def test_sizes_have_a_mean_and_a_histogram(sets):
    metric = SetSize(4)
    assert metric(sets).item() == pytest.approx(7 / 4)
    assert metric.histogram.tolist() == [1, 1, 1, 0, 1]
    assert metric(sets, mask=torch.tensor([True, False, False, True])) == 1.5


@each_kind
def test_the_worst_group_of_sizes_is_reported(sets):
    metric = SizeStratifiedCoverage((0, 1, 3))
    assert metric(sets, torch.tensor([0, 1, 1, 0])) == 0
    assert torch.equal(metric.by_size(), torch.tensor([0.0, 0.5, 1.0]).double())
    assert metric.total.tolist() == [1, 2, 1]


def test_groups_without_rows_are_no_groups():
    metric = SizeStratifiedCoverage()
    assert metric(MASK[:1], torch.tensor([0])) == 1
    assert metric.by_size().isnan().sum() == 5
    metric.reset()
    assert metric(MASK[:1], torch.zeros(1, 4)).isnan()


@pytest.mark.parametrize("edges", [(), (1, 2), (0, 2, 2), (0, 3, 1)])
def test_edges_must_ascend_from_zero(edges):
    with pytest.raises(ValueError, match=r"`edges` must ascend from 0; got"):
        SizeStratifiedCoverage(edges)


def test_what_is_no_set_is_an_error():
    with pytest.raises(TypeError, match=r"`sets` must be bool, or have `sizes`.*; got torch.float32."):
        SetSize(4).update(MASK.float())
    with pytest.raises(TypeError, match=r"`sets` must be bool, or have `sizes`.*; got torch.int64."):
        SetSize(4).update([[0, 1]])
    with pytest.raises(ValueError, match=r"`sets` must have the shape \(rows, labels\); got \(4,\)."):
        SetSize(4).update(MASK[0])
    with pytest.raises(ValueError, match=r"`sets` must have at most 2 labels; got one of 4."):
        SetSize(2).update(MASK)
    with pytest.raises(ValueError, match=r"`target` must have the 4 rows of `sets`; got \(2,\)."):
        SetCoverage().update(MASK, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"`mask` must have one value per row, shape \(4,\); got \(3,\)"):
        SetCoverage().update(MASK, torch.tensor([0, 1, 2, 3]), mask=torch.ones(3).bool())


def test_macro_coverage_is_for_one_class_per_row():
    with pytest.raises(ValueError, match=r'`target` must be class indices for `average="macro"`'):
        SetCoverage(average="macro", num_labels=4).update(MASK, HOT)
    with pytest.raises(ValueError, match=r"`target` must lie in \[0, 3\); got 3."):
        SetCoverage(average="macro", num_labels=3).update(SETS[1], torch.tensor([0, 1, 2, 3]))
    for options in ({"average": "macro"}, {"num_labels": 4}):
        with pytest.raises(ValueError, match=r"`num_labels` must be given if and only if"):
            SetCoverage(**options)


def test_masks_of_no_rows_count_nothing():
    assert math.isnan(SetCoverage()(MASK[:0], HOT[:0]))
    assert math.isnan(SetSize(4)(MASK[:0]))
