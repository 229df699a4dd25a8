"""Estimates agree with what training needs: every allocation, and the process as a whole."""

import math
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from torch.autograd.profiler import profile

from shortlist import factory, nn
from shortlist.kernels import chooser
from shortlist.label_axis import linear_blocks
from shortlist.memory import LOSSES, OPTIMIZERS, MemoryEstimate, estimate_memory
from tests.python_process import run_python

CLEAR = Path("/proc/self/clear_refs")
"""Writing 5 here resets the peak of the resident memory."""

ROWS, LABELS, POSITIVES, K = 64, 12_000, 5, 20
MAKE_OPTIMIZER = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9),
    "sgd": torch.optim.SGD,
}
CLOSE = 0.15
"""The largest relative error of an estimate."""


def train(loss: str, head: str, features: int, dtype: torch.dtype, optimizer: str, steps: int = 2) -> None:
    """A few steps in the order of Lightning: gradients are reset after the forward pass."""
    make = nn.ChunkedHead if head == "chunked" else torch.nn.Linear
    layer = make(features, LABELS, dtype=dtype)
    inputs = torch.randn(ROWS, features, dtype=dtype).requires_grad_()
    lists = torch.arange(ROWS * POSITIVES).view(ROWS, POSITIVES)
    chosen = factory.LOSSES[loss]
    target = lists[:, 0].clone() if chosen.one_class else lists
    module = chosen.from_task(nn.Task(LABELS, torch.ones(LABELS), ROWS, K))
    stepping = MAKE_OPTIMIZER[optimizer](layer.parameters())
    for _ in range(steps):
        value = module(layer(inputs), target)
        stepping.zero_grad()
        inputs.grad = None
        value.backward()
        stepping.step()


def peak_of(run: Callable[[], object]) -> int:
    """The most bytes that tensors held at any moment, from every allocation and release in order."""
    with profile(use_cpu=True, profile_memory=True) as recorded:
        run()
    events = recorded.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(change for _, change in changes))


def measured(loss: str, head: str, *, features: int, dtype: str = "float32", optimizer: str = "sgd") -> tuple[int, int]:
    """The peak of training, and the estimate."""
    peak = peak_of(lambda: train(loss, head, features, getattr(torch, dtype), optimizer))
    options = {"features": features, "dtype": dtype, "optimizer": optimizer}
    return peak, estimate_memory(rows=ROWS, labels=LABELS, loss=loss, head=head, **options).total


@pytest.fixture
def _small_blocks(monkeypatch):
    monkeypatch.setattr(linear_blocks, "ENTRIES", 1 << 16)


@pytest.fixture(autouse=True)
def _no_loops(monkeypatch):
    monkeypatch.setattr(chooser, "LEAST_ENTRIES", math.inf)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("features", [8, 100])
@pytest.mark.parametrize("head", ["plain", "chunked"])
@pytest.mark.parametrize("loss", LOSSES)
def test_an_estimate_is_close_to_the_allocations(loss, head, features):
    peak, expected = measured(loss, head, features=features)
    assert peak == pytest.approx(expected, rel=CLOSE)


def test_the_kernel_of_lml_needs_less_than_the_estimate(monkeypatch):
    monkeypatch.setattr(chooser, "LEAST_ENTRIES", 1)
    peak, expected = measured("lml_nll", "plain", features=8)
    assert 0.4 * expected < peak < 0.8 * expected


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_optimizer_needs_what_is_estimated(optimizer):
    peak, expected = measured("bce", "chunked", features=100, optimizer=optimizer)
    assert peak == pytest.approx(expected, rel=CLOSE)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("head", ["plain", "chunked"])
def test_double_precision_needs_twice_as_much(head):
    peak, expected = measured("lml_nll", head, features=32, dtype="float64")
    assert peak == pytest.approx(expected, rel=CLOSE)
    assert expected == pytest.approx(2 * measured("lml_nll", head, features=32)[1], rel=0.01)


