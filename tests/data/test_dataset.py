"""A dataset gives the same rows whatever its form, and refuses parts that do not fit together."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shortlist.data import Dataset, Features, Groups, Texts
from shortlist.targets import to_multi_hot, to_sparse
from tests.data.datasets import in_all_forms

examples = settings(derandomize=True, deadline=None, max_examples=25)
NAMES = ("rose", "lily of the valley", "Ährenlilie", "'quoted'")
PARTS = ("train", "val", "test")


def make(targets: Tensor, **options) -> Dataset:
    rows = targets.shape[0]
    return Dataset(Features(torch.arange(rows, dtype=torch.float32)[:, None]), targets, NAMES, **options)


def split_of(rows: int) -> Groups:
    """Parts in turn, every fourth row in none."""
    return Groups.of([(*PARTS, None)[i % 4] for i in range(rows)], order=PARTS)


hot_rows = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), max_size=8).map(
    lambda rows: torch.tensor(rows).reshape(-1, 4)
)


@examples
@given(hot_rows, st.randoms(use_true_random=False))
def test_batches_subsets_examples_and_counts_agree_with_a_loop_in_every_form(hot, rng):
    rows = [rng.randrange(len(hot)) for _ in range(5)] if len(hot) else []
    for name, targets in in_all_forms(hot).items():
        dataset = make(
            targets, split=split_of(len(hot)), row_groups={"twos": Groups.of(i // 2 for i in range(len(hot)))}
        )
        batch = dataset.batch(rows)
        assert batch.rows.tolist() == rows, name
        assert batch.inputs.flatten().tolist() == rows, name
        assert torch.equal(to_multi_hot(batch.targets, 4), hot[rows]), name
        few = dataset.subset(torch.tensor(rows, dtype=torch.int64))
        assert torch.equal(to_multi_hot(few.targets, 4), hot[rows]), name
        assert few.row_group("twos").index.tolist() == [dataset.row_group("twos").index.tolist()[row] for row in rows]
        assert few.inputs.batch(torch.arange(len(rows))).flatten().tolist() == rows
        assert dataset.label_counts().tolist() == hot.sum(0).tolist(), name
        for row in range(len(hot)):
            example = dataset[row]
            assert example.input.tolist() == [row]
            assert set(example.labels) == {NAMES[label] for label in range(4) if hot[row, label]}, name
            assert example.unknown == ()
            assert example.split == (*PARTS, None)[row % 4]


@examples
@given(hot_rows)
def test_parts_are_the_rows_of_the_split(hot):
    for targets in in_all_forms(hot).values():
        dataset = make(targets, split=split_of(len(hot)))
        for place, part in enumerate(PARTS):
            if part not in dataset.split.names:
                continue
            rows = list(range(place, len(hot), 4))
            assert dataset.part_rows(part).tolist() == rows
            assert torch.equal(to_multi_hot(dataset.part(part).targets, 4), hot[rows])
            assert dataset.label_counts(part).tolist() == hot[rows].sum(0).tolist()


def test_unknown_labels_are_named_apart_and_never_counted():
    hot = torch.tensor([[1.0, -1.0, 0.0, 1.0], [-1.0, 0.0, 0.0, 0.0]])
    for targets in (hot, to_sparse(hot, 4), to_sparse(hot, 4, layout=torch.sparse_csr)):
        dataset = make(targets)
        assert dataset[0].labels == ("rose", "'quoted'")
        assert dataset[0].unknown == ("lily of the valley",)
        assert dataset[1].labels == ()
        assert dataset[-1].unknown == ("rose",)
        assert dataset.label_counts().tolist() == [1, 0, 0, 1]
        assert dataset.label_counts().dtype == torch.int64


def test_a_loop_over_a_dataset_ends():
    assert [example.input.item() for example in make(torch.tensor([0, 1, 2]))] == [0, 1, 2]


@pytest.mark.parametrize(
    "targets",
    [
        torch.empty(0, dtype=torch.int64),
        torch.empty(0, 2, dtype=torch.int64),
        torch.empty(0, 4),
        to_sparse(torch.empty(0, 4), 4),
        to_sparse(torch.empty(0, 4), 4, layout=torch.sparse_csr),
    ],
)
def test_a_dataset_may_be_empty(targets):
    dataset = make(targets, split=Groups.of([]), row_groups={"source": Groups.of([])})
    assert len(dataset) == len(dataset.subset([])) == 0
    assert dataset.label_counts().tolist() == [0, 0, 0, 0]
    assert len(dataset.batch([]).inputs) == 0
    assert list(dataset) == []  # pyright: ignore[reportArgumentType]
    with pytest.raises(IndexError, match="got 0"):
        dataset[0]


def test_no_labels_at_all_are_labels_too():
    dataset = Dataset(Features(torch.zeros(2, 1)), torch.zeros(2, 0), ())
    assert dataset.num_labels == 0
    assert dataset[1].labels == ()
    assert dataset.label_counts().tolist() == []


def test_clean_labels_follow_the_rows_and_are_what_counts_for_evaluation():
    noisy, clean = torch.tensor([1, 1, 2]), torch.eye(4)[[0, 1, 2]]
    dataset = make(noisy, clean_targets=clean)
    assert dataset.true_targets is clean
    assert make(noisy).true_targets is noisy
    few = dataset.subset([2, 0])
    assert few.clean_targets.tolist() == clean[[2, 0]].tolist()
    assert few.targets.tolist() == [2, 1]


def test_opening_and_narrowing_read_no_inputs():
    class Unread:
        kind = "features"

        def __init__(self, size: int) -> None:
            self.size = size

        def __len__(self) -> int:
            return self.size

        def batch(self, rows):
            raise AssertionError("read")

        def take(self, rows):
            return Unread(len(rows))

        def fingerprints(self, rows):
            raise AssertionError("read")

    dataset = Dataset(Unread(4), torch.tensor([0, 1, 1, 3]), NAMES, split=split_of(4))
    assert len(dataset.part("train")) == 1
    assert dataset.subset([3, 3]).label_counts().tolist() == [0, 0, 0, 2]


def test_without_a_split_all_rows_are_for_training():
    dataset = make(torch.tensor([0, 1]))
    assert dataset.part_rows("train").tolist() == [0, 1]
    assert len(dataset.part("train")) == 2
    assert dataset[0].split is None
    with pytest.raises(ValueError, match=r"^`name` must be 'train' if the dataset has no split; got 'test'\.$"):
        dataset.part("test")


def test_parts_may_have_any_name():
    dataset = make(torch.tensor([0, 1, 2]), split=Groups.of(["dev", "train", "dev"]))
    assert dataset.part_rows("dev").tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"^`name` must be one of dev, train; got 'val'\.$"):
        dataset.part("val")


def test_missing_groups_are_refused_with_those_that_there_are():
    groups = {"superclass": Groups.of("aabb"), "genus": Groups.of("abcd")}
    dataset = make(torch.tensor([0]), label_groups=groups)
    assert dataset.label_group("genus").names == ("a", "b", "c", "d")
    with pytest.raises(
        ValueError, match=r"^`label_groups` of the dataset must have 'family'; it has genus, superclass\.$"
    ):
        dataset.label_group("family")
    with pytest.raises(ValueError, match=r"^`row_groups` of the dataset must have 'year'; it has nothing\.$"):
        dataset.row_group("year")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"targets": torch.tensor([0, 1])}, r"`targets` must have a row for each of 3 inputs; got 2"),
        ({"clean_targets": torch.zeros(4, 4)}, r"`clean_targets` must have a row for each of 3 inputs; got 4"),
        ({"targets": torch.zeros(3, 5)}, r"size 4; got shape \(3, 5\)"),
        ({"label_names": ("a", "b", "a", "c")}, r"`label_names` must differ; positions 0 and 2 are both 'a'"),
        ({"label_groups": {"genus": Groups.of("aab")}}, r"`label_groups` 'genus' must have .* 4 labels; got 3"),
        ({"row_groups": {"source": Groups.of("aabb")}}, r"`row_groups` 'source' must have .* 3 rows; got 4"),
        ({"split": Groups.of(["train"])}, r"`split` must have a member for each of 3 rows; got 1"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(change, text):
    with pytest.raises(ValueError, match=rf"{text}\.$"):
        replace(make(torch.tensor([0, 1, 2])), **change)


def test_labels_of_no_form_are_refused():
    with pytest.raises(TypeError, match="`targets` must"):
        make(torch.tensor([0, 1], dtype=torch.int32))


def test_rows_outside_the_dataset_and_masks_are_refused():
    dataset = make(torch.tensor([0, 1, 2]))
    for read in (dataset.batch, dataset.subset):
        with pytest.raises(IndexError, match=r"^`rows` must lie in \[0, 3\); got 3\.$"):
            read([0, 3])
        with pytest.raises(TypeError, match=r"^`rows` must be integers"):
            read(np.array([False, True, True]))


@pytest.mark.parametrize("row", [3, -4])
def test_a_row_outside_the_dataset_is_refused(row):
    with pytest.raises(IndexError, match=rf"^`row` must lie in \[-3, 2\]; got {row}\.$"):
        make(torch.tensor([0, 1, 2]))[row]


def test_a_dataset_travels_to_other_processes():
    dataset = Dataset(Texts(["a", "b"]), to_sparse(torch.eye(2), 2, layout=torch.sparse_csr), ("x", "y"))
    back = pickle.loads(pickle.dumps(dataset))
    assert back[1] == dataset[1]
    assert torch.equal(back.targets.to_dense(), torch.eye(2))
