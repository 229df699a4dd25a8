"""Inputs as a model takes them: texts as hashed words, or whatever a frozen encoder makes of texts and images."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from shortlist.data import Dataset, Inputs, frozen_encoder, frozen_features, hashed_words
from shortlist.data.encoders.pretrained import FrozenEncoder
from shortlist.train.plan import ModelPlan
from shortlist.train.step_progress import share_bar

# Few, for what a network makes of images then stays in the caches of the processor.
_ROWS_AT_ONCE = 8


def prepared(
    dataset: Dataset, plan: ModelPlan, *, on_demand: PlannedEncoder | None = None, progress: bool = False
) -> Dataset:
    """The dataset with inputs that the model of a plan takes.

    Args:
        dataset: raw inputs, or inputs that are prepared already, which stay as they are.
        plan: its ``frozen`` and ``words`` say what to do.
        on_demand: computes features when they are asked for and keeps none, as answers to new rows want it; without it
            they are computed now and kept on the disk, where the next run finds them by their content.
        progress: whether to show a bar while they are computed.

    Raises:
        ValueError: the encoder takes other inputs, or gives other features than it did in training.
    """
    kind = dataset.inputs.kind
    if plan.frozen is None:
        return hashed_words(dataset, **plan.words) if plan.words is not None and kind == "text" else dataset
    if kind == plan.kind:
        return dataset
    if kind != plan.frozen["takes"]:
        raise ValueError(f"`frozen` {plan.frozen['encoder']!r} takes {plan.frozen['takes']}; the dataset has {kind}.")
    if on_demand is not None:
        return replace(dataset, inputs=EncodedRows(dataset.inputs, on_demand))
    with share_bar(f"features of {plan.frozen['encoder']}", shown=progress) as tell:
        advance = None if tell is None else lambda done, rows: tell(done / rows)
        return frozen_features(dataset, PlannedEncoder(plan), batch_size=_ROWS_AT_ONCE, progress=advance)


class PlannedEncoder:
    """The frozen encoder of a plan, which is only built when there is something to encode.

    Args:
        plan: with ``frozen``.
    """

    def __init__(self, plan: ModelPlan) -> None:
        self.about, self.dim = dict(plan.frozen or {}), plan.shape[0]
        self._encoder: FrozenEncoder | None = None

    @property
    def name(self) -> str:
        """That of the encoder in training."""
        return self.about["name"]

    def __call__(self, inputs: object) -> Tensor:
        """``(B, dim)``."""
        if self._encoder is None:
            self._encoder = frozen_encoder(self.about["encoder"], self.about["options"])
            if self._encoder.name != self.name:
                raise ValueError(
                    f"`frozen` {self.about['encoder']!r} must be {self.name!r} as in training; got "
                    f"{self._encoder.name!r}."
                )
        return self._encoder(inputs)


class EncodedRows:
    """Features that an encoder makes of rows when they are asked for.

    Args:
        inputs: of a kind that the encoder takes.
        encoder: see `shortlist.data.Encoder`.
    """

    kind = "features"

    def __init__(self, inputs: Inputs, encoder: PlannedEncoder) -> None:
        self.inputs, self.encoder = inputs, encoder

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row."""
        return (self.encoder.dim,)

    def batch(self, rows: Tensor) -> Tensor:
        """``(B, dim)``, float32; a few rows at a time, for images grow in a network."""
        few = rows.split(_ROWS_AT_ONCE) if len(rows) else ()
        parts = [self.encoder(self.inputs.batch(some)).to(torch.float32) for some in few]
        return torch.cat(parts) if parts else torch.empty(0, self.encoder.dim)

    def take(self, rows: Tensor) -> EncodedRows:
        """The same encoder on some of the rows."""
        return EncodedRows(self.inputs.take(rows), self.encoder)

    def fingerprints(self, rows: Tensor) -> list[bytes]:
        """Those of what is encoded."""
        return self.inputs.fingerprints(rows)