def test_processes_share_the_labels_but_not_the_features():
    sizes = {"rows": 256, "labels": 10_001, "features": 32, "loss": "two_way", "head": "plain"}
    alone, shared = estimate_memory(**sizes), estimate_memory(**sizes, processes=4)
    assert shared.parameters == 2501 * 33 * 4
    assert shared.features == alone.features
    assert shared.loss == pytest.approx(alone.loss / 4, rel=1e-3)


def test_the_block_size_is_that_of_the_layer():
    sizes = {"rows": 256, "labels": 100_000, "features": 32, "loss": "bce", "head": "chunked"}
    assert estimate_memory(**sizes, label_block=1000).loss == 10 * estimate_memory(**sizes, label_block=100).loss
    assert estimate_memory(**sizes, label_block=10**9).loss == estimate_memory(**sizes, label_block=10**5).loss


def test_half_precision_halves_the_layer_and_computes_in_single():
    sizes = {"rows": 256, "labels": 100_000, "features": 32, "loss": "bce"}
    half, single = (estimate_memory(**sizes, dtype=dtype) for dtype in ("bfloat16", "float32"))
    assert half.parameters * 2 == single.parameters
    assert single.loss < half.loss < 1.4 * single.loss


def test_the_total_is_what_persists_and_the_larger_peak():
    found = MemoryEstimate(1, 2, 4, 8, 16, 32)
    assert found.total == found.parts()["peak"] == 1 + 2 + 4 + 8 + 32
    assert MemoryEstimate(1, 2, 4, 8, 64, 32).total == 1 + 2 + 4 + 8 + 64
    assert str(found).splitlines()[-1] == "peak                       0.046 KiB"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rows": 0}, ValueError, "`rows` must be at least 1; got 0"),
        ({"labels": 1.5}, TypeError, "`labels` must be a whole number; got 1.5"),
        ({"label_block": 0}, ValueError, "`label_block` must be at least 1; got 0"),
        ({"loss": "hinge"}, ValueError, "`loss` must be one of truncated_topk_entropy, asymmetric, .*; got 'hinge'"),
        ({"head": "dense"}, ValueError, "`head` must be one of plain, chunked; got 'dense'"),
        ({"dtype": "int8"}, ValueError, "`dtype` must be one of float64, float32, bfloat16, float16; got 'int8'"),
        ({"optimizer": "lion"}, ValueError, "`optimizer` must be one of adam, adamw, .*; got 'lion'"),
        ({"processes": 0}, ValueError, "`processes` must be at least 1; got 0"),
    ],
)
def test_wrong_arguments_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        estimate_memory(**{"rows": 2, "labels": 3, "features": 4, "loss": "bce", **change})


@pytest.mark.slow
@pytest.mark.skipif(not CLEAR.exists(), reason="peaks are measured on Linux")
@pytest.mark.parametrize("head", ["plain", "chunked"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_process_needs_what_is_estimated(loss, head):
    labels, features = 200_000, 128
    code = (
        "import torch; from pathlib import Path; from tests import test_memory as here\n"
        f"call = ({loss!r}, {head!r}, {features}, torch.float32, 'sgd')\n"
        "def resident(field):\n"
        "    lines = Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))\n"
        "here.train(*call)\n"
        f"here.ROWS, here.LABELS = 256, {labels}\n"
        "here.CLEAR.write_text('5')\n"
        "before = resident('VmRSS')\n"
        "here.train(*call)\n"
        "print(resident('VmHWM') - before)\n"
    )
    # Freed memory goes back to the system at once; loops are not compiled.
    limits = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "NUMBA_DISABLE_JIT": "1"}
    run = run_python("-c", code, **limits)
    options = {"features": features, "head": head, "optimizer": "sgd"}
    expected = estimate_memory(rows=256, labels=labels, loss=loss, **options).total
    assert int(run.stdout) == pytest.approx(expected, rel=CLOSE)
