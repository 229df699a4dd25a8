"""One model trained under label noise, with as many training rows as are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.runs import trained
from shortlist.data import Dataset, label_noise
from shortlist.data.draws import Draws


def trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train on noisy rows and measure the rows of a part by their true labels.

    Args:
        settings: those of `experiments.runs.trained`; ``noise``, the probability of a new label; ``rows``, how many
            training rows to keep, 0 for all; ``part``, what to measure.
        root: where data are.

    Returns:
        ``top1`` and ``topk``, shares of rows of the part; ``learned``, the share of training rows whose label, noisy
        or not, comes first; ``best_epoch``, from 0.
    """
    seed, rate = int(settings["seed"]), float(settings["noise"])

    def noisy(dataset: Dataset) -> Dataset:
        fewer = with_fewer_rows(dataset, int(settings["rows"]), seed=seed)
        return label_noise(fewer, rate, seed=seed) if rate else fewer

    run = trained(settings, root, change=noisy)
    rows, train = run.dataset.part(settings["part"]), run.dataset.part("train")
    logits = run.logits(settings["part"])
    return {
        "top1": topk_share(logits, rows.true_targets, 1),
        "topk": topk_share(logits, rows.true_targets, int(settings["fit"]["k"])),
        "learned": topk_share(run.logits("train"), train.targets, 1),
        "best_epoch": run.fitted.best_epoch,
    }


def with_fewer_rows(dataset: Dataset, rows: int, *, seed: int) -> Dataset:
    """The dataset with at most so many training rows, drawn at random; 0 keeps all. Other parts stay as they are."""
    train = dataset.part_rows("train")
    if not 0 < rows < len(train):
        return dataset
    gone = torch.zeros(len(dataset), dtype=torch.bool)
    gone[train[torch.from_numpy(Draws(seed, "fewer rows").order(len(train))[rows:].copy())]] = True
    return dataset.subset((~gone).nonzero().flatten())


def topk_share(logits: Tensor, classes: Tensor, k: int) -> float:
    """The share of rows whose class is among the ``k`` largest logits.

    Example:
        >>> topk_share(torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]), torch.tensor([1, 2]), 2)
        0.5
    """
    return float((logits.topk(k).indices == classes.unsqueeze(-1)).any(-1).double().mean())
