"""How long a training will take, from the pace of a few batches, so that long work says so before it begins."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from shortlist.data import Dataset
from shortlist.errors import InputError
from shortlist.fit_options import FitOptions, SettledOptions
from shortlist.formatting import format_count
from shortlist.train.fit import fit
from shortlist.train.inputs import settle
from shortlist.train.tuning import KeptTrials, rows_to_train

# The first batch pays for what is loaded and compiled once, so it does not count.
_BATCHES = 4
_VAL_ROWS = 64
# A validated row takes a forward pass, a third of what a trained one takes.
_VALIDATION = 1 / 3
_LONG = 60.0


def estimate_seconds(
    dataset: Dataset,
    options: FitOptions,
    *,
    runs: int,
    trials: int = 0,
    decays: Sequence[float] = (),
    file: str | Path | None = None,
) -> float | None:
    """Estimate how long a search for the learning rate and some runs will take if no run stops early.

    A few batches are trained and thrown away.

    Args:
        dataset: with parts ``train`` and ``val``.
        options: of the runs.
        runs: how many runs.
        trials, decays, file: of the search, see `shortlist.train.tune`; trials in the file need no time.

    Returns:
        Seconds on this machine in one process. None if a few batches do not tell: features of a frozen encoder are
        computed first, and a sample may lack what the whole has.
    """
    settled = settle(options, dataset)
    if settled.frozen:
        return None
    try:
        pace = _seconds_per_row(dataset, settled)
    except InputError:  # Of the sample; the run itself will raise its own.
        return None
    rows, val = (len(dataset.part_rows(part)) for part in ("train", "val"))
    passes = runs * rows * settled.epochs
    if trials:
        finished = KeptTrials.of_search(dataset, settled, trials, decays, file).trials
        passes += rows_to_train(rows, settled.epochs, trials, len(decays))
        passes -= sum(trial.rows * trial.epochs for trial in finished)
    return pace * max(passes, 0) * (1 + _VALIDATION * val / rows)


def _seconds_per_row(dataset: Dataset, options: SettledOptions) -> float:
    """Train a few batches and return the median time of a row."""
    train, val = dataset.part_rows("train"), dataset.part_rows("val")
    batch = min(options.batch_size, len(train))
    sample = dataset.subset(torch.cat([train[: _BATCHES * batch], val[:_VAL_ROWS]]).sort().values)
    short: dict[str, Any] = {"epochs": -(-_BATCHES * batch // len(train[: _BATCHES * batch])), "patience": 0}
    alone: dict[str, Any] = {"processes": 1, "nodes": 1, "strategy": "ddp", "monitor": "auto"}
    ends: list[float] = []
    fit(sample, replace(options, **short, **alone), progress=lambda _: ends.append(time.perf_counter()))
    return median(after - before for before, after in pairwise(ends)) / batch


def duration_sentence(seconds: Sequence[float | None], *, jobs: int = 1) -> str | None:
    """Return a sentence on the time that all trainings take together; None if it is unknown or less than a minute.

    Example:
        >>> duration_sentence([150.0, 90.0])
        'Training will take about 4 minutes, or less if runs stop early.'
        >>> duration_sentence([20.0, 30.0]), duration_sentence([None])
        (None, None)
    """
    known = [each for each in seconds if each is not None]
    total = sum(known) / jobs
    if len(known) < len(seconds) or total < _LONG:
        return None
    minutes = round(total / 60)
    about = format_count(minutes, "minute") if minutes < 120 else format_count(round(minutes / 60), "hour")
    return f"Training will take about {about}, or less if runs stop early."
