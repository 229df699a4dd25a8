"""What a training step of an output layer costs: operations, bytes and messages, and the time they predict.

The model counts what grows with rows B, labels n, features d, the budget k and processes P. Its rates are those of a
machine; the constants of each loss are measured at one size, and `benchmarks.cost_check` tests them at others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shortlist.memory import HeadKind, estimate_memory

Loss = Literal["lml_nll", "bce", "two_way", "truncated_topk_entropy"]
LOSSES: tuple[Loss, ...] = ("lml_nll", "bce", "two_way", "truncated_topk_entropy")

FORWARD_PASSES = {"lml_nll": 3.0, "bce": 1.0, "two_way": 1.0, "truncated_topk_entropy": 1.0}
"""How often a chunked loss computes all logits before the backward pass; lml as often as its root takes steps."""

LML_NUMBERS = (1, 1, 5, 3, 3, 3)
"""Numbers per row, in float64, of the messages that find the root of a sharded LML: present labels, their maximum, sums
for a first guess, and three steps."""


@dataclass(frozen=True)
class Step:
    """The sizes that a step is made of."""

    rows: int
    labels: int
    features: int
    loss: Loss
    head: HeadKind = "plain"
    processes: int = 1

    @property
    def logits(self) -> float:
        """Logits of one process."""
        return self.rows * self.labels / self.processes

    @property
    def products(self) -> float:
        """Products of all logits: forward, and two gradients; a chunked head computes the logits again."""
        return 3.0 if self.head == "plain" else FORWARD_PASSES[self.loss] + 3.0

    @property
    def operations(self) -> float:
        """Floating-point operations of the products in one process."""
        return 2 * self.products * self.logits * self.features

    @property
    def messages(self) -> int:
        """Messages between processes."""
        # In addition to those for the root: the loss, two of its backward pass, and the gradient of the features.
        return 0 if self.processes == 1 else len(LML_NUMBERS) + 4

    @property
    def message_bytes(self) -> float:
        """Bytes of these messages, as each process sends them to the reduction."""
        if self.processes == 1:
            return 0
        return self.rows * (8 * (sum(LML_NUMBERS) + 2) + 4 + 4 * self.features)

    @property
    def memory(self) -> int:
        """Bytes of one process at its peak, with SGD."""
        return estimate_memory(
            rows=self.rows,
            labels=self.labels,
            features=self.features,
            loss=self.loss,
            head=self.head,
            processes=self.processes,
            optimizer="sgd",
        ).total


@dataclass(frozen=True)
class Rates:
    """What a machine does in a second, and what a logit costs in addition to its products."""

    operations: float  # per second, in products
    per_logit: dict[str, float]  # seconds, by "loss head"
    per_message: float = 0.0  # seconds, before the first byte
    message_bytes: float = 1e9  # per second

    def seconds(self, step: Step) -> float:
        """The time of forward and backward."""
        wire = 2 * (step.processes - 1) / step.processes * step.message_bytes / self.message_bytes
        return (
            step.operations / self.operations
            + step.logits * self.per_logit[f"{step.loss} {step.head}"]
            + step.messages * self.per_message
            + wire
        )


@dataclass(frozen=True)
class Card:
    """A graphics card by its data sheet, and the share of it that programs reach."""

    name: str
    operations: float  # per second, bfloat16 products
    memory_bytes: float  # per second
    memory: float  # bytes
    wire_bytes: float  # per second, to cards of other machines
    reached: float = 0.5
    per_message: float = 50e-6  # seconds of a reduction of a few numbers over all cards

    def parts(self, step: Step, *, optimizer_copies: float = 7.0) -> dict[str, float]:
        """Seconds of a step with bfloat16 products and float32 losses, by part.

        Args:
            step: the sizes.
            optimizer_copies: how often an optimizer step reads or writes something as large as the parameters;
                AdamW reads four and writes three.
        """
        layer = 4 * step.labels / step.processes * (step.features + 1)
        wire = 2 * (step.processes - 1) / step.processes * step.message_bytes / self.wire_bytes
        return {
            "products": step.operations / (self.reached * self.operations),
            "passes of the loss": step.logits * LML_BYTES_PER_LOGIT[step.head] / (self.reached * self.memory_bytes),
            "messages": step.messages * self.per_message + wire,
            "optimizer": optimizer_copies * layer / (self.reached * self.memory_bytes),
        }


LML_BYTES_PER_LOGIT = {"plain": 3 * 68 + 60, "chunked": 3 * 68 + 52}
"""What the operations of the loss read and write for each logit: three steps of the root, and the backward."""

A100 = Card("A100 80 GB", operations=312e12, memory_bytes=2.039e12, memory=80e9, wire_bytes=25e9)
