"""Networks of other libraries: without their classifier, with weights of files, refused in one sentence."""

import importlib
import re
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shortlist.data import BackboneFeatures, frozen_encoder
from shortlist.data.encoders.backbones import check_images, load_backbone


class Net(nn.Module):
    """As other libraries have them: small images vanish, a batch norm, the classifier is the last linear layer."""

    def __init__(self, *, num_classes: int = 9, wide: int = 5, auxiliary: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, wide, 3, bias=False), nn.BatchNorm2d(wide), nn.MaxPool2d(4))
        self.fc = nn.Linear(wide, num_classes) if num_classes else nn.Identity()
        self.num_features, self.auxiliary = wide, auxiliary
        self.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "classifier": "fc"}

    def forward(self, images: torch.Tensor) -> Any:
        features = self.fc(self.stem(images).mean((2, 3)))
        return (features, features) if self.auxiliary and self.training else features


class ConvolutionalClassifier(nn.Module):
    """No linear layer at all."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 4, 1)
        self.classifier = nn.Sequential(nn.Conv2d(4, 9, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images)).flatten(1)


TRAINED = 3
"""The seed of the weights that the libraries would download."""


def trained() -> dict[str, torch.Tensor]:
    torch.manual_seed(TRAINED)
    return Net().state_dict()


def get_model(name: str, weights: str | None = None, **options: Any) -> nn.Module:
    if name not in ("net", "squeezenet"):
        raise ValueError(f"Unknown model {name}")
    if weights not in (None, "DEFAULT"):
        raise KeyError(weights)
    net = Net(**options) if name == "net" else ConvolutionalClassifier()
    if weights:
        net.load_state_dict(trained())
    return net


def create_model(name: str, pretrained: bool = False, num_classes: int = 9, **options: Any) -> nn.Module:
    if name != "net":
        raise RuntimeError(f"Unknown model ({name})")
    if pretrained:
        raise OSError("no connection")
    return Net(num_classes=num_classes, **options)


@pytest.fixture(autouse=True)
def libraries(monkeypatch) -> None:
    """The part of both libraries that is used."""
    modules: dict[str, Any] = {name: ModuleType(name) for name in ("timm", "torchvision", "torchvision.models")}
    modules["timm"].create_model = create_model
    modules["torchvision.models"].get_model = get_model
    modules["torchvision"].models = modules["torchvision.models"]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def pictures(channels: int = 3, size: int = 16) -> torch.Tensor:
    return torch.randint(256, (2, channels, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


BOTH = pytest.mark.parametrize("library", ["torchvision", "timm"])


@BOTH
def test_the_classifier_is_gone(library):
    backbone = load_backbone(f"{library}:net", argument="encoder", wide=6)
    assert backbone.out_features == 6
    assert isinstance(backbone.network.fc, nn.Identity)
    assert backbone(pictures()).shape == (2, 6)


def test_a_classifier_that_is_a_convolution_is_gone_too():
    backbone = load_backbone("torchvision:squeezenet", argument="encoder")
    check_images(backbone, (3, 8, 8), name="torchvision:squeezenet", argument="encoder")
    assert backbone(pictures()).shape == (2, 4)


@BOTH
def test_grey_images_count_as_three_equal_channels(library):
    backbone = load_backbone(f"{library}:net", argument="encoder").eval()
    grey = pictures(1)
    assert torch.allclose(backbone(grey), backbone(grey.expand(-1, 3, -1, -1)))


def test_images_are_normalised_as_the_network_was_trained():
    for library, mean, deviation in (("torchvision", 0.485, 0.229), ("timm", 0.5, 0.25)):
        backbone = load_backbone(f"{library}:net", argument="encoder")
        backbone.network = nn.Identity()
        white = backbone(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8))
        assert white[0, 0].item() == pytest.approx((1 - mean) / deviation, rel=1e-5)


def test_what_a_network_gives_besides_while_it_trains_is_left_out():
    backbone = load_backbone("torchvision:net", argument="encoder", auxiliary=True).train()
    assert backbone(pictures()).shape == (2, 5)


@BOTH
def test_small_images_are_one_sentence_unless_they_are_resized(library):
    name = f"{library}:net"
    backbone = load_backbone(name, argument="encoder").train()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    with pytest.raises(
        ValueError,
        match=rf"^`encoder` '{name}' cannot process images of 4 x 5 pixels \(.*\); the option `resolution` .*\.$",
    ):
        check_images(backbone, (1, 4, 5), name=name, argument="encoder")
    check_images(backbone, (1, 16, 16), name=name, argument="encoder")
    assert backbone.training
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())
    resized = load_backbone(name, argument="encoder", resolution=20)
    check_images(resized, (1, 4, 5), name=name, argument="encoder")
    assert resized(pictures(size=3)).shape == (2, 5)


def test_other_channels_are_one_sentence():
    backbone = load_backbone("timm:net", argument="encoder")
    with pytest.raises(
        ValueError, match=r"^`encoder` 'timm:net' needs images of 1 or 3 channels; got shape \(4, 9, 9\)\.$"
    ):
        check_images(backbone, (4, 9, 9), name="timm:net", argument="encoder")


@BOTH
@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_weights_of_a_file_are_read_whatever_its_classifier(tmp_path, library, ending):
    torch.manual_seed(8)
    tensors = Net(num_classes=31).state_dict()
    path = tmp_path / f"net.{ending}"
    torch.save(tensors, path) if ending == "pth" else save_file(tensors, path)
    backbone = load_backbone(f"{library}:net", argument="frozen", weights=str(path))
    assert torch.equal(backbone.network.stem[0].weight, tensors["stem.0.weight"])


class Harmful:
    def __reduce__(self) -> Any:
        return pytest.fail, ("unpickled",)


def test_weights_that_do_not_fit_are_one_sentence(tmp_path):
    torch.save(Net(wide=7).state_dict(), tmp_path / "wide.pth")
    torch.save({"stem.0.weight": torch.zeros(5, 3, 3, 3)}, tmp_path / "part.pth")
    torch.save({**Net().state_dict(), "more": torch.zeros(1)}, tmp_path / "more.pth")
    torch.save(Harmful(), tmp_path / "harmful.pth")
    (tmp_path / "text.pth").write_text("text")
    for name, reason in {
        "wide.pth": "cannot be read: .* size mismatch",
        "part.pth": "belong to another network: stem.1.weight does not match",
        "more.pth": "belong to another network: more does not match",
        "harmful.pth": "cannot be read: ",
        "text.pth": "cannot be read: ",
        "none.safetensors": "cannot be read: ",
    }.items():
        path = str(tmp_path / name)
        with pytest.raises(
            ValueError, match=rf"^`frozen` 'timm:net': `weights` '{re.escape(path)}' {reason}"
        ) as caught:
            load_backbone("timm:net", argument="frozen", weights=path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("torchvision:zzz", {}, "`encoder` 'torchvision:zzz' cannot be built: Unknown model zzz."),
        ("timm:zzz", {}, "`encoder` 'timm:zzz' cannot be built: Unknown model (zzz)."),
        ("timm:net", {"zzz": 1}, "`encoder` 'timm:net' cannot be built: .*'zzz'."),
        ("timm:net", {"weights": "DEFAULT"}, "`encoder` 'timm:net' cannot be built: no connection."),
        (
            "timm:net",
            {"weights": "V1"},
            "`encoder` 'timm:net' cannot be built: `weights` must be DEFAULT or .*; got 'V1'.",
        ),
        ("torchvision:net", {"weights": "V9"}, "`encoder` 'torchvision:net' cannot be built: 'V9'."),
        ("timm:net", {"weights": 3}, "`encoder` 'timm:net': `weights` must be a file or a name; got 3."),
        (
            "timm:net",
            {"pretrained": True},
            "`encoder` 'timm:net': `pretrained` is not an option; use `weights`, for files of tensors and DEFAULT.",
        ),
        ("timm:net", {"checkpoint_path": "x.pth"}, "`encoder` 'timm:net': `checkpoint_path` is not an option; .*."),
        (
            "timm:hf-hub:someone/net",
            {},
            "`encoder` 'timm:hf-hub:someone/net': must be a name that timm itself has, not a location.",
        ),
        (
            "timm:net",
            {"resolution": 0},
            "`encoder` 'timm:net': `resolution` must be an integer, at least 1; got 0.",
        ),
    ],
)
def test_what_makes_no_network_is_one_sentence(name, options, sentence):
    pattern = re.escape(sentence).replace(r"\.\*", ".*")
    with pytest.raises(ValueError, match=f"^{pattern}$"):
        load_backbone(name, argument="encoder", **options)


def test_frozen_features_are_those_of_the_trained_network_and_named_by_its_weights(tmp_path):
    encoder = frozen_encoder("torchvision:net", {"weights": "DEFAULT", "resolution": 16})
    assert (encoder.dim, encoder.takes) == (5, "images")
    backbone = load_backbone("torchvision:net", argument="frozen", weights="DEFAULT", resolution=16).eval()
    assert torch.equal(encoder(pictures()), backbone(pictures()))
    assert encoder.name == frozen_encoder("torchvision:net", {"weights": "DEFAULT", "resolution": 16}).name
    tensors = trained()
    tensors["stem.1.running_mean"] += 1e-3
    torch.save(tensors, tmp_path / "other.pth")
    others = [
        BackboneFeatures("torchvision:net", weights="DEFAULT", resolution=17),
        BackboneFeatures("torchvision:net", weights=str(tmp_path / "other.pth"), resolution=16),
    ]
    assert len({encoder.name, *(other.name for other in others)}) == 3
    with pytest.raises(TypeError, match=r"^`images` must be uint8 \(B, 3, H, W\); got torch.float32 .*\.$"):
        encoder(pictures().float())


def test_making_an_encoder_leaves_the_random_state_alone():
    torch.manual_seed(0)
    wanted = torch.rand(2)
    torch.manual_seed(0)
    frozen_encoder("torchvision:net", {"weights": "DEFAULT"})
    assert torch.equal(torch.rand(2), wanted)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    ["torchvision:resnet18", "torchvision:squeezenet1_1", "torchvision:googlenet", "timm:resnet18", "timm:vgg11"],
)
def test_real_networks_give_as_many_features_as_they_say(monkeypatch, name):
    library = name.split(":")[0]
    for module in [module for module in sys.modules if module.split(".")[0] in ("timm", "torchvision")]:
        monkeypatch.delitem(sys.modules, module)
    try:
        importlib.import_module(library)
    except Exception as error:
        pytest.skip(f"no {library} that fits: {error}")
    backbone = load_backbone(name, argument="encoder")
    check_images(backbone, (1, 64, 64), name=name, argument="encoder")
    assert backbone.train()(pictures(3, 64)).shape == (2, backbone.out_features)
