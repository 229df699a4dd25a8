"""Splits have the sizes that they state, part what they promise to part, and keep together what belongs together."""

import math
from collections import Counter
from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist.data import (
    Dataset,
    Groups,
    split_at_random,
    split_by_group,
    split_by_year,
    split_covering_labels,
    split_off_validation,
    split_per_class,
)
from shortlist.data.procedures.splits import exact_share
from tests.data.datasets import dataset_of

examples = settings(derandomize=True, deadline=None, max_examples=40)
PARTS = ("train", "val", "test")
shares = st.sampled_from([0.0, 0.1, 0.15, 0.2, 1 / 3, 0.4])


def parts_of(dataset: Dataset) -> list[str]:
    assert dataset.split.names == PARTS
    return [PARTS[part] for part in dataset.split.index.tolist()]


def sizes_of(dataset: Dataset) -> list[int]:
    return [parts_of(dataset).count(part) for part in PARTS]


def decimal_ceiling(share: float, count: int) -> int:
    return int((Decimal(str(share)) * count).to_integral_value(rounding=ROUND_CEILING))


def test_ten_per_cent_are_exact_for_all_counts_up_to_ten_thousand():
    for count in range(10_001):
        assert exact_share(0.1, count) == (count + 9) // 10
    # The binary number next to 0.1 is larger, and would give one row too many.
    assert math.ceil(Fraction(0.1) * 30) == 4


@pytest.mark.parametrize("share", [0.05, 0.07, 0.2, 0.29, 0.3, 0.35, 0.55, 0.57, 0.7, 1e-5, 0.0, 1.0])
def test_other_shares_are_exact_decimals_too(share):
    for count in (*range(300), 10_000, 306_146, 10**9):
        assert exact_share(share, count) == decimal_ceiling(share, count)


