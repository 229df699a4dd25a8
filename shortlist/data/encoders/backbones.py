"""Networks of torchvision and timm without their classifier; neither library is imported before one is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from shortlist.extras import MissingExtraError, import_failure, require

LIBRARIES = ("torchvision", "timm")
# Of ImageNet, with which such networks are trained unless they say otherwise.
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_FILES = (".pth", ".pt", ".bin", ".safetensors")
# They would load pickled objects, or go to the network, as a model file from elsewhere may ask for.
_REFUSED = {"pretrained", "checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"}
# The network, the name that its classifier had, how many features it gives, and means and deviations of channels.
_Made = tuple[nn.Module, str, int, dict[str, Any]]


class Backbone(nn.Module):
    """Features of images, uint8 ``(B, 3, H, W)``; grey ones, ``(B, 1, H, W)``, count as three equal channels.

    Args:
        network: takes normalised images ``(B, 3, H, W)`` and gives features, whatever the size of the image.
        out_features: how many.
        resolution: images are resized to this many pixels each way; None takes them as they are.
        mean, deviation: of the channels, as fractions of 255.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        network: nn.Module,
        out_features: int,
        *,
        resolution: int | None = None,
        mean: tuple[float, ...] = _MEAN,
        deviation: tuple[float, ...] = _DEVIATION,
    ) -> None:
        super().__init__()
        self.network, self.out_features, self.resolution = network, out_features, resolution
        self.register_buffer("mean", torch.tensor(mean).reshape(1, 3, 1, 1))
        self.register_buffer("scale", torch.tensor(deviation).reshape(1, 3, 1, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """``(B, out_features)``."""
        # Grey images become three channels by broadcasting against the means.
        pixels = (inputs.to(self.mean.dtype) / 255 - self.mean) / self.scale
        if self.resolution is not None and pixels.shape[2:] != (self.resolution, self.resolution):
            pixels = interpolate(pixels, (self.resolution, self.resolution), mode="bilinear", antialias=True)
        features = self.network(pixels)
        # Some networks give the logits of auxiliary classifiers too while they train.
        return (features if isinstance(features, Tensor) else features[0]).flatten(1)


def load_backbone(
    name: str, *, argument: str, weights: str | None = None, resolution: int | None = None, **options: Any
) -> Backbone:
    """A network of another library, by its name there.

    Args:
        name: ``torchvision:NAME`` or ``timm:NAME``.
        argument: what the user named it as, for errors.
        weights: None draws parameters anew. A file (.safetensors, or .pth of tensors alone) is read. ``DEFAULT``, or a
            name that torchvision has for weights, is what the library keeps in its cache, and downloads if it is not
            there: nothing else here uses the network.
        resolution: see `Backbone`.
        options: what the library's own function takes.

    Raises:
        ImportError: the library is not installed, or does not fit torch.
        ValueError: in one sentence, for names, options and weights that make no network.
    """
    library, _, model = name.partition(":")
    asked = f"`{argument}` '{name}'"
    if resolution is not None and (type(resolution) is not int or resolution < 1):
        raise ValueError(f"{asked}: `resolution` must be a whole number, at least 1; got {resolution!r}.")
    if weights is not None and not isinstance(weights, str):
        raise ValueError(f"{asked}: `weights` must be a file or a name; got {weights!r}.")
    for option in _REFUSED & options.keys():
        raise ValueError(f"{asked}: `{option}` is no option; `weights` is, for files of tensors and DEFAULT.")
    if ":" in model or "/" in model:
        raise ValueError(f"{asked}: must be a name that {library} has itself, not a place.")
    is_file = weights is not None and Path(weights).suffix in _FILES
    make = _torchvision if library == "torchvision" else _timm
    try:
        network, classifier, size, statistics = make(
            _library(library, asked), model, None if is_file else weights, options
        )
    except ImportError:
        raise
    except Exception as error:
        # Names, options, downloads: each library has errors of its own for them.
        raise ValueError(f"{asked} cannot be built: {_one_line(error)}.") from error
    if is_file:
        _load(network, Path(str(weights)), classifier, asked)
    return Backbone(network, size, resolution=resolution, **statistics)


def check_images(backbone: Backbone, shape: tuple[int, ...], *, name: str, argument: str) -> None:
    """Raise ValueError, in one sentence, if a network cannot take images of a shape; runs it once."""
    asked = f"`{argument}` '{name}'"
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"{asked} needs images of 1 or 3 channels; got shape {shape}.")
    was_training = backbone.training
    try:
        with torch.no_grad():
            found = tuple(backbone.eval()(torch.zeros(1, *shape, dtype=torch.uint8)).shape)
    except Exception as error:
        size = f"{shape[1]} x {shape[2]}"
        raise ValueError(
            f"{asked} cannot take images of {size} pixels ({_one_line(error)}); the option `resolution` resizes them."
        ) from error
    finally:
        backbone.train(was_training)
    if found != (1, backbone.out_features):
        raise ValueError(f"{asked} must give {backbone.out_features} features for an image; it gave shape {found}.")


def _torchvision(models: Any, name: str, weights: str | None, options: dict[str, Any]) -> _Made:
    network = models.get_model(name, weights=weights, **options)
    # The last linear layer is the classifier in all of them, whatever its name; where there is none, a convolution is.
    kinds = [(key, module) for key, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    last, layer = ([pair for pair in kinds if isinstance(pair[1], nn.Linear)] or kinds)[-1]
    parent, _, child = last.rpartition(".")
    setattr(network.get_submodule(parent), child, nn.Identity())
    return network, last, layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels, {}


def _timm(timm: Any, name: str, weights: str | None, options: dict[str, Any]) -> _Made:
    if weights not in (None, "DEFAULT"):
        raise ValueError(f"`weights` must be DEFAULT or a file that ends in {', '.join(_FILES)}; got {weights!r}")
    network = timm.create_model(name, pretrained=weights is not None, **{"num_classes": 0, **options})
    about = getattr(network, "pretrained_cfg", None) or {}
    statistics = {"mean": tuple(about.get("mean", _MEAN)), "deviation": tuple(about.get("std", _DEVIATION))}
    # Some networks have a layer between what they call their features and the classifier.
    size = getattr(network, "head_hidden_size", None) or network.num_features
    return network, about.get("classifier") or "classifier", size, statistics


def _library(library: str, asked: str) -> ModuleType:
    module = "torchvision.models" if library == "torchvision" else library
    try:
        return importlib.import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name in (library, module):
            # They come with no extra of ours, for their versions go by the torch that is there.
            raise MissingExtraError(f"{asked} needs {library}: run `pip install {library}`.") from error
        raise import_failure(library, error, extra="train") from error


def _load(network: nn.Module, path: Path, classifier: str, asked: str) -> None:
    """Parameters of a file; those of the classifier, which is gone, are left out."""
    try:
        if path.suffix == ".safetensors":
            tensors = require("safetensors.torch", extra="train").load_file(path)
        else:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
        result = network.load_state_dict(
            {key: value for key, value in tensors.items() if not key.startswith(f"{classifier}.")}, strict=False
        )
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(f"{asked}: `weights` {str(path)!r} cannot be read: {_one_line(error)}.") from error
    wrong = [*result.missing_keys, *result.unexpected_keys]
    if wrong:
        raise ValueError(f"{asked}: `weights` {str(path)!r} are of another network: {wrong[0]} does not fit.")


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".:;")
    return f"{text[:200]}…" if len(text) > 200 else text or type(error).__name__
