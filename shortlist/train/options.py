"""How a model is trained: numbers that have sensible values for most data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class FitOptions:
    """Options of a run.

    Args:
        loss: a name of ``shortlist.train.recipes.LOSSES``; ``auto`` is cross-entropy for one class per row, and binary
            cross-entropy for sets.
        k: how many labels an answer holds, or holds on average; losses and metrics go by it.
        encoder, head: names, see `ModelPlan`.
        loss_options, encoder_options, head_options: what to give to them.
        epochs: how often to go through the training rows, at most.
        batch_size: rows of a step, over all processes.
        learning_rate, weight_decay: of the optimiser.
        optimizer: ``adamw``, or ``sgd`` with Nesterov momentum.
        monitor: the metric to stop by and to choose the best epoch by; ``auto`` is the average-k accuracy, or recall at
            k for sets.
        patience: how many epochs without a better value to wait; 0 never stops early.
        precision: as Lightning calls it: ``32-true``, ``bf16-mixed``, ``16-mixed``.
        processes: how many processes share a step.
        seed: of parameters, order, dropout and noise.
        words: how many columns texts are hashed to.
    """

    loss: str = "auto"
    k: float = 3
    encoder: str = "auto"
    head: str = "auto"
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    head_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 20
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    optimizer: Literal["adamw", "sgd"] = "adamw"
    monitor: str = "auto"
    patience: int = 5
    precision: str = "32-true"
    processes: int = 1
    seed: int = 0
    words: int = 2**16

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "processes", "words"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        for name in ("learning_rate", "k"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be above 0; got {getattr(self, name)}.")
        for name in ("patience", "weight_decay", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must be at least 0; got {getattr(self, name)}.")
        if self.optimizer not in ("adamw", "sgd"):
            raise ValueError(f"`optimizer` must be 'adamw' or 'sgd'; got {self.optimizer!r}.")
