"""Answers of a model to several requests at once: one pass through the network, then each request's own rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data import Features, ImageArray, Inputs, SparseRows, Texts
from shortlist.predict import Scores, iterate_sets, tensor_scores
from shortlist.predict.files.set_files import shortest_decimals
from shortlist.predict.prediction import answer_names
from shortlist.serve.models import ServedModel
from shortlist.sets import PredictionSets, SetRule
from shortlist.sets.rule import Draw
from shortlist.sets.scores import Link, apply_link


class PredictionRequest(NamedTuple):
    """What a request asks of one model.

    Attributes:
        inputs: its rows.
        rule: fitted; makes the sets.
        seed: of the random numbers that break ties, as of ``shortlist predict``; fresh by default.
        top: how many of the best labels are listed for each row, in the set or not.
    """

    inputs: Inputs
    rule: SetRule
    seed: int | None = None
    top: int = 0


Answer = list[dict[str, Any]]
"""For each row its number, and its labels and scores as `shortlist predict` writes them; and the best labels."""


def answer(model: ServedModel, requests: Sequence[PredictionRequest]) -> list[Answer]:
    """Answer several requests; each gets what it would get alone.

    Args:
        model: that all of them ask.
        requests: with rows of one kind and shape.
    """
    logits = torch.cat([block.scores for block in model.scores(joined([each.inputs for each in requests])).blocks()])
    parts = logits.split([len(each.inputs) for each in requests])
    found: list[Answer] = [[] for _ in requests]
    alike: defaultdict[object, list[int]] = defaultdict(list)
    for at, each in enumerate(requests):
        alike[(id(each.rule), each.top) if each.seed is None else at].append(at)
    for places in alike.values():
        answers = _answer_alike(model, [requests[at] for at in places], [parts[at] for at in places])
        for at, rows in zip(places, answers, strict=True):
            found[at] = rows
    return found


def answer_scores(
    scores: Scores, rule: SetRule, *, top: int, link: Link, seed: int | None = None, draw: Draw | None = None
) -> Answer:
    """The answers for scores in memory."""
    names, found = answer_names(rule, scores), []
    for block, sets in iterate_sets(scores, rule, seed=seed, draw=draw, nodes=True):
        best = _best(block.scores, sets, top, link, names) if top else None
        labels, values, ends = sets.labels.tolist(), shortest_decimals(sets.scores.numpy()), sets.indptr.tolist()
        for at, row in enumerate(block.rows):
            inside = slice(ends[at], ends[at + 1])
            chosen = [label if names is None else names[label] for label in labels[inside]]
            each = {"row": row, "labels": chosen, "scores": values[inside]}
            found.append(each if best is None else {**each, "top": best[at]})
    return found


def joined(inputs: Sequence[Inputs]) -> Inputs:
    """The rows of several inputs of one kind and shape."""
    if len(inputs) == 1:
        return inputs[0]
    first = inputs[0]
    if isinstance(first, Texts):
        return Texts([text for each in inputs if isinstance(each, Texts) for text in each.texts])
    batches = [each.batch(torch.arange(len(each))) for each in inputs]
    if isinstance(first, SparseRows):
        ends = torch.cat([torch.zeros(1, dtype=torch.int64), *(batch.crow_indices().diff() for batch in batches)])
        columns = torch.cat([batch.col_indices() for batch in batches])
        return SparseRows(ends.cumsum(0), columns, torch.cat([batch.values() for batch in batches]), first.width)
    rows = torch.cat(batches)
    return ImageArray(rows.numpy().transpose(0, 2, 3, 1)) if first.kind == "images" else Features(rows)


def _answer_alike(model: ServedModel, requests: Sequence[PredictionRequest], logits: Sequence[Tensor]) -> list[Answer]:
    """Answer requests of one rule together, unless a tie among their rows would make one depend on the others."""
    rule, seed, top, draw = requests[0].rule, requests[0].seed, requests[0].top, Draw()

    def rows_of(part: Tensor, **how: Any) -> Answer:
        scores = tensor_scores(part, from_logits=True, names=model.labels)
        return answer_scores(scores, rule, top=top, link=model.link, **how)

    if len(requests) > 1:
        rows = iter(rows_of(torch.cat(list(logits)), draw=draw))
        if draw.seen == 0:
            return [[{**next(rows), "row": row} for row in range(len(part))] for part in logits]
    return [rows_of(part, seed=seed) for part in logits]


def _best(
    scores: Tensor, sets: PredictionSets, top: int, link: Link, names: Sequence[str] | None
) -> list[list[dict[str, Any]]]:
    """The labels of greatest probability of each row, with whether they are in its set; a taxonomy's nodes are not."""
    values, labels = apply_link(scores, link).topk(min(top, scores.shape[1]), dim=-1)
    same = sets.num_labels == scores.shape[1]
    inside = sets.to_mask().gather(1, labels) if same else torch.zeros_like(labels, dtype=torch.bool)
    shown = np.array(shortest_decimals(values.flatten().numpy())).reshape(values.shape).tolist()
    return [
        [
            {"label": label if names is None else names[label], "score": score, "in_set": there}
            for label, score, there in zip(*row, strict=True)
        ]
        for row in zip(labels.tolist(), shown, inside.tolist(), strict=True)
    ]
