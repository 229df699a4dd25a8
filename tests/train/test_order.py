"""The order of rows depends on the seed and the epoch alone, however many processes there are."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shortlist.train.inputs import EpochBatches, validation_batches


def epochs(num_rows: int, batch_size: int, *, first: int = 0, last: int = 3, **options) -> list[list[list[int]]]:
    """The batches of some epochs of one run."""
    batches = EpochBatches(num_rows, batch_size, **{"seed": 0, **options})
    found = []
    for epoch in range(first, last):
        batches.set_epoch(epoch)
        found.append(list(batches))
        assert len(found[-1]) == len(batches)
    return found


@pytest.mark.parametrize(("num_rows", "batch_size"), [(1, 1), (5, 2), (6, 2), (7, 100), (100, 7), (64, 64)])
def test_an_epoch_holds_every_row_once(num_rows, batch_size):
    for batches in epochs(num_rows, batch_size):
        assert sorted(row for batch in batches for row in batch) == list(range(num_rows))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        assert len(batches[-1]) == (num_rows - 1) % batch_size + 1


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


def test_each_process_takes_every_so_many_th_row():
    (alone,) = epochs(20, 7, last=1)
    for process in range(3):
        (share,) = epochs(20, 7, last=1, process=process, processes=3)
        assert share == [batch[process::3] for batch in alone]


@pytest.mark.parametrize("processes", [1, 3])
def test_an_epoch_is_the_same_whether_or_not_those_before_it_were_run(processes):
    through = epochs(50, 8, last=6, processes=processes)
    for epoch in range(6):
        assert epochs(50, 8, first=epoch, last=epoch + 1, processes=processes) == [through[epoch]]


def test_an_epoch_that_was_left_halfway_begins_anew():
    batches = EpochBatches(50, 8, seed=0)
    first = next(iter(batches))
    assert next(iter(batches)) == first


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


def test_a_last_batch_smaller_than_the_processes_is_learned_from_all_the_same():
    assert [len(batch) for batch in epochs(9, 4, last=1, process=0, processes=2)[0]] == [2, 2, 1]
    assert [len(batch) for batch in epochs(9, 4, last=1, process=1, processes=2)[0]] == [2, 2, 0]
    assert [len(batch) for batch in epochs(10, 4, last=1, process=1, processes=2)[0]] == [2, 2, 1]


@pytest.mark.parametrize(("num_rows", "processes"), [(0, 1), (1, 2), (3, 4)])
def test_fewer_rows_than_processes_are_refused(num_rows, processes):
    message = rf"`num_rows` must be at least the number of processes, {processes}; got {num_rows}."
    with pytest.raises(ValueError, match=message):
        EpochBatches(num_rows, 8, seed=0, processes=processes)


@pytest.mark.parametrize(("batch_size", "processes"), [(0, 1), (-1, 1), (1, 2), (3, 4)])
def test_batches_smaller_than_the_processes_are_refused(batch_size, processes):
    message = rf"`batch_size` must be at least the number of processes, {processes}; got {batch_size}."
    with pytest.raises(ValueError, match=message):
        EpochBatches(8, batch_size, seed=0, processes=processes)


@pytest.mark.parametrize("process", [-1, 2])
def test_a_process_is_one_of_those_there_are(process):
    with pytest.raises(ValueError, match=rf"`process` must lie in \[0, 2\), the number of processes; got {process}."):
        EpochBatches(8, 4, seed=0, process=process, processes=2)


@given(num_rows=st.integers(0, 60), processes=st.integers(1, 7), most=st.integers(2, 9))
@settings(derandomize=True, deadline=None, max_examples=200)
def test_validation_rows_are_shared_out_once_each_in_equally_many_batches(num_rows, processes, most):
    shares = [validation_batches(num_rows, process, processes, most=most) for process in range(processes)]
    assert sorted(row for share in shares for batch in share for row in batch) == list(range(num_rows))
    assert len({len(share) for share in shares}) == 1
    assert all(len(batch) <= most for share in shares for batch in share)
    # A batch is empty only where there are more processes than rows.
    assert num_rows < processes or all(batch for share in shares for batch in share)


def test_one_process_measures_full_batches():
    assert [len(batch) for batch in validation_batches(2500)] == [1024, 1024, 452]
    assert [len(batch) for batch in validation_batches(2049, 1, 2)] == [1023, 1]
    assert validation_batches(0) == [[]]
