"""Long tails have the stated sizes, keep rows at random, and leave other parts as they are."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import Groups, label_noise, long_tail, long_tail_sizes
from shortlist.data.procedures.training_rows import rank_within
from tests.data.datasets import dataset_of, rows_of

examples = settings(derandomize=True, deadline=None, max_examples=60)
PARTS = ("train", "val", "test")


def test_exponential_sizes_by_hand():
    # 10^(-1/2 r): 1000, 316.2, 100, 31.6, 10.
    assert long_tail_sizes(1000, 5, 100).tolist() == [1000, 316, 100, 32, 10]


def test_pareto_sizes_by_hand():
    # With alpha = 1: 1000 / (1 + 9 r / 3) = 1000, 250, 142.9, 100.
    assert long_tail_sizes(1000, 4, 10, alpha=1).tolist() == [1000, 250, 143, 100]
    # With alpha = 2: 900 / (1 + 2 r / 2)^2 = 900, 225, 100.
    assert long_tail_sizes(900, 3, 9, alpha=2).tolist() == [900, 225, 100]


@examples
@given(
    st.integers(1, 5000),
    st.integers(1, 40),
    st.floats(1, 1000),
    st.sampled_from([0.1, 0.5, 1.0, 2.0, 6.0, 1e3, 1e6, 1e12, math.inf]),
)
def test_sizes_follow_the_formula_fall_and_end_at_the_imbalance(largest, classes, imbalance, alpha):
    sizes = long_tail_sizes(largest, classes, imbalance, alpha=alpha)
    assert sizes.dtype == np.int64
    assert len(sizes) == classes
    assert sizes[0] == largest
    assert (np.diff(sizes) <= 0).all()
    if classes > 1:
        assert abs(sizes[-1] - max(largest / imbalance, 1)) <= 0.5 + 1e-6 * largest
    for r, size in enumerate(sizes.tolist()):
        x = r / max(classes - 1, 1)
        if alpha < 1e5:
            exact = largest * (1 + x * (imbalance ** (1 / alpha) - 1)) ** -alpha
        else:
            exact = largest * imbalance**-x
        assert abs(size - max(exact, 1)) <= 0.5 + 1e-3


def test_small_powers_fall_at_once():
    # Towards alpha = 0 all but the first class have the smallest size.
    assert long_tail_sizes(500, 5, 100, alpha=0.001).tolist() == [500, 5, 5, 5, 5]


def test_an_even_tail_is_even_and_one_class_is_full():
    assert long_tail_sizes(7, 4, 1).tolist() == [7, 7, 7, 7]
    assert long_tail_sizes(7, 1, 50).tolist() == [7]
    assert long_tail_sizes(3, 3, 1000).tolist() == [3, 1, 1]
    assert long_tail_sizes(3, 0, 10).tolist() == []


@pytest.mark.parametrize(
    ("option", "rule", "values"),
    [
        ("imbalance", "be finite and at least 1", [0.5, -1, math.inf, math.nan]),
        ("alpha", "be above 0", [0, -2.0, math.nan]),
        ("largest", ".*", [0, -3]),
    ],
)
def test_options_outside_their_range_are_refused(option, rule, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"^`{option}` must {rule}; got {value}\.$"):
            long_tail_sizes(**{"largest": 10, "num_classes": 3, "imbalance": 10, option: value})


@examples
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from(PARTS)), max_size=40),
    st.sampled_from([1.0, 3.0, 50.0]),
    st.sampled_from(["index", "random"]),
    st.integers(0, 3),
)
def test_classes_keep_their_size_in_the_tail_or_all_they_have(rows, imbalance, order, seed):
    rows = [(0, "train"), *rows]
    classes, parts = [row[0] for row in rows], [row[1] for row in rows]
    dataset = dataset_of(torch.tensor(classes), labels=5, split=Groups.of(parts, order=PARTS))
    thin = long_tail(dataset, imbalance, order=order, seed=seed)
    kept = rows_of(thin)
    assert kept == sorted(set(kept))
    assert {i for i, part in enumerate(parts) if part != "train"} <= set(kept)
    assert thin.targets.tolist() == [classes[row] for row in kept]
    assert thin.label_names == dataset.label_names
    before = Counter(c for c, part in rows if part == "train")
    after = Counter(classes[row] for row in kept if parts[row] == "train")
    # A class without rows has no place in the tail.
    sizes = long_tail_sizes(max(before.values()), len(before), imbalance).tolist()
    if order == "index":
        assert after == Counter({c: min(before[c], size) for c, size in zip(sorted(before), sizes, strict=True)})
    else:
        # Some order of the classes explains what is left: a class that lost rows shows its size.
        shown = Counter(after[c] for c in before if after[c] < before[c])
        assert all(count <= sizes.count(size) for size, count in shown.items())


def test_random_order_gives_each_class_each_size_equally_often():
    dataset = dataset_of(torch.arange(30) % 3)
    first = Counter(int(long_tail(dataset, 10, order="random", seed=s).label_counts().argmax()) for s in range(900))
    assert sum((first[c] - 300) ** 2 / 300 for c in range(3)) < 2 + 4 * 4**0.5
    sizes = [sorted(long_tail(dataset, 10, order="random", seed=s).label_counts().tolist()) for s in range(5)]
    assert sizes == [[1, 3, 10]] * 5


def test_each_row_of_a_class_is_kept_equally_often():
    dataset = dataset_of(torch.tensor([0] * 8 + [1] * 8))
    kept = Counter(row for seed in range(1600) for row in rows_of(long_tail(dataset, 4, seed=seed)))
    assert all(kept[row] == 1600 for row in range(8))
    assert sum(kept[row] for row in range(8, 16)) == 2 * 1600
    # Two of eight without repeats: variance of a count is 1600 * 1/4 * 3/4.
    assert all(abs(kept[row] - 400) < 4 * (1600 * 3 / 16) ** 0.5 for row in range(8, 16))


def test_the_truth_follows_the_rows():
    groups = {"superclass": Groups(torch.zeros(5, dtype=torch.int64), ("all",))}
    clean = dataset_of(torch.arange(100) % 5, label_groups=groups)
    thin = long_tail(label_noise(clean, 0.5), 10)
    assert thin.clean_targets.tolist() == [row % 5 for row in rows_of(thin)]


def test_one_row_and_no_training_rows_pass():
    assert len(long_tail(dataset_of(torch.tensor([4])), 10)) == 1
    dataset = dataset_of(torch.tensor([0, 0]), split=Groups(torch.tensor([1, 1]), ("train", "test")))
    assert len(long_tail(dataset, 10)) == 2


@examples
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=15))
def test_ranks_agree_with_a_loop(entries):
    classes, keys = ([entry[i] for entry in entries] for i in range(2))
    ranks = rank_within(np.array(classes, dtype=np.int64), np.array(keys, dtype=np.uint64)).tolist()
    for i, rank in enumerate(ranks):
        before = [j for j in range(len(keys)) if classes[j] == classes[i] and (keys[j], j) < (keys[i], i)]
        assert rank == len(before)
