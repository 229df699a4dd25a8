"""Pairs of objects: numbered without being stored, looked up in batches, described by their geometry."""

import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.data import Dataset
from shortlist.data.object_pairs import GEOMETRY, ObjectPairs, PairBatch, geometry
from shortlist.data.target_rows import sparse_targets

NAMES = ("cup", "table", "d'œil")


def table(counts, **options):
    """Images with some numbers of objects; object i is a box of i + 1 pixels at (i, 2 i)."""
    number = torch.arange(sum(counts), dtype=torch.float32)
    boxes = torch.stack([number, 2 * number, 2 * number + 1, 3 * number + 1], -1)
    starts = torch.tensor([0, *itertools.accumulate(counts)])
    sizes = torch.tensor([[100.0 + i, 200.0] for i in range(len(counts))]).reshape(-1, 2)
    return ObjectPairs(torch.arange(sum(counts)) % 3, boxes, starts, sizes, object_names=NAMES, **options)


def listed(counts):
    """Image, subject and object of all ordered pairs, one by one."""
    pairs, first = [], 0
    for image, count in enumerate(counts):
        pairs += [(image, first + i, first + j) for i in range(count) for j in range(count) if i != j]
        first += count
    return pairs


@pytest.mark.parametrize("counts", [[3], [0, 2, 1, 0, 4, 0], [1, 1], [], [5, 2]])
def test_all_ordered_pairs_stand_by_image_subject_and_object(counts):
    pairs = table(counts)
    members = torch.stack(pairs.members(torch.arange(len(pairs))), -1).tolist()
    assert [tuple(row) for row in members] == listed(counts)
    assert pairs.images().tolist() == [image for image, _, _ in listed(counts)]
    assert pairs.num_images == len(counts)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=6))
def test_the_row_of_a_pair_is_found_again(counts):
    pairs = table(counts)
    rows = torch.arange(len(pairs))
    _, subject, other = pairs.members(rows)
    assert torch.equal(pairs.rows_of(subject, other), rows)


def test_a_batch_has_classes_boxes_and_the_size_of_the_image_of_each_pair():
    pairs = table([2, 3])
    batch = pairs.batch(torch.tensor([7, 0]))  # Objects 4 and 3 of image 1, then 0 and 1 of image 0.
    assert batch.image.tolist() == [1, 0]
    assert batch.subject.tolist() == [4 % 3, 0]
    assert batch.object.tolist() == [3 % 3, 1]
    assert torch.equal(batch.subject_box, pairs.boxes[[4, 0]])
    assert torch.equal(batch.object_box, pairs.boxes[[3, 1]])
    assert batch.image_size.tolist() == [[101, 200], [100, 200]]
    assert pairs.kind == "object pairs"
    assert pairs.object_names == NAMES


def test_listed_pairs_are_the_rows_in_their_order():
    pairs = table([2, 3], pairs=torch.tensor([[4, 2], [0, 1], [4, 2]]))
    batch = pairs.batch(torch.arange(3))
    assert batch.image.tolist() == [1, 0, 1]
    assert torch.equal(batch.subject_box, pairs.boxes[[4, 0, 4]])
    assert torch.equal(batch.object_box, pairs.boxes[[2, 1, 2]])
    assert pairs.images().tolist() == [1, 0, 1]
    assert len(pairs.take(torch.tensor([1]))) == 1


@pytest.mark.parametrize("listing", [None, torch.tensor([[4, 2], [0, 1], [3, 4], [2, 3]])])
def test_taking_twice_is_taking_the_rows_of_the_rows(listing):
    pairs = table([2, 3], pairs=listing)
    part = pairs.take(torch.tensor([3, 1, 2])).take(torch.tensor([2, 0]))
    for got, want in zip(part.batch(torch.tensor([0, 1])), pairs.batch(torch.tensor([2, 3])), strict=True):
        assert torch.equal(got, want)
    assert len(part) == 2
    assert part.images().tolist() == pairs.batch(torch.tensor([2, 3])).image.tolist()
    assert len(pairs) in (4, 8)


def test_a_batch_unpacks_into_fields_and_indexes_pairs():
    batch = table([3]).batch(torch.arange(6))
    image, *_, size = batch
    assert image.shape == (6,)
    assert size.shape == (6, 2)
    assert batch[2].subject == batch.subject[2]
    assert batch[1:3].object_box.shape == (2, 4)
    assert all(torch.equal(a, b) for a, b in zip(pickle.loads(pickle.dumps(batch)), batch, strict=True))


def test_a_dataset_of_pairs_shows_one_pair_as_an_example():
    data = Dataset(table([3]), sparse_targets([4], [1], 6, 2), ("on", "near"))
    example = data[4]
    assert isinstance(example.input, PairBatch)
    assert (int(example.input.subject), int(example.input.object)) == (2, 0)
    assert example.labels == ("near",)
    assert data.subset([4, 0])[0].labels == ("near",)


def test_fingerprints_depend_on_the_content_and_not_on_the_image_number():
    boxes = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3]]).repeat(3, 1)
    sizes = torch.tensor([[9.0, 9.0], [9.0, 9.0], [9.0, 8.0]])
    pairs = ObjectPairs(torch.tensor([0, 1] * 3), boxes, torch.tensor([0, 2, 4, 6]), sizes, object_names=NAMES)
    found = pairs.fingerprints(torch.arange(6))
    assert all(len(one) == 16 for one in found)
    assert found[0] == found[2]
    assert len(set(found)) == 4


