"""Noise stays within the superclass and the training part, at the stated rate, uniform, with the truth kept."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import Dataset, Features, Groups, label_noise

examples = settings(derandomize=True, deadline=None, max_examples=60)
PARTS = ("train", "val", "test")
ROWS = 40_000
# Superclasses of 5, 3, 2 and 1 classes, interleaved, and two classes without one.
SUPERCLASS = [0, 1, 0, 2, -1, 0, 1, 3, 0, 2, 1, 0, -1]
N = len(SUPERCLASS)
SIZE = {group: SUPERCLASS.count(group) for group in set(SUPERCLASS)}


def world(rows: int = ROWS, *, split: bool = True) -> Dataset:
    return Dataset(
        Features(torch.zeros(rows, 1)),
        torch.arange(rows) * 5 % N,
        tuple(f"class {i}" for i in range(N)),
        label_groups={"superclass": Groups(torch.tensor(SUPERCLASS), ("five", "three", "two", "one"))},
        split=Groups.of([(*PARTS, "train", None)[i % 5] for i in range(rows)], order=PARTS) if split else None,
    )


def binomial(changed: int, trials: int, rate: float) -> float:
    """How many standard deviations from what is expected."""
    return abs(changed - trials * rate) / max(trials * rate * (1 - rate), 1e-9) ** 0.5


@pytest.mark.parametrize("others_only", [False, True])
@pytest.mark.parametrize("rate", [0.1, 0.4, 0.9])
def test_each_class_changes_at_the_stated_rate(rate, others_only):
    clean = world()
    noisy = label_noise(clean, rate, others_only=others_only, seed=11)
    train = clean.part_rows("train")
    old, new = clean.targets[train], noisy.targets[train]
    for label, group in enumerate(SUPERCLASS):
        own = old == label
        changed, trials = int((new[own] != label).sum()), int(own.sum())
        m = SIZE[group]
        if group < 0 or m == 1:
            assert changed == 0
        else:
            assert trials > 1000
            assert binomial(changed, trials, rate if others_only else rate * (1 - 1 / m)) < 4


@pytest.mark.parametrize(("others_only", "freedom"), [(False, 4), (True, 3)])
def test_new_classes_are_uniform_within_the_superclass(others_only, freedom):
    clean = world()
    noisy = label_noise(clean, 1.0, others_only=others_only, seed=5)
    train = clean.part_rows("train")
    old, new = clean.targets[train], noisy.targets[train]
    five = [label for label, group in enumerate(SUPERCLASS) if group == 0]
    for label in five:
        counts = Counter(new[old == label].tolist())
        rivals = [other for other in five if not others_only or other != label]
        assert set(counts) == set(rivals)
        mean = sum(counts.values()) / len(rivals)
        chi_square = sum((counts[rival] - mean) ** 2 / mean for rival in rivals)
        assert chi_square < freedom + 4 * (2 * freedom) ** 0.5


def test_whether_a_row_is_hit_says_nothing_about_its_new_class():
    clean = world()
    low, high = label_noise(clean, 0.2, others_only=True, seed=3), label_noise(clean, 0.6, others_only=True, seed=3)
    hit = low.targets != clean.targets
    assert bool((high.targets[hit] != clean.targets[hit]).all())


@pytest.mark.parametrize("others_only", [False, True])
def test_a_class_never_leaves_its_superclass(others_only):
    clean = world(5000)
    noisy = label_noise(clean, 1.0, others_only=others_only)
    group = np.array(SUPERCLASS)
    assert (group[noisy.targets.numpy()] == group[clean.targets.numpy()]).all()


def test_without_a_split_all_rows_are_for_training():
    clean = world(5000, split=False)
    several = torch.tensor([SIZE[group] > 1 and group >= 0 for group in SUPERCLASS])[clean.targets]
    changed = label_noise(clean, 1.0, others_only=True).targets != clean.targets
    assert torch.equal(changed, several)


@examples
@given(
    st.lists(st.integers(0, 5), max_size=12),
    st.lists(st.integers(-1, 2), min_size=6, max_size=6),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.booleans(),
    st.integers(0, 5),
)
def test_any_partition_is_respected(classes, groups, rate, others_only, seed):
    dataset = Dataset(
        Features(torch.zeros(len(classes), 1)),
        torch.tensor(classes, dtype=torch.int64),
        tuple("abcdef"),
        label_groups={"kind": Groups(torch.tensor(groups), ("x", "y", "z"))},
    )
    new = label_noise(dataset, rate, groups="kind", others_only=others_only, seed=seed).targets.tolist()
    for old, drawn in zip(classes, new, strict=True):
        alone = groups[old] < 0 or groups.count(groups[old]) == 1
        if rate == 0 or alone:
            assert drawn == old
        else:
            assert groups[drawn] == groups[old]
            if others_only and rate == 1:
                assert drawn != old
