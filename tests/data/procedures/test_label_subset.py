"""Fewer labels: numbered anew, with the rows that have one, in every form; whole genera at the published scale."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist.data import (
    Dataset,
    Features,
    Groups,
    frequent_labels,
    hide_labels,
    keep_labels,
    label_noise,
    sample_groups,
    split_per_class,
)
from shortlist.data.draws import Draws
from shortlist.targets import check_target, to_multi_hot
from tests.data.datasets import dataset_of, in_all_forms, rows_of, values_of

examples = settings(derandomize=True, deadline=None, max_examples=20)
N = 5
GENUS = Groups(torch.tensor([0, 1, 0, 2, -1]), ("x", "y", "z"))


def make(targets: Tensor, **options) -> Dataset:
    return dataset_of(targets, labels=N, label_groups={"genus": GENUS}, **options)


hot_rows = st.lists(st.lists(st.sampled_from([0.0, 0.0, 1.0, -1.0]), min_size=N, max_size=N), max_size=8).map(
    lambda rows: torch.tensor(rows).reshape(-1, N)
)


@examples
@given(hot_rows, st.lists(st.integers(0, N - 1), unique=True))
def test_labels_rows_names_and_groups_agree_with_a_loop_in_every_form(hot, labels):
    kept = [r for r, row in enumerate(hot.tolist()) if not any(row) or any(row[label] for label in labels)]
    for targets in [*in_all_forms(hot).values(), *in_all_forms(hot.abs()).values()]:
        signed = to_multi_hot(targets, N)
        split = Groups.of(["train"] * len(hot))
        few = keep_labels(make(targets, split=split, row_groups={"r": Groups.of(range(len(hot)))}), labels)
        check_target(few.targets, len(labels))
        assert rows_of(few) == kept
        assert torch.equal(to_multi_hot(few.targets, len(labels)), signed[kept][:, labels])
        assert few.label_names == tuple("abcde"[label] for label in labels)
        assert len(few.split) == len(few.row_group("r")) == len(kept)
        genus = few.label_group("genus")
        names = values_of(genus)
        assert names == [("x", "y", "x", "z", None)[label] for label in labels]
        assert (genus.counts() > 0).all()


@examples
@given(st.lists(st.integers(0, N - 1), max_size=10), st.lists(st.integers(0, N - 1), unique=True))
def test_class_indices_stay_class_indices(classes, labels):
    few = keep_labels(make(torch.tensor(classes, dtype=torch.int64)), labels)
    assert few.targets.dtype == torch.int64
    assert few.targets.tolist() == [labels.index(label) for label in classes if label in labels]
    assert rows_of(few) == [row for row, label in enumerate(classes) if label in labels]


def test_a_row_needs_a_class_to_be_evaluated_on():
    superclass = {"superclass": Groups(torch.zeros(N, dtype=torch.int64), ("all",))}
    clean = replace(make(torch.arange(N).repeat(40)), label_groups=superclass)
    noisy = label_noise(clean, 1.0, others_only=True)
    few = keep_labels(noisy, [3, 1])
    expected = [
        row
        for row, (new, old) in enumerate(zip(noisy.targets.tolist(), clean.targets.tolist(), strict=True))
        if new in (3, 1) and old in (3, 1)
    ]
    assert rows_of(few) == expected
    assert few.clean_targets.tolist() == [[3, 1].index(row % N) for row in expected]


def test_rows_whose_labels_are_hidden_stay_to_be_evaluated_on():
    hidden = hide_labels(make(torch.ones(6, N)), 1.0)
    few = keep_labels(hidden, [4, 0])
    assert len(few) == 6
    assert few.label_counts().tolist() == [0, 0]
    assert to_multi_hot(few.clean_targets, 2).tolist() == [[1, 1]] * 6


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([0, 1, 0], r"`labels` must hold each label once"),
        ([0, 5], r"`labels` must lie in \[0, 5\); got 5"),
        ([-1], r"`labels` must lie in \[0, 5\); got -1"),
    ],
)
def test_labels_that_are_none_or_come_twice_are_refused(labels, text):
    with pytest.raises(ValueError, match=rf"^{text}\.$"):
        keep_labels(make(torch.tensor([0])), labels)


@examples
@given(hot_rows, st.integers(0, 3), st.sampled_from([None, "train", "test"]))
def test_frequent_labels_are_present_often_enough(hot, least, part):
    parts = ["train" if i % 3 else "test" for i in range(len(hot))]
    assume(part is None or part in parts)
    dataset = make(hot, split=Groups.of(parts))
    counted = [row for row, own in zip(hot.tolist(), parts, strict=True) if part in (None, own)]
    often = [label for label in range(N) if sum(row[label] == 1 for row in counted) >= least]
    few = frequent_labels(dataset, least, part=part)
    assert few.label_names == tuple("abcde"[label] for label in often)
    assert torch.equal(
        to_multi_hot(few.targets, len(often)), to_multi_hot(keep_labels(dataset, often).targets, len(often))
    )


def species_table() -> tuple[Dataset, np.ndarray, np.ndarray]:
    """Simulated plants, long-tailed: 3,030 genera of one to seven species, of which a tenth is 303."""
    draws = Draws(0, "species table of the tests")
    species_of_genus = 1 + draws.below(np.full(3030, 7))
    genus = np.repeat(np.arange(3030), species_of_genus)
    # Between 1 and 400 images, most of them few: the density falls as 1 / n.
    images = np.floor(400 ** draws.uniform(len(genus))).astype(np.int64)
    classes = np.repeat(np.arange(len(genus)), images)[draws.order(int(images.sum()))]
    dataset = Dataset(
        Features(np.zeros((len(classes), 1), dtype=np.uint8)),
        torch.from_numpy(classes),
        tuple(f"species {i}" for i in range(len(genus))),
        label_groups={"genus": Groups(torch.from_numpy(genus), tuple(f"genus {i}" for i in range(3030)))},
    )
    return dataset, genus, images


def test_a_tenth_of_the_genera_is_kept_whole_but_for_species_of_four_images_or_less():
    dataset, genus, images = species_table()
    few = sample_groups(dataset, 0.1, seed=2)
    chosen = [
        int(name.split()[1]) for name in sample_groups(dataset, 0.1, min_count=0, seed=2).label_group("genus").names
    ]
    assert len(chosen) == 303
    expected = np.flatnonzero(np.isin(genus, chosen) & (images > 4))
    assert 0 < len(expected) < np.isin(genus, chosen).sum()
    assert few.label_names == tuple(f"species {i}" for i in expected)
    assert few.label_counts().tolist() == images[expected].tolist()
    assert len(few) == images[expected].sum()
    # Genera whose species all have four images or less leave no trace.
    assert len(few.label_group("genus").names) == len(np.unique(genus[expected]))
    split = split_per_class(few).split
    tenth = sum(-(-count // 10) for count in images[expected].tolist())
    assert split.counts().tolist() == [len(few) - 2 * tenth, tenth, tenth]


def test_each_genus_is_chosen_equally_often():
    groups = Groups(torch.arange(8) // 2, tuple("wxyz"))
    dataset = Dataset(Features(torch.zeros(8, 1)), torch.arange(8), tuple("abcdefgh"), label_groups={"genus": groups})
    counts = Counter(
        name for seed in range(600) for name in sample_groups(dataset, 0.5, min_count=1, seed=seed).label_names
    )
    assert counts["a"] == counts["b"]
    assert counts["g"] == counts["h"]
    assert sum(counts.values()) == 4 * 600
    assert all(abs(counts[name] - 300) < 4 * 150**0.5 for name in "aceg")


@pytest.mark.parametrize(("share", "genera"), [(0, 0), (0.1, 1), (0.3, 3), (0.31, 4), (0.7, 7), (1, 10)])
def test_shares_of_groups_are_rounded_up_as_decimals(share, genera):
    groups = {"genus": Groups(torch.arange(10), tuple("abcdefghij"))}
    dataset = Dataset(Features(torch.zeros(10, 1)), torch.arange(10), tuple("abcdefghij"), label_groups=groups)
    assert sample_groups(dataset, share, min_count=1).num_labels == genera


def test_labels_without_a_group_are_never_sampled():
    assert sample_groups(make(torch.ones(10, N)), 1.0).label_names == ("a", "b", "c", "d")


def test_the_least_count_is_kept():
    dataset = make(torch.tensor([0] * 4 + [2] * 5))
    assert sample_groups(dataset, 1.0).label_names == ("c",)
    assert sample_groups(dataset, 1.0, min_count=4).label_names == ("a", "c")
