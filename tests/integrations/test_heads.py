"""Output layers of this library on networks of timm and torchvision, or on stand-ins that have their interface."""

import pytest
import torch
from torch import nn

from shortlist.data import Dataset, ImageArray, split_at_random
from shortlist.integrations.heads import output_layer, use_head
from shortlist.nn import BottleneckHead, DFTHead, TwoWay
from shortlist.train import FitOptions, fit


class TimmNet(nn.Module):
    """As timm has them: the network names its classifier, which need not be its last linear layer."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.num_classes, self.num_features = num_classes, 4
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4), nn.Linear(4, num_classes))
        self.projection = nn.Linear(3, 3)

    def get_classifier(self) -> nn.Module:
        return self.head[-1]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.projection(images.movedim(1, -1)))


class TorchvisionNet(nn.Module):
    """As torchvision has them: the classifier is the last linear layer, whatever its name."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 1000))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images))


@pytest.mark.parametrize(("make", "name"), [(TimmNet, "head.2"), (TorchvisionNet, "classifier.3")])
def test_the_classifier_is_found_and_replaced(make, name):
    model = make()
    assert output_layer(model)[0] == name
    swapped = use_head(model, DFTHead(4, 50, k=2, slack=2))
    assert swapped is model
    assert isinstance(model.get_submodule(name), DFTHead)
    logits = model(torch.zeros(2, 3, 8, 8))
    assert logits.shape == (2, 50)
    TwoWay()(logits, torch.eye(2, 50)).backward()
    assert all(each.grad is not None for each in model.get_submodule(name).parameters())
    assert getattr(model, "num_classes", 50) == 50


def test_what_cannot_be_replaced_is_one_sentence():
    with pytest.raises(ValueError, match=r"^`head` must take 4 features, as `head\.2` does; it takes 8\.$"):
        use_head(TimmNet(), BottleneckHead(8, 50, 2))
    with pytest.raises(ValueError, match=r"^`model` must contain its classifier; it is nothing but a classifier\.$"):
        use_head(nn.Linear(4, 2), nn.Linear(4, 3))
    with pytest.raises(ValueError, match=r"^`network` must end in a linear layer or a convolution; ReLU has none\.$"):
        use_head(nn.ReLU(), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("library", "encoder"), [("timm", "timm:test_resnet"), ("torchvision", "torchvision:shufflenet_v2_x0_5")]
)
def test_networks_of_the_libraries_themselves_are_encoders_in_one_line_and_take_other_heads(library, encoder):
    models = pytest.importorskip(library, exc_type=Exception)
    pixels = torch.randint(256, (40, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = split_at_random(Dataset(ImageArray(pixels.numpy()), torch.arange(40) % 4, tuple("abcd")), seed=0)
    fitted = fit(data, FitOptions(encoder=encoder, head="dft", k=1, epochs=1))
    assert isinstance(fitted.model.head, DFTHead)
    name = encoder.partition(":")[2]
    model = models.create_model(name) if library == "timm" else models.models.get_model(name)
    _, classifier = output_layer(model)
    use_head(model, DFTHead(classifier.in_features, 50, k=2, slack=2))
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 50)
