"""Exported heads answer in onnxruntime as they do here, on batches of another size too."""

import pytest
import torch

from shortlist.nn import DFTHead
from tests.contracts import HEADS
from tests.nn import test_onnx
from tests.nn.test_onnx import close, export

pytestmark = test_onnx.pytestmark


def features(rows: int, size: int) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(head, id=str(head), marks=[pytest.mark.slow] * (str(head) not in ("DFTHead", "TwoHead")))
        for head in HEADS
    ],
)
def test_an_exported_head_agrees_on_other_batch_sizes_and_zeros(head):
    layer = head(5, 9).eval()
    run = export(layer, features(4, 5))
    for x in (features(4, 5), features(7, 5), features(1, 5), torch.zeros(2, 5)):
        logits = layer(x)
        first = logits[0] if isinstance(logits, tuple) else logits
        assert close(run(x), first.detach())


def test_a_head_that_uses_the_fft_is_exported_as_a_product():
    layer = DFTHead(5, 1024, 90, 2).eval()
    assert layer.matrix is None
    run = export(layer, features(4, 5))
    assert close(run(features(7, 5)), layer(features(7, 5)).detach())
