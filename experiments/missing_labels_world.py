"""Hidden labels where every probability is known: the best answers of three likelihoods, and one without a best."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from shortlist.data import MultiLabelWorld
from shortlist.data.worlds.expected_shares import expected_shares
from shortlist.functional import bce, constrained_softmax, lml, log_lml, recall_at_k

Expected = Callable[[Tensor], Tensor]


def likelihood_answer(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """For rows of a world, the logits with the greatest expected likelihood of the observed labels, free of any model.

    Gives, by loss, the expected recall of true labels of the k largest logits as a share of the best possible one;
    ``lml_observed``, the same of observed labels; and ``distance``, the largest between the LML answer and
    min(1, t c), c the probability to be observed.
    """
    world = _world(settings)
    rows = world.sample(settings["rows"], seed=settings["seed"], split=None)
    x = rows.inputs.batch(torch.arange(len(rows))).double()
    seen, k = world.observed_probabilities(x), settings["k"]
    shares = expected_shares(seen)
    losses: dict[str, Expected] = {
        "lml": lambda z: -(seen * log_lml(z, k)).sum(),
        "bce": lambda z: binary_cross_entropy_with_logits(z, seen, reduction="sum"),
        "softmax": lambda z: -(shares * z.log_softmax(-1)).sum(),
    }
    gains = expected_shares(world.probabilities(x))
    best = gains.topk(k).values.sum()
    answers = {name: _minimised(loss, seen) for name, loss in losses.items()}
    found = {name: float(gains.gather(-1, z.topk(k).indices).sum() / best) for name, z in answers.items()}
    observed = shares.gather(-1, answers["lml"].topk(k).indices).sum() / shares.topk(k).values.sum()
    capped = constrained_softmax(seen.log(), k)
    return {**found, "lml_observed": float(observed), "distance": float((lml(answers["lml"], k) - capped).abs().max())}


def _minimised(loss: Expected, like: Tensor) -> Tensor:
    point = torch.zeros_like(like).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [point], max_iter=200, tolerance_grad=1e-7, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def value() -> Tensor:
        optimizer.zero_grad()
        total = loss(point)
        total.backward()
        return total

    optimizer.step(value)
    return point.detach()


def collapse(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Maximise the likelihood of the observed positives alone, with a sigmoid for each label and a linear model.

    Gives, after each of ``steps``, the mean score of all labels of test rows, the share of them above one half, and
    recall at k; and for comparison the recall of the k most frequent labels.
    """
    torch.manual_seed(settings["seed"])
    world, k = _world(settings), settings["k"]
    data = world.sample(settings["rows"], seed=settings["seed"], split=(0.5, 0.0, 0.5))
    train, test = data.part("train"), data.part("test")
    x, x_test = (part.inputs.batch(torch.arange(len(part))) for part in (train, test))
    present = train.targets.to_dense()
    target = torch.where(present > 0, 1.0, -1.0)
    model = torch.nn.Linear(world.dim, world.num_labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"])
    found: dict[str, Any] = {"mean_score": [], "above_half": [], "recall": []}
    for step in range(max(settings["steps"]) + 1):
        if step in settings["steps"]:
            with torch.no_grad():
                logits = model(x_test)
            found["mean_score"].append(float(logits.sigmoid().mean()))
            found["above_half"].append(float((logits > 0).double().mean()))
            found["recall"].append(float(recall_at_k(logits, test.true_targets, k)))
        optimizer.zero_grad()
        bce(model(x), target).backward()
        optimizer.step()
    frequent = present.sum(0).expand(len(test), -1).clone()
    return {**found, "frequent": float(recall_at_k(frequent, test.true_targets, k))}


def _world(settings: dict[str, Any]) -> MultiLabelWorld:
    return MultiLabelWorld(**settings["world"], missing=settings["share"], seed=settings["seed"])