@examples
@given(st.lists(st.sampled_from([0, 3, 4, 5, 9, 10, 11, 20, 30]), min_size=1, max_size=5), st.integers(0, 3))
def test_each_class_is_split_by_itself(counts, seed):
    classes = torch.tensor([label for label, count in enumerate(counts) for _ in range(count)], dtype=torch.int64)
    dataset = dataset_of(classes.flip(0), labels=len(counts))
    found = Counter(zip(dataset.targets.tolist(), parts_of(split_per_class(dataset, seed=seed)), strict=True))
    for label, count in enumerate(counts):
        tenth = -(-count // 10)
        assert [found[label, part] for part in PARTS] == [count - 2 * tenth, tenth, tenth]
        assert count == 0 or all(found[label, part] for part in PARTS)


def test_a_part_that_is_not_asked_for_is_left_out():
    dataset = dataset_of(torch.tensor([0] * 2 + [1] * 20))
    assert sizes_of(split_per_class(dataset, val=0, test=0.1)) == [19, 0, 3]
    assert sizes_of(split_per_class(dataset, val=0, test=0)) == [22, 0, 0]


def test_the_published_relation_holds_on_a_species_table_of_the_published_size():
    species, genera, images = 1081, 303, 306_146
    share = (np.arange(species) + 3.0) ** -1.5
    counts = 5 + np.floor((images - 5 * species) * share / share.sum()).astype(np.int64)
    counts[0] += images - counts.sum()
    assert counts.sum() == images
    assert np.sort(counts)[: int(0.8 * species)].sum() < 0.2 * images
    genus = Groups(torch.arange(species) % genera, tuple(f"genus {i}" for i in range(genera)))
    dataset = dataset_of(torch.from_numpy(np.repeat(np.arange(species), counts)), label_groups={"genus": genus})
    split = split_per_class(dataset)
    tenth = -(-counts // 10)
    assert split.label_counts("val").tolist() == split.label_counts("test").tolist() == tenth.tolist()
    assert split.label_counts("train").tolist() == (counts - 2 * tenth).tolist()
    assert min(int(split.label_counts(part).min()) for part in PARTS) >= 1
    # The published 31,118 and 31,112 differ, so that rounding alone gives not both; any table gives a number near.
    low, high = images / 10, images / 10 + 0.9 * species
    assert low <= tenth.sum() <= high
    assert low <= 31_112 <= 31_118 <= high
    assert images == 243_916 + 31_118 + 31_112


@pytest.mark.parametrize(("counts", "name", "count"), [([30, 2], "b", 2), ([1, 30], "a", 1)])
def test_a_class_with_too_few_rows_is_refused(counts, name, count):
    classes = torch.tensor([label for label, size in enumerate(counts) for _ in range(size)])
    with pytest.raises(ValueError, match=rf"enough rows of each class for all parts; class '{name}' has {count}\.$"):
        split_per_class(dataset_of(classes))


@examples
@given(st.integers(0, 60), shares, shares, st.integers(0, 3))
def test_a_random_split_has_its_sizes(rows, val, test, seed):
    size_val, size_test = decimal_ceiling(val, rows), decimal_ceiling(test, rows)
    dataset = dataset_of(torch.zeros(rows, 2), labels=2)
    if rows and size_val + size_test >= rows:
        with pytest.raises(ValueError, match=rf"^`dataset` must have more rows: none of {rows} are left"):
            split_at_random(dataset, val=val, test=test, seed=seed)
    else:
        split = split_at_random(dataset, val=val, test=test, seed=seed)
        assert sizes_of(split) == [rows - size_val - size_test, size_val, size_test]


@pytest.mark.parametrize("split", [split_per_class, split_at_random])
def test_each_row_is_in_each_part_equally_often(split):
    dataset = dataset_of(torch.tensor([0] * 10))
    found = Counter(
        (row, part) for seed in range(800) for row, part in enumerate(parts_of(split(dataset, val=0.3, seed=seed)))
    )
    for row in range(10):
        assert abs(found[row, "val"] - 240) < 4 * 168**0.5
        assert abs(found[row, "test"] - 80) < 4 * 72**0.5


@examples
@given(st.lists(st.none() | st.integers(0, 9), max_size=40), shares, shares, st.integers(0, 3))
def test_a_group_is_never_split(groups, val, test, seed):
    dataset = dataset_of(torch.zeros(len(groups), 1), labels=1, row_groups={"patient": Groups.of(groups)})
    wanted = 1 + (val > 0) + (test > 0)
    if 0 < len(set(groups) - {None}) + groups.count(None) < wanted:
        with pytest.raises(ValueError, match=rf"^`by` 'patient' must have a group for each of {wanted} parts; it has"):
            split_by_group(dataset, "patient", val=val, test=test, seed=seed)
        return
    split = split_by_group(dataset, "patient", val=val, test=test, seed=seed)
    parts = parts_of(split)
    assert not groups or len(set(parts)) == wanted
    for group in set(groups) - {None}:
        assert len({part for part, own in zip(parts, groups, strict=True) if own == group}) == 1
    largest = max([1, *Counter(group for group in groups if group is not None).values()])
    for part, share in zip(PARTS, (1 - val - test, val, test), strict=True):
        if share == 0:
            assert part not in parts
        # A part that lacks nothing takes no group, so it overshoots by less than the largest.
        assert parts.count(part) < share * len(groups) + largest + 1e-6 or not groups


def test_rows_without_a_group_are_dealt_out_one_by_one():
    dataset = dataset_of(torch.zeros(100, 1), labels=1, row_groups={"source": Groups(torch.full((100,), -1), ())})
    assert sizes_of(split_by_group(dataset, "source", val=0.1, test=0.2)) == [70, 10, 20]
    dataset = dataset_of(torch.zeros(50, 1), labels=1, row_groups={"source": Groups.of(f"s{i}" for i in range(50))})
    assert sizes_of(split_by_group(dataset, "source")) == [40, 5, 5]


def test_rows_are_split_by_year():
    years = [1979, None, 1977, 1978, 1980, 1900]
    dataset = dataset_of(
        torch.zeros(6, 1), labels=1, row_groups={"year": Groups.of(years), "seen": Groups.of(years[::-1])}
    )
    assert parts_of(split_by_year(dataset, val_from=1978, test_from=1979)) == [
        "test", "train", "train", "val", "test", "train",
    ]  # fmt: skip
    assert parts_of(split_by_year(dataset, val_from=1979, test_from=1979)).count("val") == 0
    by_other = split_by_year(dataset, val_from=1978, test_from=1979, by="seen")
    assert parts_of(by_other) == ["train", "test", "val", "train", "train", "test"]


def test_years_that_are_none_or_go_backwards_are_refused():
    dataset = dataset_of(torch.zeros(2, 1), labels=1, row_groups={"year": Groups.of(["1977", "spring"])})
    with pytest.raises(ValueError, match=r"^`by` must name groups of integers; 'year' has \('1977', 'spring'\)\.$"):
        split_by_year(dataset, val_from=1978, test_from=1979)
    with pytest.raises(ValueError, match=r"^`test_from` must not be before `val_from`, 1979; got 1978\.$"):
        split_by_year(dataset, val_from=1979, test_from=1978)
    with pytest.raises(ValueError, match=r"^`row_groups` of the dataset must have 'date'; it has year\.$"):
        split_by_year(dataset, val_from=1978, test_from=1979, by="date")


def random_sets(rows: int, labels: int, seed: int) -> Tensor:
    hot = (torch.rand(rows, labels, generator=torch.Generator().manual_seed(seed)) < 0.15).float()
    hot[torch.arange(3 * labels), torch.arange(3 * labels) % labels] = 1
    return hot


@pytest.mark.parametrize("seed", range(5))
def test_every_label_is_on_both_sides(seed):
    hot = random_sets(80, 12, seed)
    hot[70:] = 0
    hot[:70:9] *= torch.where(torch.arange(12) % 5 == 0, -1.0, 1.0)
    dataset = dataset_of(hot, labels=12)
    split = split_covering_labels(dataset, val=0.1, test=0.25, seed=seed)
    assert sizes_of(split) == [52, 8, 20]
    for part in ("train", "test"):
        assert (split.label_counts(part) > 0).all()


def test_classes_are_covered_and_absent_labels_are_no_matter():
    split = split_covering_labels(dataset_of(torch.arange(20) % 5, labels=7), val=0, test=0.1)
    assert split.label_counts("test").tolist() == [1] * 5 + [0, 0]
    assert sizes_of(split) == [15, 0, 5]


@pytest.mark.parametrize("seed", range(4))
def test_a_chain_of_labels_with_two_rows_each_is_parted(seed):
    # In some order each label is on a row and the next one, so that rows must alternate: it can be done.
    hot = torch.zeros(9, 8)
    for place, label in enumerate(torch.randperm(8, generator=torch.Generator().manual_seed(seed)).tolist()):
        hot[place : place + 2, label] = 1
    split = split_covering_labels(dataset_of(hot, labels=8), val=0, test=0.4, seed=seed)
    assert (split.label_counts("test") == 1).all()
    assert (split.label_counts("train") == 1).all()


@pytest.mark.parametrize("seed", range(4))
def test_rare_labels_that_share_rows_are_parted_where_it_can_be_done(seed):
    # Even rows against odd ones is an answer: each label has two or three rows, and rows of both kinds.
    rng = torch.Generator().manual_seed(seed)
    hot = torch.zeros(200, 120)
    for label in range(120):
        even, odd, any_row = torch.randint(100, (3,), generator=rng).tolist()
        hot[[2 * even, 2 * odd + 1], label] = 1
        if label % 2:
            hot[2 * any_row, label] = 1
    split = split_covering_labels(dataset_of(hot, labels=120), val=0, test=0.4, seed=seed)
    for part in ("train", "test"):
        assert (split.label_counts(part) > 0).all()


def test_labels_that_cannot_be_on_both_sides_are_refused():
    # Three labels on the sides of a triangle: of three rows in two parts, two are together.
    triangle = torch.tensor([[1.0, 0, 1], [1, 1, 0], [0, 1, 1]])
    with pytest.raises(
        ValueError,
        match=r"^`dataset`: no split was found with every label on both sides; '[abc]' is missing on one\.$",
    ):
        split_covering_labels(dataset_of(triangle, labels=3))


def test_a_label_that_occurs_once_is_refused():
    with pytest.raises(ValueError, match=r"^`dataset` must have each label twice; 2 occur once, for example 'b'\.$"):
        split_covering_labels(dataset_of(torch.tensor([0, 0, 1, 2])))


def test_a_covering_split_without_a_test_part_is_refused():
    with pytest.raises(ValueError, match=r"`test` must .*; got 0"):
        split_covering_labels(dataset_of(torch.arange(20) % 5), val=0.1, test=0)


SPLITS = (split_per_class, split_at_random, partial(split_by_group, by="source"), split_covering_labels)


def test_an_old_split_plays_no_part_and_all_else_stays():
    dataset = dataset_of(torch.arange(200) % 4, row_groups={"source": Groups.of(range(200))})
    for split in SPLITS:
        first = split(replace(dataset, split=Groups.of(["old"] * 200)))
        assert parts_of(first) == parts_of(split(dataset))
        assert first.targets is dataset.targets
        assert first.inputs is dataset.inputs


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"val": -0.1}, r"`val` must lie in \[0, 1\); got -0.1"),
        ({"test": 1.0}, r"`test` must lie in \[0, 1\); got 1.0"),
        ({"val": float("nan")}, r"`val` must lie in \[0, 1\); got nan"),
        ({"val": 0.5, "test": 0.5}, r"`val` and `test` must leave rows for training; got 0.5 and 0.5"),
        ({"val": 0.9, "test": 0.1}, r"`val` and `test` must leave rows for training; got 0.9 and 0.1"),
    ],
)
def test_shares_that_leave_nothing_are_refused(options, text):
    dataset = dataset_of(torch.arange(20) % 2, row_groups={"source": Groups.of(range(20))})
    for split in SPLITS:
        with pytest.raises(ValueError, match=rf"^{text}\.$"):
            split(dataset, **options)


def test_validation_rows_come_from_training_alone():
    parts = ["train"] * 30 + ["test"] * 10 + ["extra"] * 5
    dataset = dataset_of(torch.zeros(45, 1), labels=1, split=Groups.of(parts))
    split = split_off_validation(dataset, val=0.2, seed=4)
    assert split.split.names == PARTS
    assert split.split.counts().tolist() == [24, 6, 10]
    assert split.part_rows("test").tolist() == list(range(30, 40))
    assert set(split.part_rows("val").tolist()) < set(range(30))
    assert (split.split.index[40:] == -1).all()
    assert split.part_rows("val").tolist() != split_off_validation(dataset, val=0.2, seed=5).part_rows("val").tolist()
    with pytest.raises(ValueError, match=r"^`val` must lie in \[0, 1\); got 1\.$"):
        split_off_validation(dataset, val=1)
