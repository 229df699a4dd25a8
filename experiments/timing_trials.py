"""Trials that measure time: the losses take turns in one process, so that drift of the machine meets all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.published_losses import (
    bracketing_lml_nll,
    dense_noised_topk,
    log_space_smooth_svm,
    sorted_truncated_entropy,
)
from shortlist.functional import (
    bce,
    cross_entropy,
    lml_nll,
    noised_topk,
    smooth_topk_svm,
    truncated_topk_entropy,
)
from shortlist.train.encoders import DenseNet

Loss = Callable[[Tensor, Tensor], Tensor]
YARDSTICK = "cross-entropy"


def losses(k: int) -> dict[str, Loss]:
    """All that are timed, for answers of k labels; "plain" ones are written in the manner of the research code."""
    return {
        YARDSTICK: cross_entropy,
        "sigmoid": bce,
        "LML": lambda x, y: lml_nll(x, y, k),
        "LML, plain": lambda x, y: bracketing_lml_nll(x, y, k),
        "smooth SVM": lambda x, y: smooth_topk_svm(x, y, k),
        "smooth SVM, plain": lambda x, y: log_space_smooth_svm(x, y, k),
        "truncated entropy": lambda x, y: truncated_topk_entropy(x, y, k),
        "truncated entropy, plain": lambda x, y: sorted_truncated_entropy(x, y, k),
        **{
            f"noised, M = {samples}": lambda x, y, m=samples: noised_topk(x, y, k, epsilon=0.2, samples=m)
            for samples in (3, 10)
        },
        "noised, M = 3, plain": lambda x, y: dense_noised_topk(x, y, k, samples=3),
    }


def loss_times(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Median milliseconds of each loss at each shape, forward alone and with the gradient.

    Args:
        settings: ``rows``; ``shapes``, pairs of labels and k; ``losses``, names; ``turns``, how often each is measured
            at each shape; ``seed``, of logits and of the order of the shapes, so that repetitions differ.
        root: not needed.

    Returns:
        ``forward`` and ``both``: by loss, one number for each shape.
    """
    device = _device()
    generator = torch.Generator().manual_seed(settings["seed"])
    shapes, names = settings["shapes"], settings["losses"]
    found = {kind: {name: [0.0] * len(shapes) for name in names} for kind in ("forward", "both")}
    for at in torch.randperm(len(shapes), generator=generator).tolist():
        labels, k = shapes[at]
        x = torch.randn(settings["rows"], labels, generator=generator).to(device).requires_grad_()
        y = torch.randint(labels, (settings["rows"],), generator=generator).to(device)
        every = losses(k)
        times = _turns({name: every[name] for name in names}, x, y, settings["turns"])
        for name, (forward, both) in times.items():
            found["forward"][name][at] = round(1000 * median(forward), 5)
            found["both"][name][at] = round(1000 * median(both), 5)
    return found


def _turns(every: Mapping[str, Loss], x: Tensor, y: Tensor, turns: int) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of each loss, forward and with the gradient, one after the other so that drift meets all alike."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in every}
    for turn in range(-1, turns):
        for name, loss in every.items():
            x.grad = None
            begin = _now(x.device)
            value = loss(x, y)
            middle = _now(x.device)
            value.backward()
            end = _now(x.device)
            if turn >= 0:  # The first turn loads what stays loaded.
                times[name][0].append(middle - begin)
                times[name][1].append(end - begin)
    return times


def epoch_times(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Seconds of an epoch with each loss and K, images and labels being drawn: their values do not matter for time.

    The losses take turns step by step; an epoch is as many steps as it has, each of the median time.

    Args:
        settings: ``network``, ``{depth, growth}`` of a DenseNet or ``{width}`` of one hidden layer; ``rows``,
            ``batch_size``, ``labels``; ``ks``; ``losses``, names; ``seed``.
        root: not needed.

    Returns:
        By loss, one number for each K.
    """
    device = _device()
    torch.manual_seed(settings["seed"])
    model = _network(settings["network"], settings["labels"]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, nesterov=True)
    images = torch.randint(256, (settings["rows"], 3, 32, 32), dtype=torch.uint8).to(device)
    labels = torch.randint(settings["labels"], (settings["rows"],)).to(device)
    batches = list(zip(images.split(settings["batch_size"]), labels.split(settings["batch_size"]), strict=True))

    def seconds(loss: Loss, x: Tensor, y: Tensor) -> float:
        begin = _now(device)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        return _now(device) - begin

    names, ks = settings["losses"], settings["ks"]
    found = {name: [0.0] * len(ks) for name in names}
    for at in torch.randperm(len(ks)).tolist():
        every = losses(ks[at])
        for name in names:  # A first step loads what stays loaded.
            seconds(every[name], *batches[0])
        steps = [[seconds(every[name], x, y) for name in names] for x, y in batches]
        for name, values in zip(names, zip(*steps, strict=True), strict=True):
            found[name][at] = round(len(batches) * median(values), 6)
    return found


class _Pixels(nn.Module):
    """Bytes of an image as numbers in a row."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).float() / 255


def _network(options: Mapping[str, int], labels: int) -> nn.Module:
    if "width" in options:
        width = options["width"]
        return nn.Sequential(_Pixels(), nn.Linear(3 * 32 * 32, width), nn.ReLU(), nn.Linear(width, labels))
    encoder = DenseNet(**options)
    return nn.Sequential(encoder, nn.Linear(encoder.out_features, labels))


def _device() -> torch.device:
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def _now(device: torch.device) -> float:
    """Seconds, once all work that was handed to the device is done."""
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter()
