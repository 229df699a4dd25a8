"""Scores and labels as the label doctor reads them."""

from __future__ import annotations

import torch

from shortlist.labels import Labels, LabelsLike, Numbers, list_labels, read_scores, read_target
from shortlist.sets.scores import Scores


def read_rows(scores: Numbers, labels: LabelsLike) -> tuple[Scores, Labels]:
    """Held-out scores, checked to be numbers, and the present and unknown labels of the same rows."""
    source = read_held_out(scores)
    target = read_target(labels, source.shape[1], name="labels")
    if len(target) != len(source):
        raise ValueError(f"`labels` must have one row per row of scores, {len(source)}; got {len(target)}.")
    return source, list_labels(target.cpu(), source.shape[1], name="labels")


def read_held_out(scores: Numbers) -> Scores:
    """Scores of shape (rows, labels), none NaN or infinite."""
    found = read_scores(scores)
    if found.ndim != 2 or found.shape[1] == 0:
        raise ValueError(f"`scores` must have shape (rows, labels); got {tuple(found.shape)}.")
    source = Scores(found.cpu(), torch.float64)
    source.check(lambda block: ~(block < torch.inf), "`scores` must not be NaN or infinite", fine_below=torch.inf)
    return source
