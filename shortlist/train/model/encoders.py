"""Encoders: modules that map a batch of inputs to a feature vector per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from shortlist.errors import InputError

Norm = Literal["layer", "batch"]


class FeatureEncoder(Protocol):
    """A module that knows how many features it returns."""

    out_features: int

    def __call__(self, inputs: Tensor, /) -> Tensor: ...


class Plain(nn.Module):
    """Flattened features in the dtype of the module, float32; a head on top is a linear model.

    Args:
        shape: the shape of a row.

    Example:
        >>> Plain((2, 3))(torch.zeros(4, 2, 3, dtype=torch.float16)).shape
        torch.Size([4, 6])
    """

    dtype_holder: Tensor

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.out_features = int(torch.Size(shape).numel())
        # Follows `.double()` and `.half()`, as the parameters of the layers above do.
        self.register_buffer("dtype_holder", torch.empty(0), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map ``(B, *shape)`` to ``(B, features)``; bytes are divided by 255."""
        return _flat(inputs, self.out_features, self.dtype_holder.dtype)


class Standardised(nn.Module):
    """Features standardized with the mean and deviation of the training rows.

    Args:
        mean, scale: ``(features,)``; a constant feature has scale 0 and becomes 0.
    """

    mean: Tensor
    factor: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.out_features = len(mean)
        self.register_buffer("mean", mean.clone())
        self.register_buffer("factor", torch.where(scale > 0, 1 / scale.clamp(min=1e-12), 0.0))

    def forward(self, inputs: Tensor) -> Tensor:
        """Map ``(B, *shape)`` to ``(B, features)``."""
        return (_flat(inputs, self.out_features, self.mean.dtype) - self.mean) * self.factor


class MLP(nn.Module):
    """Hidden layers on top of another encoder: linear, norm, ReLU, dropout.

    Args:
        below: the encoder whose features are the input.
        hidden: the size of each hidden layer.
        dropout: the probability to drop a feature in training.
        norm: ``layer`` or ``batch``.
        below_is_linear: whether ``below`` is itself the linear part of the first hidden layer, as a `Bag` can be.

    Example:
        >>> MLP(Plain((8,)), (32, 16))(torch.zeros(4, 8)).shape
        torch.Size([4, 16])
    """

    def __init__(
        self,
        below: FeatureEncoder,
        hidden: Sequence[int],
        *,
        dropout: float = 0.0,
        norm: Norm = "layer",
        below_is_linear: bool = False,
    ) -> None:
        super().__init__()
        normed = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d}[norm]
        self.below = below
        layers: list[nn.Module] = []
        size = below.out_features
        if below_is_linear and list(hidden[:1]) != [size]:
            raise ValueError(f"`hidden` must begin with {size}, the features of `below`; got {list(hidden)}.")
        for number, wider in enumerate(hidden):
            linear = [] if below_is_linear and number == 0 else [nn.Linear(size, wider)]
            layers += [*linear, normed(wider), nn.ReLU(), nn.Dropout(dropout)]
            size = wider
        self.layers = nn.Sequential(*layers)
        self.out_features = size

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs to ``(B, hidden[-1])``."""
        return self.layers(self.below(inputs))


class SmallCNN(nn.Module):
    """Three stages of two convolutions, each of which halves the resolution: enough for small images.

    Args:
        channels: of the images.
        width: channels of the first stage; the others have twice and four times as many.

    Example:
        >>> SmallCNN(3, width=8)(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
        torch.Size([2, 32])
    """

    def __init__(self, channels: int, *, width: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        size = channels
        for wider in (width, 2 * width, 4 * width):
            for _ in range(2):
                layers += [nn.Conv2d(size, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
                size = wider
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        self.layers = nn.Sequential(*layers)
        self.out_features = size

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images ``(B, channels, H, W)`` to ``(B, 4 * width)``."""
        # Convolutions of a few channels are faster on the CPU, forward by half, if those of a pixel are neighbors.
        pixels = as_floats(inputs, next(self.parameters()).dtype).contiguous(memory_format=torch.channels_last)
        return self.layers(2 * pixels - 1).mean((2, 3))


class DenseNet(nn.Module):
    """DenseNet for images of 32 pixels: three dense blocks without bottlenecks or compression.

    Depth 40 and growth 40 are the DenseNet-40-40 that the papers train on CIFAR-100.

    Args:
        channels: of the images.
        depth: 3 m + 4 layers for m in each block.
        growth: channels that each layer adds.

    Example:
        >>> DenseNet(depth=7, growth=4)(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
        torch.Size([2, 28])

    References:
        Huang et al., "Densely connected convolutional networks", 2017.
    """

    def __init__(self, channels: int = 3, *, depth: int = 40, growth: int = 40) -> None:
        super().__init__()
        if depth < 7 or (depth - 4) % 3:
            raise InputError(f"`depth` must be 3 m + 4 with an integer m >= 1; got {depth}.")
        size = 16
        layers: list[nn.Module] = [nn.Conv2d(channels, size, 3, padding=1, bias=False)]
        for block in range(3):
            for _ in range((depth - 4) // 3):
                layers.append(_DenseLayer(size, growth))
                size += growth
            if block < 2:
                layers += [nn.BatchNorm2d(size), nn.ReLU(), nn.Conv2d(size, size, 1, bias=False), nn.AvgPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(size), nn.ReLU())
        self.out_features = size
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, inputs: Tensor) -> Tensor:
        """Map images ``(B, channels, H, W)`` to ``(B, features)``."""
        # Convolutions of a few channels are faster on the CPU, forward by half, if those of a pixel are neighbors.
        pixels = as_floats(inputs, next(self.parameters()).dtype).contiguous(memory_format=torch.channels_last)
        return self.layers(2 * pixels - 1).mean((2, 3))


class _DenseLayer(nn.Module):
    """Concatenates ``growth`` new channels to its input."""

    def __init__(self, size: int, growth: int) -> None:
        super().__init__()
        self.new = nn.Sequential(nn.BatchNorm2d(size), nn.ReLU(), nn.Conv2d(size, growth, 3, padding=1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.new(x)], dim=1)


def as_floats(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast inputs to a dtype; bytes are divided by 255."""
    floats = inputs.to(dtype)
    return floats / 255 if inputs.dtype == torch.uint8 else floats


def _flat(inputs: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    flat = as_floats(inputs, dtype).flatten(1)
    if flat.shape[1] != size:
        raise ValueError(f"`inputs` must have {size} features per row; got shape {tuple(inputs.shape)}.")
    return flat
