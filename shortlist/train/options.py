"""How a model is trained: numbers that have sensible values for most data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Real
from typing import Any, Literal


@dataclass(frozen=True)
class FitOptions:
    """Options of a run.

    Args:
        loss: cross_entropy, lml_nll, average_k, two_way, bce, ... (``shortlist losses`` lists all); ``auto`` is
            cross_entropy for one class per row, and bce for sets.
        k: how many labels an answer holds, or holds on average; losses and metrics go by it.
        encoder: linear, mlp, bag, cnn, densenet, ``torchvision:NAME``, ``timm:NAME``; ``auto`` goes by the inputs.
            Other libraries' networks take the options weights (a file, or DEFAULT, which they download; without it
            parameters are drawn anew) and resolution.
        head: linear, cosine, bottleneck, dft; ``auto`` goes by the loss.
        frozen: an encoder that is not trained: minilm for texts, efficientnet-lite0, ``torchvision:NAME`` or
            ``timm:NAME`` for images. Its features are computed once and kept on the disk; ``encoder`` is trained on
            them. None if it is empty.
        loss_options: what to give to the loss, by name.
        encoder_options: what to give to the encoder, by name.
        head_options: what to give to the head, by name.
        frozen_options: what to give to the frozen encoder, by name; those of other libraries need weights.
        epochs: how often to go through the training rows, at most.
        batch_size: rows of a step, over all processes.
        learning_rate: the highest rate of the optimiser.
        milestones: shares of all epochs, rising, at each of which the rate is divided by ten: 0.5 and 0.75 are
            epochs 150 and 225 of 300. Without any the rate rises for a twentieth of the steps and falls as a cosine.
        weight_decay: of the optimiser.
        optimizer: ``adamw``, or ``sgd`` with Nesterov momentum.
        augmentation: ``crop-flip`` for images: in every epoch each training image is moved by up to 4 pixels each way,
            black where it has left, and mirrored with chance 1/2. None if it is empty.
        start: ``frequencies`` begins with logits that say how frequent the labels are, ``drawn`` with parameters as
            chance gives them; ``auto`` is the former unless the loss never pushes down a label that is on top of every
            row.
        monitor: the metric to stop by and to choose the best epoch by; ``auto`` is the average-k accuracy, or recall at
            k for sets.
        patience: how many epochs without a better value to wait; 0 never stops early.
        precision: ``32-true``, ``bf16-mixed`` or ``16-mixed``, as Lightning calls them: whether the network computes in
            half precision (on a CPU both mean bfloat16). Losses, parameters and saved models are float32.
        processes: how many processes of this machine share a step, each on its part of the batch, with the result of
            one but for what chance draws, as dropout does. They use graphics cards if there are as many, else CPUs. A
            script must guard its start with ``if __name__ == "__main__"``.
        nodes: how many machines share a step. The same command is started on each, with MASTER_ADDR and MASTER_PORT
            (the address of the first machine and a free port of it) and NODE_RANK (0, 1, ...) in its environment; each
            starts ``processes``. All must see the same folder. Under ``torchrun``, which starts the processes itself,
            both numbers are left out.
        strategy: what each of several processes keeps: ``ddp`` all parameters, ``fsdp`` its part of parameters,
            gradients and states of the optimiser. The result is the same.
        seed: of parameters, order, dropout, noise and augmentation.
        words: how many columns texts are hashed to.
    """

    loss: str = "auto"
    k: float = 3
    encoder: str = "auto"
    head: str = "auto"
    frozen: str = ""
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    head_options: Mapping[str, Any] = field(default_factory=dict)
    frozen_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 20
    batch_size: int = 128
    learning_rate: float = 1e-3
    milestones: tuple[float, ...] = ()
    weight_decay: float = 1e-4
    optimizer: Literal["adamw", "sgd"] = "adamw"
    augmentation: Literal["", "crop-flip"] = ""
    start: Literal["auto", "frequencies", "drawn"] = "auto"
    monitor: str = "auto"
    patience: int = 5
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    processes: int = 1
    nodes: int = 1
    strategy: Literal["ddp", "fsdp"] = "ddp"
    seed: int = 0
    words: int = 2**16

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "processes", "nodes", "words", "patience", "seed"):
            if type(getattr(self, name)) is not int:
                raise TypeError(f"`{name}` must be a whole number; got {getattr(self, name)!r}.")
        for name in ("k", "learning_rate", "weight_decay"):
            if isinstance(getattr(self, name), bool) or not isinstance(getattr(self, name), Real):
                raise TypeError(f"`{name}` must be a number; got {getattr(self, name)!r}.")
        for name in ("loss", "encoder", "head", "frozen", "monitor"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"`{name}` must be a text; got {getattr(self, name)!r}.")
        for name in ("loss_options", "encoder_options", "head_options", "frozen_options"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(f"`{name}` must be options by name; got {getattr(self, name)!r}.")
        for name in ("epochs", "batch_size", "processes", "nodes", "words"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1; got {getattr(self, name)}.")
        for name in ("learning_rate", "k"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be above 0 and finite; got {getattr(self, name)}.")
        for name in ("patience", "weight_decay", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be at least 0 and finite; got {getattr(self, name)}.")
        for name, known in (
            ("optimizer", ("adamw", "sgd")),
            ("precision", ("32-true", "bf16-mixed", "16-mixed")),
            ("start", ("auto", "frequencies", "drawn")),
            ("strategy", ("ddp", "fsdp")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}; got {getattr(self, name)!r}.")
        if self.augmentation not in ("", "crop-flip"):
            raise ValueError(f"`augmentation` must be crop-flip or empty; got {self.augmentation!r}.")
        object.__setattr__(self, "milestones", _shares(self.milestones))

        if self.augmentation and self.frozen:
            what = f"`augmentation` must be empty with `frozen` {self.frozen!r}, whose features are computed once"
            raise ValueError(f"{what}; got {self.augmentation!r}.")
        if self.strategy == "fsdp" and self.precision == "16-mixed":
            raise ValueError("`precision` must be 32-true or bf16-mixed with `strategy` 'fsdp'; got '16-mixed'.")
        if self.frozen_options and not self.frozen:
            raise ValueError(f"`frozen_options` must be empty without `frozen`; got {dict(self.frozen_options)}.")

    def to_json(self) -> dict[str, Any]:
        """Plain values, tensors and arrays as lists; ValueError if an option holds anything that is none.

        Machines and strategy are left out: they say where a run is computed, and change nothing of what it computes.
        """
        kept = {name: value for name, value in vars(self).items() if name not in ("nodes", "strategy")}
        try:
            return json.loads(json.dumps(kept, default=_plain))
        except TypeError as error:
            raise ValueError(f"`options` must hold plain values, tensors or arrays: {error}.") from error


def _shares(milestones: Any) -> tuple[float, ...]:
    if not isinstance(milestones, Sequence) or isinstance(milestones, str | bytes):
        raise TypeError(f"`milestones` must be a list of numbers; got {milestones!r}.")
    for share in milestones:
        if isinstance(share, bool) or not isinstance(share, Real):
            raise TypeError(f"`milestones` must be a list of numbers; got {share!r} in it.")
    shares = tuple(float(share) for share in milestones)
    if not all(before < after for before, after in pairwise((0.0, *shares, 1.0))):
        raise ValueError(f"`milestones` must lie in (0, 1) and rise; got {list(milestones)}.")
    return shares


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"got {type(value).__name__}")
