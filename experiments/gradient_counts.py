"""How sparse the gradient of the noised top-k loss is: figure 4.2 of the text on sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import log10
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from experiments.noise_shown import setup_words
from experiments.noise_trial import with_fewer_rows
from experiments.noised_sweeps import (
    asked_of,
    named_figure,
    rates_tried,
    reference_choice,
    reference_words,
    tuning_trials,
)
from experiments.runs import trained
from shortlist.evidence import Claim, Lab, Outcome, Table, alike, grows
from shortlist.nn import NoisedTopK
from shortlist.train.comparison import Interval

_MEASURED = "trained for one epoch at the rate that was chosen, and the gradient of every training row is counted"


def counting_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train, and count the coordinates of the gradient with respect to the logits of every training row.

    Args:
        settings: those of `experiments.noise_trial.trial`; labels stay clean, and no part is measured.
        root: where data are.

    Returns:
        ``coordinates``, how many are not 0 on average; ``active``, the share of rows that have any; ``labels``, how
        many coordinates there are.
    """
    seed, rows = int(settings["seed"]), int(settings["rows"])
    with counted_coordinates() as counts:
        run = trained(settings, root, change=lambda dataset: with_fewer_rows(dataset, rows, seed=seed))
    found = torch.cat(counts).double()
    return {
        "coordinates": float(found.mean()),
        "active": float((found > 0).double().mean()),
        "labels": run.dataset.num_labels,
    }


@contextmanager
def counted_coordinates() -> Iterator[list[Tensor]]:
    """While it lasts, every backward pass of a `NoisedTopK` adds the counts of its rows to the list that it gives."""
    counts: list[Tensor] = []

    def count(gradient: Tensor) -> None:
        counts.append((gradient != 0).sum(-1).cpu())

    def watch(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, NoisedTopK) and inputs[0].requires_grad:
            inputs[0].register_hook(count)

    handle = register_module_forward_pre_hook(watch)
    try:
        yield counts
    finally:
        handle.remove()


def sparsity_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 4.2: how many coordinates of the gradient are not 0 in the first epoch, against the scale of the noise."""
    scales = [float(epsilon) for epsilon in settings["epsilons"]]
    lab.plan(tuning_trials(settings) + len(scales) * len(settings["seeds"]))
    choice = reference_choice(settings, lab)
    order = [(epsilon, seed) for epsilon in scales for seed in settings["seeds"]]
    # The rate stays what it is: a milestone at the very end takes the place of the cosine.
    once = {**choice.options, "epochs": 1, "milestones": [0.999]}
    asked = [
        asked_of(settings, once, seed, "train", epsilon=epsilon, samples=settings["counted_samples"])
        for epsilon, seed in order
    ]
    runs: dict[float, list[dict[str, Any]]] = {epsilon: [] for epsilon in scales}
    for (epsilon, _), result in zip(order, lab.trials(counting_trial, asked), strict=True):
        runs[epsilon].append(result)
    values = {epsilon: [run["coordinates"] for run in each] for epsilon, each in runs.items()}
    rows = [
        [f"{epsilon:g}", Interval.of(values[epsilon]), Interval.of([run["active"] for run in each])]
        for epsilon, each in runs.items()
    ]
    labels, draws = int(next(iter(runs.values()))[0]["labels"]), settings["counted_samples"]
    title = f"Gradient coordinates that are not 0, of {labels}, in the first epoch (M = {draws})"
    note = f"At most M + 1 = {draws + 1} coordinates can differ from 0; a row beyond the margin has none."
    return Outcome(
        setup_words({**settings, "noise": [0.0]}, chosen=reference_words(settings), measured=_MEASURED),
        _sparsity_claims(values, labels, draws, published),
        [Table(title, ["ε", "coordinates", "share of rows with a gradient"], rows, digits=2, note=note)],
        [named_figure(title, "scale ε of the noise", values, lab.figures / "coordinates.png", percent=False)],
        rates_tried(settings, choice),
        {f"{epsilon:g}": each for epsilon, each in runs.items()},
    )


def _sparsity_claims(
    values: Mapping[float, Sequence[float]], labels: int, draws: int, published: Mapping[str, Any]
) -> list[Claim]:
    rising = {log10(epsilon): each for epsilon, each in values.items() if epsilon > 0}
    most, about = max(values), float(published["coordinates"])
    words = f"on average {about:g} of {published['labels']} where ε is large"
    return [
        Claim(
            "The number of coordinates that are not 0 grows with ε.",
            "a rising curve; the text gives no numbers",
            grows(rising, name="their number", along="log10 ε =", worth=published["worth"], unit="coordinates"),
        ),
        Claim(
            f"Even where ε is large the gradient is sparse: about {about:g} of {labels} coordinates, which is also the "
            f"most that M = {draws} allows, M + 1.",
            words,
            alike(
                values[most],
                [about] * len(values[most]),
                names=(f"coordinates at ε = {most:g}", f"{about:g}"),
                within=published["within"],
                unit="coordinates",
            ),
        ),
    ]
