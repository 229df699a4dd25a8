"""Training images are moved and mirrored, each by its own chance, and a run that was interrupted repeats it."""

from collections import Counter

import pytest
import torch

from shortlist.train import SetClassifier, SetModel, fit, load_model, save_model
from shortlist.train.inputs import crop_flip
from tests.train.small_data import images, quick
from tests.train.test_resume import cut_short, equal

CHANGED = quick(epochs=2, patience=0, encoder="linear", learning_rate=0.05, augmentation="crop-flip")


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


def test_images_that_are_not_contiguous_are_cropped_alike():
    given = torch.randint(0, 256, (6, 9, 8, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    torch.manual_seed(1)
    wanted = crop_flip(given.contiguous())
    torch.manual_seed(1)
    assert torch.equal(crop_flip(given), wanted)


def test_the_seed_of_torch_decides():
    given = numbered(50)
    torch.manual_seed(5)
    first, second = crop_flip(given), crop_flip(given)
    torch.manual_seed(5)
    assert torch.equal(crop_flip(given), first)
    assert not torch.equal(first, second)


def test_what_is_no_batch_of_images_is_refused():
    with pytest.raises(ValueError, match=r"^`images` must have shape \(B, channels, H, W\); got \(3, 8, 8\)\.$"):
        crop_flip(torch.zeros(3, 8, 8))


def test_training_sees_changed_images_and_validation_does_not(monkeypatch):
    data, seen = images(), {True: [], False: []}
    outputs = SetModel.outputs
    step = SetClassifier.training_step
    given = []

    def noted(self, inputs):
        seen[self.training].append(inputs.clone())
        return outputs(self, inputs)

    def training_step(self, batch, index):
        given.append(batch.inputs)
        return step(self, batch, index)

    monkeypatch.setattr(SetModel, "outputs", noted)
    monkeypatch.setattr(SetClassifier, "training_step", training_step)
    fit(data, CHANGED)
    changed, plain = torch.cat(seen[True]), torch.cat(given)
    assert changed.dtype == torch.uint8
    assert (changed == plain).flatten(1).all(1).float().mean() < 0.1
    assert (changed == 0).float().mean() > 0.2  # what moved in was black
    val = data.part("val")
    wanted = val.inputs.batch(torch.arange(len(val)))
    assert all(torch.equal(batch, wanted) for batch in seen[False])


def test_an_interrupted_run_repeats_the_chance_of_its_images(monkeypatch, tmp_path):
    whole = fit(images(), CHANGED)
    cut_short(monkeypatch, tmp_path, 1, CHANGED, images())
    assert equal(fit(images(), CHANGED, folder=tmp_path), whole)
    assert load_model(save_model(whole, tmp_path)).about["options"]["augmentation"] == "crop-flip"
