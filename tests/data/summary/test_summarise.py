"""Figures of a dataset against slow and obvious counts; nothing, one label, and a hundred thousand labels."""

import json
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import Dataset, Features, Groups, Texts
from shortlist.data.summary import Names, summarise
from shortlist.data.summary.tally import Tally
from shortlist.data.target_rows import sparse_targets
from tests.data.datasets import in_all_forms

PARTS = ("train", "val", "test")
numbers = st.lists(st.integers(0, 12), max_size=25)


def random_dataset(seed, rows=60, labels=9):
    """Long-tailed labels with unknown ones; rows with none, and equal rows."""
    rng = np.random.default_rng(seed)
    probability = 0.6 / (1 + np.arange(labels))
    hot = (rng.random((rows, labels)) < probability).astype(np.float32)
    hot[rng.random((rows, labels)) < 0.03] = -1
    clean = np.where(rng.random((rows, labels)) < 0.1, 1 - np.abs(hot), np.abs(hot)).astype(np.float32)
    return Dataset(
        Features(rng.integers(0, 4, (rows, 3)).astype(np.float32)),
        torch.from_numpy(hot),
        tuple(f"label {label}" for label in range(labels)),
        label_groups={"genus": Groups.of([None, *(f"genus {label % 3}" for label in range(labels - 1))])},
        row_groups={"source": Groups.of(rng.integers(0, 30, rows).tolist())},
        split=Groups.of([None, *rng.choice(PARTS, rows - 1, p=[0.6, 0.1, 0.3]).tolist()], order=PARTS),
        clean_targets=torch.from_numpy(clean),
        name="random",
    )


