"""Labels are hidden at the stated rate and uniformly, from training rows alone, and are kept for evaluation."""

from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist.data import Dataset, Groups, hide_labels, incomplete_labels, single_positive
from shortlist.targets import check_target, to_class_indices, to_multi_hot
from tests.data.datasets import dataset_of

examples = settings(derandomize=True, deadline=None, max_examples=40)
PARTS = ("train", "val", "test")
ROWS = 24_000
PROCEDURES: dict[str, Callable[..., Dataset]] = {
    "hide": lambda dataset, **options: hide_labels(dataset, 0.5, **options),
    "incomplete": incomplete_labels,
    "single": single_positive,
}
every_procedure = pytest.mark.parametrize("hide", PROCEDURES.values(), ids=PROCEDURES.keys())
every_mark = pytest.mark.parametrize("mark", ["absent", "unknown"])


def dense(dataset: Dataset) -> Tensor:
    return to_multi_hot(dataset.targets, dataset.num_labels)


hot_rows = st.lists(st.lists(st.sampled_from([0.0, 1.0, 1.0, -1.0]), min_size=4, max_size=4), max_size=10).map(
    lambda rows: torch.tensor(rows).reshape(-1, 4)
)


@every_mark
@every_procedure
@examples
@given(hot=hot_rows, seed=st.integers(0, 3))
def test_only_present_labels_of_training_rows_are_hidden(hide, mark, hot, seed):
    split = Groups.of([(*PARTS, None, "train")[i % 5] for i in range(len(hot))], order=PARTS)
    assume("train" in split.names)
    dataset = dataset_of(hot, split=split)
    result = hide(dataset, mark=mark, seed=seed)
    check_target(result.targets, 4)
    assert result.targets.layout == torch.sparse_csr
    assert result.targets.dtype == torch.float32
    new = dense(result)
    train = split.index == split.names.index("train")
    assert torch.equal(new[~train], hot[~train])
    changed = new != hot
    assert (hot[changed] == 1).all()
    assert (new[changed] == (0 if mark == "absent" else -1)).all()
    before, after = (hot == 1).sum(1)[train], (new == 1).sum(1)[train]
    if hide is incomplete_labels:
        assert torch.equal(after[before < 2], before[before < 2])
        assert (after[before > 1] < before[before > 1]).all()
        assert (after[before > 1] > 0).all()
    elif hide is single_positive:
        assert torch.equal(after, before.clamp(max=1))


@every_mark
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4, 0.75, 1.0])
def test_each_label_is_hidden_at_the_stated_rate(rate, mark):
    hot = torch.ones(ROWS, 4)
    new = dense(hide_labels(dataset_of(hot), rate, mark=mark, seed=7))
    for label in range(4):
        hidden = int((new[:, label] != 1).sum())
        assert abs(hidden - ROWS * rate) <= 4 * (ROWS * rate * (1 - rate)) ** 0.5


def test_labels_of_a_row_are_hidden_independently():
    new = dense(hide_labels(dataset_of(torch.ones(ROWS, 4)), 0.3, seed=9))
    counts = Counter(int(count) for count in new.sum(1))
    for left in range(5):
        probability = [0.3**4, 4 * 0.7 * 0.3**3, 6 * 0.7**2 * 0.3**2, 4 * 0.7**3 * 0.3, 0.7**4][left]
        assert abs(counts[left] - ROWS * probability) < 4 * (ROWS * probability * (1 - probability)) ** 0.5


@pytest.mark.parametrize("size", [2, 3, 4])
def test_incomplete_labels_are_uniform_over_strict_subsets_that_are_not_empty(size):
    hot = torch.zeros(ROWS, 4)
    hot[:, :size] = 1
    found = Counter(tuple(row) for row in dense(incomplete_labels(dataset_of(hot), seed=1)).int().tolist())
    subsets = {
        tuple(int(label in kept) for label in range(4)) for k in range(1, size) for kept in combinations(range(size), k)
    }
    assert len(subsets) == 2**size - 2
    assert set(found) == subsets
    mean, freedom = ROWS / len(subsets), len(subsets) - 1
    chi_square = sum((count - mean) ** 2 / mean for count in found.values())
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5


def test_the_single_positive_is_uniform_over_the_labels_of_a_row():
    hot = torch.zeros(ROWS, 4)
    hot[:, [0, 2, 3]] = 1
    counts = dense(single_positive(dataset_of(hot), seed=1)).sum(0).tolist()
    assert counts[1] == 0
    mean = ROWS / 3
    assert sum((count - mean) ** 2 / mean for i, count in enumerate(counts) if i != 1) < 2 + 4 * 4**0.5


@every_procedure
def test_a_class_per_row_is_a_set_of_one(hide):
    classes = torch.arange(100) % 4
    result = hide(dataset_of(classes))
    assert result.targets.layout == torch.sparse_csr
    left = dense(result)
    one = to_multi_hot(classes, 4)
    if hide is PROCEDURES["hide"]:
        assert 0 < left.sum() < 100
        assert (left <= one).all()
    else:
        assert torch.equal(left, one)
        assert torch.equal(to_class_indices(result.targets, 4), classes)


@every_procedure
def test_rows_without_labels_and_one_row_pass(hide):
    assert not dense(hide(dataset_of(torch.zeros(3, 4)))).any()
    assert len(hide(dataset_of(torch.ones(1, 4)))) == 1
