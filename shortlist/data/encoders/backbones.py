"""Networks of torchvision, timm and Hugging Face without their classifier, each library imported on request."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from shortlist.data.encoders.hugging_face import ImageTransformer, image_statistics, load_network, read_config
from shortlist.errors import InputError, reason
from shortlist.extras import MissingExtraError, import_failure, require

LIBRARIES = ("torchvision", "timm", "hf")
# The statistics of ImageNet, on which such networks are trained unless they say otherwise.
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_FILES = (".pth", ".pt", ".bin", ".safetensors")
# These would load pickled objects or use the network, which a model file from elsewhere could request.
_REFUSED = {"pretrained", "checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"}
# The network, the former name of its classifier, its number of features, and channel means and deviations.
_Made = tuple[nn.Module, str, int, dict[str, Any]]


class Backbone(nn.Module):
    """Features of images, uint8 ``(B, 3, H, W)``; gray ones, ``(B, 1, H, W)``, count as three equal channels.

    Args:
        network: maps normalized images ``(B, 3, H, W)`` of any size to features.
        out_features: the number of features.
        resolution: images are resized to this width and height; None keeps them as they are.
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
        # Gray images become three channels by broadcasting against the means.
        pixels = (inputs.to(self.mean.dtype) / 255 - self.mean) / self.scale
        if self.resolution is not None and pixels.shape[2:] != (self.resolution, self.resolution):
            pixels = interpolate(pixels, (self.resolution, self.resolution), mode="bilinear", antialias=True)
        features = self.network(pixels)
        # In training, some networks also return the logits of auxiliary classifiers.
        return (features if isinstance(features, Tensor) else features[0]).flatten(1)


def load_backbone(
    name: str, *, argument: str, weights: str | None = None, resolution: int | None = None, **options: Any
) -> Backbone:
    """Load a network of another library by its name there.

    Args:
        name: ``torchvision:NAME``, ``timm:NAME`` or ``hf:NAME``.
        argument: the option that named it, for errors.
        weights: None for random initialization. A file (.safetensors, or .pth with tensors only) is read. ``DEFAULT``,
            or torchvision's name of weights, is taken from the library's cache, or downloaded if it is not there:
            nothing else in shortlist uses the network.
        resolution: see `Backbone`.
        options: of the library's own function.

    Raises:
        MissingExtraError: the library is not installed, or does not match torch.
        InputError: for names, options or weights that give no network.
    """
    library, _, model = name.partition(":")
    asked = f"`{argument}` '{name}'"
    if resolution is not None and (type(resolution) is not int or resolution < 1):
        raise InputError(f"{asked}: `resolution` must be an integer, at least 1; got {resolution!r}.")
    if weights is not None and not isinstance(weights, str):
        raise InputError(f"{asked}: `weights` must be a file or a name; got {weights!r}.")
    for option in _REFUSED & options.keys():
        raise InputError(f"{asked}: `{option}` is not an option; use `weights`, for files of tensors and DEFAULT.")
    if library == "hf":
        return _hugging_face(name, weights, resolution, **options)
    if ":" in model or "/" in model:
        raise InputError(f"{asked}: must be a name that {library} itself has, not a location.")
    is_file = weights is not None and Path(weights).suffix in _FILES
    make = _torchvision if library == "torchvision" else _timm
    try:
        network, classifier, size, statistics = make(
            _library(library, asked), model, None if is_file else weights, options
        )
    except ImportError:
        raise
    except Exception as error:
        # Names, options, downloads: each library has its own errors.
        raise InputError(f"{asked} cannot be built: {reason(error)}.") from error
    if is_file:
        _load(network, Path(str(weights)), classifier, asked)
    return Backbone(network, size, resolution=resolution, **statistics)


def check_images(backbone: Backbone, shape: tuple[int, ...], *, name: str, argument: str) -> None:
    """Raise InputError if a network cannot process images of a shape; runs it once."""
    asked = f"`{argument}` '{name}'"
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise InputError(f"{asked} needs images of 1 or 3 channels; got shape {shape}.")
    was_training = backbone.training
    try:
        with torch.no_grad():
            found = tuple(backbone.eval()(torch.zeros(1, *shape, dtype=torch.uint8)).shape)
    except Exception as error:
        size = f"{shape[1]} x {shape[2]}"
        raise InputError(
            f"{asked} cannot process images of {size} pixels ({reason(error)}); the option `resolution` resizes them."
        ) from error
    finally:
        backbone.train(was_training)
    if found != (1, backbone.out_features):
        raise InputError(f"{asked} must return {backbone.out_features} features per image; it returned shape {found}.")


def _hugging_face(
    name: str, weights: str | None, resolution: int | None, *, config: dict[str, Any] | None = None
) -> Backbone:
    config = read_config(name) if config is None else config
    network = ImageTransformer(load_network(name, weights=weights, config=config))
    size = config.get("image_size")
    resolution = size if resolution is None and isinstance(size, int) else resolution
    # Without weights nothing is read: parameters are new, or come with a saved model, statistics included.
    statistics = {} if weights is None else image_statistics(name)
    return Backbone(network, network.out_features, resolution=resolution, **statistics)


def classifier_of(network: nn.Module) -> tuple[str, nn.Linear | nn.Conv2d]:
    """The name and the module of the classifier: the last linear layer, whatever its name, or the last convolution."""
    kinds = [(key, module) for key, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    if not kinds:
        raise ValueError(f"`network` must end in a linear layer or a convolution; {type(network).__name__} has none.")
    return ([pair for pair in kinds if isinstance(pair[1], nn.Linear)] or kinds)[-1]


def replace_module(network: nn.Module, name: str, module: nn.Module) -> None:
    """Put another module in the place of the one with this name."""
    parent, _, child = name.rpartition(".")
    setattr(network.get_submodule(parent), child, module)


def _torchvision(models: Any, name: str, weights: str | None, options: dict[str, Any]) -> _Made:
    network = models.get_model(name, weights=weights, **options)
    last, layer = classifier_of(network)
    replace_module(network, last, nn.Identity())
    return network, last, layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels, {}


def _timm(timm: Any, name: str, weights: str | None, options: dict[str, Any]) -> _Made:
    if weights not in (None, "DEFAULT"):
        raise InputError(f"`weights` must be DEFAULT or a file that ends in {', '.join(_FILES)}; got {weights!r}")
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
            # No extra installs them, because their versions depend on the installed torch.
            raise MissingExtraError(f"{asked} needs {library}: run `pip install {library}`.") from error
        raise import_failure(library, error, extra="train") from error


def _load(network: nn.Module, path: Path, classifier: str, asked: str) -> None:
    """Load parameters from a file, without those of the removed classifier."""
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
        raise InputError(f"{asked}: `weights` {str(path)!r} cannot be read: {reason(error)}.") from error
    wrong = [*result.missing_keys, *result.unexpected_keys]
    if wrong:
        raise InputError(f"{asked}: `weights` {str(path)!r} belong to another network: {wrong[0]} does not match.")
