"""Order of training rows, shares of processes, and random crops: functions of seed and epoch."""

import re
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.train.inputs import EpochBatches, crop_flip, validation_batches


def epochs(num_rows: int, batch_size: int, *, first: int = 0, last: int = 3, **options) -> list[list[list[int]]]:
    """The batches of some epochs of one run."""
    batches = EpochBatches(num_rows, batch_size, **{"seed": 0, **options})
    found = []
    for epoch in range(first, last):
        batches.set_epoch(epoch)
        found.append(list(batches))
        assert len(found[-1]) == len(batches)
    return found


@pytest.mark.parametrize(
    ("num_rows", "batch_size", "last"),
    [
        (1, 1, 1),
        (3, 1, 1),
        (1, 4, 1),
        (5, 2, 3),
        (6, 2, 2),
        (7, 100, 7),
        (100, 7, 2),
        (99, 7, 8),
        (64, 64, 64),
        (65, 64, 65),
    ],
)
def test_an_epoch_holds_every_row_once_and_a_single_last_row_joins_the_batch_before_it(num_rows, batch_size, last):
    for batches in epochs(num_rows, batch_size):
        assert sorted(row for batch in batches for row in batch) == list(range(num_rows))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        assert len(batches[-1]) == last


@given(
    processes=st.integers(1, 4),
    batch_size=st.integers(4, 12),
    num_rows=st.integers(4, 60),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 1000),
)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_processes_share_the_batches_of_one(processes, batch_size, num_rows, seed, epoch):
    options = {"first": epoch, "last": epoch + 1, "seed": seed}
    (alone,) = epochs(num_rows, batch_size, **options)
    shares = [
        epochs(num_rows, batch_size, process=process, processes=processes, **options)[0] for process in range(processes)
    ]
    assert {len(share) for share in shares} == {len(alone)}
    for batch, *parts in zip(alone, *shares, strict=True):
        assert sorted(row for part in parts for row in part) == sorted(batch)
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1 or len(batch) < processes  # which only the last one can be


@pytest.mark.parametrize("processes", [1, 3])
def test_an_epoch_is_the_same_whether_or_not_those_before_it_were_run(processes):
    through = epochs(50, 8, last=6, processes=processes)
    for epoch in range(6):
        assert epochs(50, 8, first=epoch, last=epoch + 1, processes=processes) == [through[epoch]]


def test_the_order_does_not_touch_the_chance_of_others():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    epochs(50, 8)
    assert torch.equal(torch.get_rng_state(), before)


def test_epochs_and_seeds_differ():
    orders = [
        tuple(row for batch in batches for row in batch)
        for seed in [*range(20), -1, 10**6, 2**31]
        for batches in epochs(30, 8, last=20, seed=seed)
    ]
    assert len(set(orders)) == len(orders)


def test_all_rows_are_as_likely_to_come_first():
    firsts = [batches[0][0] for batches in epochs(5, 5, last=2000)]
    counts = [firsts.count(row) for row in range(5)]
    assert all(abs(count - 400) < 90 for count in counts)  # 5 standard deviations of a binomial


@given(num_rows=st.integers(0, 60), processes=st.integers(1, 7), most=st.integers(2, 9))
@settings(derandomize=True, deadline=None, max_examples=200)
def test_validation_rows_are_shared_out_once_each_in_equally_many_batches(num_rows, processes, most):
    shares = [validation_batches(num_rows, process, processes, most=most) for process in range(processes)]
    assert sorted(row for share in shares for batch in share for row in batch) == list(range(num_rows))
    assert len({len(share) for share in shares}) == 1
    assert all(len(batch) <= most for share in shares for batch in share)
    # A batch is empty only where there are more processes than rows.
    assert num_rows < processes or all(batch for share in shares for batch in share)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3, 8), {"processes": 4}, "`num_rows` must be at least the number of processes, 4; got 3."),
        ((8, 1), {"processes": 2}, "`batch_size` must be at least the number of processes, 2; got 1."),
        ((8, 4), {"process": 2, "processes": 2}, "`process` must lie in [0, 2), the number of processes; got 2."),
    ],
)
def test_processes_without_rows_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        EpochBatches(*arguments, seed=0, **options)


def test_last_batches_may_be_smaller_than_the_number_of_processes():
    assert [len(batch) for batch in epochs(10, 4, last=1, process=2, processes=3)[0]] == [1, 1, 0]
    assert [len(batch) for batch in validation_batches(2500)] == [1024, 1024, 452]
    assert [len(batch) for batch in validation_batches(2049, 1, 2)] == [1023, 1]
    assert validation_batches(0) == [[]]


def numbered(rows: int, height: int = 5, width: int = 7) -> torch.Tensor:
    """Images whose pixels all differ, and none is black."""
    pixels = torch.arange(1, 2 * height * width + 1, dtype=torch.uint8).view(2, height, width)
    return pixels.expand(rows, -1, -1, -1).contiguous()


def variants(image: torch.Tensor) -> dict[tuple[int, int, bool], torch.Tensor]:
    """All that may become of an image, one by one."""
    _, height, width = image.shape
    found = {}
    for top in range(9):
        for left in range(9):
            canvas = torch.zeros(2, height + 8, width + 8, dtype=image.dtype)
            canvas[:, 4 : 4 + height, 4 : 4 + width] = image
            crop = canvas[:, top : top + height, left : left + width]
            found[top, left, False], found[top, left, True] = crop, crop.flip(-1)
    return found


def test_every_image_is_one_of_its_crops_and_all_crops_are_as_likely():
    torch.manual_seed(0)
    batch = numbered(8100, height=9, width=10)
    keys = {value.numpy().tobytes(): key for key, value in variants(batch[0]).items()}
    assert len(keys) == 162
    counts = Counter(keys[image.numpy().tobytes()] for image in crop_flip(batch))
    assert len(counts) == 162
    # 50 are expected of each; the statistic has a mean of 161 and a deviation of 18.
    assert sum((count - 50) ** 2 / 50 for count in counts.values()) < 161 + 4 * 18


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 3, 8, 6), (2, 1, 1, 1), (0, 3, 4, 4), (4, 2, 40, 3)])
def test_shape_and_dtype_stay_and_so_does_the_batch_that_was_given(dtype, shape):
    given = torch.randint(1, 256, shape).to(dtype)
    before = given.clone()
    changed = crop_flip(given)
    assert (changed.shape, changed.dtype) == (given.shape, dtype)
    assert torch.equal(given, before)


def test_the_seed_of_torch_decides():
    given = numbered(50)
    torch.manual_seed(5)
    first, second = crop_flip(given), crop_flip(given)
    torch.manual_seed(5)
    assert torch.equal(crop_flip(given), first)
    assert not torch.equal(first, second)
