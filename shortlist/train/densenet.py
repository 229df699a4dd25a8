"""DenseNet for images of 32 pixels, as the texts train it on CIFAR-100."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist.train.encoders import as_floats


class DenseNet(nn.Module):
    """Three dense blocks without bottlenecks or compression; depth 40 and growth 40 are the texts' DenseNet-40-40.

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
            raise ValueError(f"`depth` must be 3 m + 4 for a whole m from 1; got {depth}.")
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
        """``(B, features)`` of images ``(B, channels, H, W)``."""
        return self.layers(2 * as_floats(inputs, next(self.parameters()).dtype) - 1).mean((2, 3))


class _DenseLayer(nn.Module):
    """Adds new channels to those it was given."""

    def __init__(self, size: int, growth: int) -> None:
        super().__init__()
        self.new = nn.Sequential(nn.BatchNorm2d(size), nn.ReLU(), nn.Conv2d(size, growth, 3, padding=1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.new(x)], dim=1)
