"""Build the document of a comparison: everything that its report shows."""

from __future__ import annotations

import math
import platform
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timezone
from io import BytesIO
from typing import Any

import torch
from torch import Tensor

from shortlist import __version__
from shortlist.comparison_document import (
    Candidate,
    ComparisonDocument,
    DataSummary,
    Example,
    ExampleInput,
    FeatureInput,
    ImageInput,
    MeanInterval,
    MetricInfo,
    Optimum,
    Provenance,
    Run,
    RunResult,
    ShotGroup,
    TextInput,
)
from shortlist.data import Dataset
from shortlist.extras import require
from shortlist.train.compared_run import example_positions
from shortlist.train.comparison import NO_AIM, Comparison, better
from shortlist.train.evaluation import evaluate_scores, figure_names
from shortlist.train.findings import Shots, fitted_rules, rarest_shot, rounded, set_findings, size_grid, true_pairs
from shortlist.train.options import FitOptions
from shortlist.train.scores import batches_of, is_one_class

_MOST_LETTERS = 4000
_MOST_FEATURES = 256


def comparison_document(
    comparison: Comparison,
    dataset: Dataset,
    candidates: Mapping[str, FitOptions],
    *,
    target: str,
    part: str = "test",
    exact: Callable[[Any], Tensor] | None = None,
    commands: Sequence[str] = (),
    seconds: float = 0.0,
) -> ComparisonDocument:
    """Build the document of a comparison.

    Args:
        comparison, dataset, candidates, part: what was given to `shortlist.train.compare`, and what it gave. All
            candidates have the same ``k``.
        target: the figure that matters most.
        exact: from a batch of inputs to the true probabilities of the labels, where they are known; they are measured
            like a model, on the same rows.
        commands: how to do it again.
        seconds: how long it took.

    Returns:
        What `shortlist.report` reads, and `shortlist.train.write_comparison` writes.
    """
    k = next(iter(candidates.values())).k
    names = figure_names(dataset, k) + ([NO_AIM] if is_one_class(dataset) else [])
    return ComparisonDocument(
        made=Provenance(
            shortlist=__version__,
            torch=str(torch.__version__),
            python=platform.python_version(),
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seconds=round(seconds, 1),
            threads=torch.get_num_threads(),
        ),
        commands=list(commands),
        data=_data(dataset, part),
        k=k,
        ks=size_grid(k, dataset.num_labels),
        target=target,
        metrics=[MetricInfo(name, better(name)) for name in names],
        best={name: comparison.best(name) for name in names if better(name) is not None},
        optimum=None if exact is None else _optimum(dataset, part, exact, k),
        candidates={name: _candidate(comparison, name, options, names) for name, options in candidates.items()},
        examples=_examples(comparison, dataset.part(part)),
    )


def shown_input(dataset: Dataset, row: int) -> ExampleInput:
    """Return the input of a row as a page can show it: text, an image as PNG, or numbers."""
    kind = dataset.inputs.kind
    content = dataset.inputs.batch(torch.tensor([row]))[0]
    if kind == "text":
        return TextInput(content[:_MOST_LETTERS])
    if kind == "images":
        return ImageInput(_png(content))
    dense = content.to_dense() if kind == "sparse features" else content
    return FeatureInput(rounded(dense.flatten()[:_MOST_FEATURES].double()))


def _png(image: Tensor) -> str:
    pixels = image if image.dtype == torch.uint8 else (image.float().clamp(0, 1) * 255).round().to(torch.uint8)
    # Three channels are colours; of other numbers the first is shown, in grey.
    array = pixels.permute(1, 2, 0).numpy() if len(pixels) == 3 else pixels[0].numpy()
    file = BytesIO()
    require("PIL.Image", extra="data").fromarray(array).save(file, format="PNG")
    return b64encode(file.getvalue()).decode()


def _data(dataset: Dataset, part: str) -> DataSummary:
    rows, counts = dataset.part(part), dataset.label_counts("train")
    at, labels = true_pairs(rows)
    shots = Shots.of_counts(counts)
    of_row = rarest_shot(shots, at, labels, len(rows))
    split = dataset.split
    sizes = {} if split is None else dict(zip(split.names, split.counts().tolist(), strict=True))
    return DataSummary(
        name=dataset.name or "data",
        kind=dataset.inputs.kind,
        task="one class" if is_one_class(dataset) else "sets",
        labels=dataset.num_labels,
        labels_per_row=int(dataset.label_counts().sum()) / max(len(dataset), 1),
        parts=sizes,
        evaluated=part,
        shots=[
            ShotGroup(name, about, labels=int((shots.of_label == code).sum()), rows=int((of_row == code).sum()))
            for code, (name, about) in enumerate(zip(shots.names, shots.about, strict=True))
            if bool((shots.of_label[labels] == code).any())
        ],
    )


def _optimum(dataset: Dataset, part: str, exact: Callable[[Any], Tensor], k: float) -> Optimum:
    """What the true probabilities achieve; logits of probabilities that a link turns back into them."""
    one_class = is_one_class(dataset)

    def logits(of: str) -> Tensor:
        rows = dataset.part(of)
        blocks = [exact(rows.inputs.batch(some)) for some in batches_of(len(rows))]
        # The least positive number stands for 0, of which there is no logarithm.
        chances = torch.cat(blocks).double().clamp(min=1e-300)
        return chances.log() if one_class else chances.log() - torch.log1p(-chances.clamp(max=1 - 1e-16))

    rows = dataset.part(part)
    found = evaluate_scores(logits("val"), logits(part), rows, k=k, link="softmax" if one_class else "sigmoid")
    rules = fitted_rules(found, size_grid(k, dataset.num_labels))
    return Optimum(dict(found.values), set_findings(found, rows, dataset.label_counts("train"), rules, k=k))


def _candidate(comparison: Comparison, name: str, options: FitOptions, metrics: Sequence[str]) -> Candidate:
    details = comparison.details[name]
    shared = [each.name for each in fields(RunResult)]
    first = next(iter(details.values()))

    def interval(metric: str) -> MeanInterval:
        found = comparison.interval(name, metric)
        return MeanInterval(found.mean, None if math.isnan(found.half_width) else found.half_width)

    return Candidate(
        about=_about(first.loss, options),
        options=options.to_json(),
        intervals={metric: interval(metric) for metric in metrics},
        runs=[
            Run(seed=seed, values=dict(run.values), **{key: getattr(run, key) for key in shared})
            for seed, run in details.items()
        ],
        audit=first.audit,
    )


def _about(loss: str, options: FitOptions) -> str:
    """The loss, and the encoder and the head where they were chosen."""
    words = [f"loss {loss}"]
    for what, name, extra in (
        ("encoder", options.encoder, options.encoder_options),
        ("head", options.head, options.head_options),
        ("frozen", options.frozen, options.frozen_options),
    ):
        inside = ", ".join(f"{key} {value}" for key, value in extra.items())
        if name not in ("auto", "") or inside:
            words.append(f"{what} {name}" + (f" ({inside})" if inside else ""))
    return ", ".join(words)


def _examples(comparison: Comparison, rows: Dataset) -> list[Example]:
    first = {name: next(iter(details.values())).answers for name, details in comparison.details.items()}
    at, labels = true_pairs(rows)
    return [
        Example(
            row=row,
            input=shown_input(rows, row),
            truth=[rows.label_names[label] for label in labels[at == row].tolist()],
            answers={name: answers[place] for name, answers in first.items()},
        )
        for place, row in enumerate(example_positions(len(rows)).tolist())
    ]