def test_millions_of_pairs_are_numbered_by_the_starts_of_the_images_alone():
    images, each = 100_000, 12
    starts = torch.arange(images + 1) * each
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(images * each, 4)
    sizes = torch.ones(1, 2).expand(images, 2)
    pairs = ObjectPairs(torch.zeros(images * each, dtype=torch.int64), boxes, starts, sizes, object_names=NAMES)
    assert len(pairs) == images * each * (each - 1)
    stored = [value for value in vars(pairs).values() if isinstance(value, torch.Tensor)]
    assert max(len(value) for value in stored) == images * each
    image, subject, other = pairs.members(torch.tensor([len(pairs) - 1]))
    assert (int(image), int(subject), int(other)) == (images - 1, images * each - 1, images * each - 2)


def described(subject, other, size=(100.0, 50.0), dtype=torch.float64):
    one = torch.zeros(1, dtype=torch.int64)
    boxes = (torch.tensor([subject], dtype=dtype), torch.tensor([other], dtype=dtype))
    values = geometry(PairBatch(one, one, one, *boxes, torch.tensor([size], dtype=dtype)))
    assert values.dtype == dtype
    return dict(zip(GEOMETRY, values[0].tolist(), strict=True))


def test_geometry_of_a_hand_computed_case():
    found = described([10.0, 10, 30, 20], [20.0, 10, 60, 40])
    want = [0.2, 0.1, 20 / 50, 10 / 30, math.log(2), math.log(3), 100 / 1300, 0.5, 100 / 1200]
    assert list(found.values()) == pytest.approx(want)


def test_touching_boxes_have_half_an_offset_by_size_and_no_overlap():
    found = described([0.0, 0, 10, 10], [10.0, 0, 14, 10])
    assert found["offset x by size"] == pytest.approx(0.5)
    assert found["intersection over union"] == 0


def test_exchanging_the_boxes_turns_the_signs_and_the_shares():
    there, back = described([1.0, 2, 30, 40], [5.0, 5, 90, 20]), described([5.0, 5, 90, 20], [1.0, 2, 30, 40])
    for name in GEOMETRY[:6]:
        assert there[name] == pytest.approx(-back[name])
    assert there["share of subject in object"] == pytest.approx(back["share of object in subject"])


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 1000), min_size=8, max_size=8), st.sampled_from([1e-6, 0.37, 3.0, 1e6]), st.integers(0, 500)
)
def test_geometry_ignores_the_scale_of_the_image_and_the_place_in_it(ends, scale, shift):
    boxes = [[*map(min, a, b), *map(max, a, b)] for a, b in ((ends[:2], ends[2:4]), (ends[4:6], ends[6:]))]
    plain = described(*([float(x) for x in box] for box in boxes), (1500.0, 1200.0))
    scaled = described(*([(x + shift) * scale for x in box] for box in boxes), (1500.0 * scale, 1200.0 * scale))
    assert list(plain.values()) == pytest.approx(list(scaled.values()), abs=1e-7)
    assert all(math.isfinite(value) for value in plain.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("other", [[0.0, 0, 0, 0], [5.0, 0, 5, 9], [0.0, 0, 1e30, 1e30], [3.0, 3, 3, 3]])
def test_geometry_is_finite_for_points_and_lines_and_huge_boxes(other, dtype):
    found = described([3.0, 3, 3, 3], other, (max(100.0, *other), 100.0), dtype)
    assert all(math.isfinite(value) for value in found.values())
    assert all(0 <= found[name] <= 1 for name in GEOMETRY[6:])


def test_geometry_of_no_pairs_has_its_width():
    assert geometry(table([1]).batch(torch.arange(0))).shape == (0, len(GEOMETRY))


GOOD = {
    "classes": torch.tensor([0, 1, 2]),
    "boxes": torch.tensor([[0.0, 0, 1, 1]] * 3),
    "starts": torch.tensor([0, 2, 3]),
    "image_size": torch.ones(2, 2),
    "object_names": NAMES,
}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"classes": torch.tensor([0.0, 1, 2])}, TypeError, "`classes` must be int64; got torch.float32"),
        ({"classes": torch.tensor([0, 3, 2])}, ValueError, r"`classes` row 1: the class must lie in \[0, 3\); got 3"),
        ({"boxes": torch.zeros(3, 4, dtype=torch.int64)}, TypeError, "`boxes` must be floating; got torch.int64"),
        ({"boxes": torch.zeros(2, 4)}, ValueError, r"`boxes` must have shape \(3, 4\); got \(2, 4\)"),
        ({"boxes": torch.tensor([[0.0, 0, 1, 1]] * 2 + [[2.0, 0, 1, 1]])}, ValueError, "`boxes` row 2: the box must"),
        ({"boxes": torch.full((3, 4), torch.nan)}, ValueError, "`boxes` row 0: the box must be finite"),
        ({"starts": torch.tensor([0, 4, 3])}, ValueError, r"`starts` must rise from 0 to 3; got \[0, 4, 3\]"),
        ({"starts": torch.tensor([0, 2, 2])}, ValueError, "`starts` must rise from 0 to 3"),
        ({"image_size": torch.tensor([[1.0, 1], [0, 1]])}, ValueError, "`image_size` row 1: the size must be finite"),
        ({"object_names": ("a", "b", "a")}, ValueError, "`object_names` must differ"),
        ({"pairs": torch.tensor([[0, 1], [1, 2]])}, ValueError, "`pairs` row 1: must be two distinct objects of one"),
        ({"pairs": torch.tensor([[1, 1]])}, ValueError, "`pairs` row 0: must be two distinct objects of one"),
        ({"pairs": torch.tensor([[0, 3]])}, ValueError, r"`pairs` row 0: objects must lie in \[0, 3\); got \[0, 3\]"),
    ],
)
def test_bad_tables_are_refused_with_the_row_named(change, error, text):
    ObjectPairs(**GOOD)
    with pytest.raises(error, match=text):
        ObjectPairs(**{**GOOD, **change})