def numbers_in(value):
    """All numbers in a JSON document."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for one in value for number in numbers_in(one)]
    return [value] if isinstance(value, (int, float)) else []


@settings(derandomize=True, deadline=None)
@given(numbers)
def test_a_tally_agrees_with_numpy(values):
    tally = Tally.of(np.array(values, dtype=np.int64))
    assert dict(zip(tally.values, tally.times, strict=True)) == dict(sorted(Counter(values).items()))
    assert (tally.members, tally.total) == (len(values), sum(values))
    if values:
        assert (tally.minimum, tally.maximum) == (min(values), max(values))
        assert tally.mean == pytest.approx(np.mean(values))
        assert tally.median == np.median(values)
    else:
        assert (tally.minimum, tally.maximum, tally.mean, tally.median) == (0, 0, 0.0, 0.0)


@settings(derandomize=True, deadline=None)
@given(numbers)
def test_gini_is_half_the_relative_mean_difference_and_twice_the_area_above_the_lorenz_curve(values):
    tally = Tally.of(np.array(values, dtype=np.int64))
    if not sum(values):
        assert tally.gini() == 0
        return
    pairs = sum(abs(one - other) for one in values for other in values)
    assert tally.gini() == float(Fraction(pairs, 2 * len(values) * sum(values)))
    x, y = np.array(tally.lorenz()).T
    assert tally.gini() == pytest.approx(1 - np.sum(np.diff(x) * (y[1:] + y[:-1])), abs=1e-12)


@settings(derandomize=True, deadline=None)
@given(numbers.filter(any), st.integers(0, 20))
def test_tail_shares_and_the_head_are_those_of_the_sorted_numbers(values, rarest):
    tally, ordered = Tally.of(np.array(values)), sorted(values)
    rarest = min(rarest, len(values))
    assert tally.tail_share(rarest / len(values)) == pytest.approx(sum(ordered[:rarest]) / sum(values))
    half = next(k for k in range(len(values) + 1) if 2 * sum(ordered[len(values) - k :]) >= sum(values))
    assert tally.fewest_for_half() == half


def test_four_in_five_labels_can_hold_a_ninth():
    tally = Tally.of(np.array([1] * 8 + [32, 32]))
    assert tally.tail_share(0.8) == pytest.approx(1 / 9)
    assert tally.gini() == pytest.approx(0.8 - 1 / 9)
    assert tally.fewest_for_half() == 2


def test_a_long_lorenz_curve_keeps_its_ends_and_its_steep_head():
    counts = np.floor(1e6 / np.arange(1, 20_001)).astype(np.int64)
    tally = Tally.of(counts)
    curve = np.array(tally.lorenz())
    assert len(tally.values) > 1000
    assert 100 <= len(curve) <= 200
    assert curve[0].tolist() == [0, 0]
    assert curve[-1].tolist() == [1, 1]
    assert (np.diff(curve, axis=0) >= 0).all()
    assert np.diff(curve.sum(axis=1)).max() < 0.12
    area = np.sum(np.diff(curve[:, 0]) * (curve[1:, 1] + curve[:-1, 1])) / 2
    assert area == pytest.approx((1 - tally.gini()) / 2, abs=1e-3)


def test_bins_hold_every_member():
    tally = Tally((0, 3, 4, 250), (5, 1, 2, 7))
    assert tally.bins(300)[3:5] == [(3, 3, 1), (4, 4, 2)]
    assert tally.bins(3) == [(0, 83, 8), (84, 167, 0), (168, 251, 7)]
    assert Tally((), ()).bins(4) == []


def test_wrong_options_of_a_tally_are_named():
    tally = Tally((1,), (1,))
    with pytest.raises(ValueError, match=r"`points` must be at least 2; got 1\."):
        tally.lorenz(points=1)
    with pytest.raises(ValueError, match=r"`share` must lie in \[0, 1\]; got 1\.5\."):
        tally.tail_share(1.5)
    with pytest.raises(ValueError, match=r"`most` must be at least 1; got 0\."):
        tally.bins(0)


@pytest.mark.parametrize("seed", range(4))
def test_labels_are_counted_as_by_hand(seed):
    dataset = random_dataset(seed)
    summary = summarise(dataset)
    hot = (dataset.targets > 0).numpy()
    per_label, per_row = hot.sum(0), hot.sum(1)
    assert summary.labels_per_row == Tally.of(per_row)
    assert summary.rows_per_label == Tally.of(per_label)
    assert summary.density == pytest.approx(hot.mean())
    assert summary.rows_without_labels == (per_row == 0).sum()
    assert summary.label_sets == len({row.tobytes() for row in hot})
    seen = [(f"label {label}", int(per_label[label])) for label in range(9) if per_label[label]]
    assert list(summary.most_frequent) == sorted(seen, key=lambda pair: -pair[1])
    assert list(summary.least_frequent) == sorted(seen, key=lambda pair: pair[1])
    unknown = (dataset.targets < 0).numpy()
    assert (summary.unknown.entries, summary.unknown.rows) == (unknown.sum(), unknown.any(1).sum())
    assert summary.unknown.share == pytest.approx(unknown.mean())
    clean = (dataset.true_targets > 0).numpy()
    assert summary.changed.added == (hot & ~clean).sum()
    assert summary.changed.removed == (clean & ~hot).sum()
    assert summary.changed.rows == (clean != hot).any(1).sum()


@pytest.mark.parametrize("seed", range(4))
def test_parts_groups_and_duplicates_are_counted_as_by_hand(seed):
    dataset = random_dataset(seed)
    summary = summarise(dataset)
    split, source = dataset.split, dataset.row_groups["source"]
    hot, part = (dataset.targets > 0).numpy(), split.index.numpy()
    for number, part_summary in enumerate(summary.parts):
        inside = hot[part == number]
        assert (part_summary.name, part_summary.rows) == (split.names[number], len(inside))
        assert part_summary.labels_per_row == pytest.approx(inside.sum() / len(inside))
        assert part_summary.labels_seen == inside.any(0).sum()
    assert summary.rows_without_part == (part < 0).sum() == 1
    (genus,) = summary.label_groups
    members = [dataset.label_groups["genus"].members(f"genus {number}").numpy() for number in range(3)]
    assert (genus.groups, genus.without) == (3, 1)
    assert genus.sizes == Tally.of(np.array([len(labels) for labels in members]))
    assert genus.rows == Tally.of(np.array([hot[:, labels].any(1).sum() for labels in members]))
    (group,) = summary.row_groups
    parts_of = [set(part[source.members(name).numpy()]) - {-1} for name in source.names]
    assert group.across_parts == sum(len(parts) > 1 for parts in parts_of)
    assert group.sizes.total == 60
    assert group.largest[0][1] == max(source.counts().tolist())
    rows = {}
    for row, content in enumerate(dataset.inputs.batch(torch.arange(60)).tolist()):
        rows.setdefault(tuple(content), []).append(row)
    equal = [group for group in rows.values() if len(group) > 1]
    found = summary.duplicates
    assert (found.groups, found.rows) == (len(equal), sum(map(len, equal)))
    assert list(found.first) == [tuple(group) for group in equal[:10]]
    assert found.across_parts == sum(len(set(part[group]) - {-1}) > 1 for group in equal)
    leaked = [row for group in equal for row in group if part[row] > 0 and (part[group] == 0).any()]
    assert found.leaked_rows == len(leaked)
    assert found.different_labels == sum(len({hot[row].tobytes() for row in group}) > 1 for group in equal)


def test_shots_count_training_rows_only():
    counts = {"none": 0, "one": 1, "few": 19, "low": 20, "high": 100, "many": 101, "tested": 0}
    names = tuple(counts)
    labels = [label for label, count in enumerate(counts.values()) for _ in range(count)]
    target = torch.tensor([*labels, 6, 6, 0, 1])
    parts = ["train"] * len(labels) + ["test", "test", "val", "test"]
    dataset = Dataset(Features(torch.zeros(len(target), 1)), target, names, split=Groups.of(parts, order=PARTS))
    summary = summarise(dataset, duplicates=False)
    training = summary.training
    assert training.rows == len(labels)
    assert [(shot.name, shot.labels, shot.entries) for shot in training.shots] == [
        ("few", 4, 20),
        ("medium", 2, 120),
        ("many", 1, 101),
    ]
    assert training.imbalance == 101
    assert training.never == Names(2, ("none", "tested"))
    assert summary.never_seen == Names(0, ())
    assert summary.only_in_test == Names(1, ("tested",))
    assert summary.duplicates is None


def test_without_a_split_all_rows_train_and_without_a_training_part_none_do():
    inputs, target = Texts(["a", "b", "c"]), torch.tensor([0, 0, 1])
    whole = summarise(Dataset(inputs, target, ("x", "y")))
    assert (whole.training.rows, whole.training.imbalance, whole.parts) == (3, 2.0, ())
    only_test = summarise(Dataset(inputs, target, ("x", "y"), split=Groups.of(["test"] * 3)))
    assert only_test.training is None
    assert only_test.only_in_test.count == 2


def test_the_form_of_the_labels_does_not_matter():
    hot = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0]])
    for form, targets in in_all_forms(hot).items():
        summary = summarise(Dataset(Texts(["a", "b", "c", "a"]), targets, tuple("wxyz")))
        assert summary.rows_per_label == Tally((0, 1, 2), (1, 1, 2)), form
        assert summary.labels_per_row == Tally((0, 1, 2), (1, 1, 2)), form
        assert summary.label_sets == 3, form
        assert (summary.duplicates.groups, summary.duplicates.different_labels) == (1, 0), form


EMPTY = {
    "no rows": Dataset(Features(torch.zeros(0, 3)), torch.zeros(0, dtype=torch.int64), ("a", "b")),
    "no labels": Dataset(Texts(["a", "b"]), torch.zeros(2, 0), ()),
    "nothing": Dataset(Texts([]), torch.zeros(0, dtype=torch.int64), (), split=Groups.of([])),
    "no label present": Dataset(Texts(["a"]), torch.zeros(1, 3), ("a", "b", "c"), clean_targets=torch.ones(1, 3)),
    "one label": Dataset(Texts(["a", "b"]), torch.tensor([0, 0]), ("a",), label_groups={"g": Groups.of([None])}),
    "emptied parts": random_dataset(0).subset([]),
}


@pytest.mark.parametrize("name", EMPTY)
def test_every_answer_is_a_finite_python_number_in_json(name):
    summary = summarise(EMPTY[name])
    content = summary.to_json()
    assert (content["format"], content["version"]) == ("shortlist dataset summary", 1)
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert all(type(number) in (int, float, bool) and math.isfinite(number) for number in numbers_in(content))
    assert summary.lorenz[0] == (0, 0)
    assert summary.lorenz[-1] == (1, 1)
    assert summary.gini == 0


def test_json_holds_what_the_summary_holds():
    summary = summarise(random_dataset(1))
    content = summary.to_json()
    assert content["labels_per_row"]["values"] == list(summary.labels_per_row.values)
    assert content["labels_per_row"]["mean"] == summary.labels_per_row.mean
    assert content["gini"] == summary.gini
    assert content["training"]["shots"][0]["name"] == "few"
    assert content["label_groups"][0]["largest"][0] == list(summary.label_groups[0].largest[0])
    assert content["inputs"] == "features"
    assert content["input_shape"] == [3]
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_a_hundred_thousand_labels_stay_small_in_json():
    rng = np.random.default_rng(0)
    entries, labels = 60_000, 100_000
    label = np.minimum((rng.pareto(0.7, entries)).astype(np.int64), labels - 1)
    target = sparse_targets(rng.integers(0, 20_000, entries), label, 20_000, labels)
    names = tuple(map(str, range(labels)))
    summary = summarise(Dataset(Features(torch.zeros(20_000, 1)), target, names), duplicates=False)
    assert summary.labels == summary.rows_per_label.members == labels
    assert summary.rows_per_label.total == summary.labels_per_row.total
    assert len(summary.never_seen.first) == 10
    assert len(json.dumps(summary.to_json())) < 50_000


def test_progress_reports_the_search_for_duplicates():
    reported = []
    summarise(EMPTY["one label"], progress=lambda *state: reported.append(state))
    assert reported == [(2, 2)]
