"""A head of label clusters against a linear layer: ``python -m benchmarks.label_clusters --labels 1000000``.

Prints processor seconds of a training step (forward, backward, update) and of the best 5 labels of 256 rows, and the
peak memory of the process, so it measures one head at a time.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time

import torch
from torch import Tensor, nn

from shortlist.nn import BCE, ClusterHead
from shortlist.train.label_clusters import candidate_loss
from shortlist.train.lazy_adamw import LazyAdamW

FEATURES, ROWS, POSITIVES, PREDICTED, BEST = 256, 128, 5, 256, 5


def batch(labels: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random features, and labels of which no two in a row are equal."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randint(labels // POSITIVES, (ROWS, POSITIVES), generator=generator)
    features = torch.randn(ROWS, FEATURES, generator=generator).requires_grad_()
    return features, first * POSITIVES + torch.arange(POSITIVES)


def step_seconds(head: nn.Module, labels: int, steps: int) -> float:
    """The median processor time of a step."""
    loss, times = BCE(), []
    optimizer = LazyAdamW(head.parameters(), lr=1e-3, weight_decay=1e-4, fused=True)
    for seed in range(steps):
        features, target = batch(labels, seed)
        began = time.process_time()
        value = (
            candidate_loss(loss, head, features, target)
            if isinstance(head, ClusterHead)
            else loss(head(features), target)
        )
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.process_time() - began)
    return statistics.median(times)


@torch.no_grad()
def prediction_seconds(head: nn.Module) -> float:
    """The processor time of the best labels of some rows."""
    features = torch.randn(PREDICTED, FEATURES, generator=torch.Generator().manual_seed(0))
    began = time.process_time()
    logits = head.candidates(features).values if isinstance(head, ClusterHead) else head(features)
    logits.topk(BEST)
    return time.process_time() - began


def main() -> None:
    """Measure one head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--head", choices=("clusters", "linear"), default="clusters")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    made = ClusterHead if options.head == "clusters" else nn.Linear
    head = made(FEATURES, options.labels)
    step, prediction = step_seconds(head, options.labels, options.steps), prediction_seconds(head)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sys.stdout.write(
        f"{options.head}, {options.labels:,} labels: {step:.2f} s per step of {ROWS} rows, "
        f"{prediction:.2f} s for {PREDICTED} rows, {peak:.1f} GB\n"
    )


if __name__ == "__main__":
    main()
