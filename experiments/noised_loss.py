"""How sparse the gradient of the noised top-k loss is, by the scale of its noise (sets, figure 4.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import log10
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from experiments.candidates import merged, trained
from experiments.presentation import interval_line, saved
from shortlist.evidence import Claim, Lab, Outcome, Table, alike, grows
from shortlist.nn import NoisedTopK
from shortlist.report.chart import Axis, Chart, candidate_style
from shortlist.train.comparison import Interval

By = Mapping[float, Sequence[float]]
"""One value per seed, by noise scale."""


def sparsity_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Nonzero coordinates of the gradient in the first epoch of the paper's recipe, by the noise scale."""
    scales, seeds, samples = [float(each) for each in settings["epsilons"]], settings["seeds"], settings["samples"]
    asked = [
        {
            "data": settings["data"],
            "seed": seed,
            "fit": merged(settings["fit"], {"loss_options": {"epsilon": epsilon, "samples": samples}}),
        }
        for epsilon in scales
        for seed in seeds
    ]
    found = iter(lab.trials(counting_trial, asked))
    runs = {epsilon: [next(found) for _ in seeds] for epsilon in scales}
    values = {epsilon: [run["coordinates"] for run in each] for epsilon, each in runs.items()}
    rows = [
        [f"{epsilon:g}", Interval.of(values[epsilon]), Interval.of([run["active"] for run in each])]
        for epsilon, each in runs.items()
    ]
    labels = int(next(iter(runs.values()))[0]["labels"])
    title = f"Nonzero gradient coordinates, of {labels}, in the first epoch (M = {samples})"
    note = f"At most M + 1 = {samples + 1} coordinates are nonzero; a row beyond the margin has none."
    series = interval_line("mean over seeds", list(range(len(values))), list(values.values()), candidate_style(0))
    x = Axis("noise scale ε", scale="names", names=tuple(f"{each:g}" for each in values))
    chart = Chart(title, x, Axis("nonzero coordinates"), tuple(series))
    return Outcome(
        f"{settings['about']} The gradient of every training row is counted in the first epoch; {len(seeds)} seeds.",
        _sparsity_claims(values, labels, samples, published),
        [Table(title, ["ε", "coordinates", "fraction of rows with a gradient"], rows, digits=2, note=note)],
        [saved(chart, lab, "coordinates.png", f"{title}; the band is the 95% interval over seeds.")],
        values={f"{epsilon:g}": each for epsilon, each in runs.items()},
    )


def _sparsity_claims(values: By, labels: int, samples: int, published: Mapping[str, Any]) -> list[Claim]:
    rising = {log10(epsilon): each for epsilon, each in values.items() if epsilon > 0}
    most, about = max(values), float(published["coordinates"])
    return [
        Claim(
            "The number of nonzero coordinates grows with ε.",
            "a rising curve; the paper gives no numbers",
            None,
            grows(rising, name="their number", along="log10 ε =", worth=published["worth"], unit="coordinates"),
        ),
        Claim(
            f"Even for large ε, the gradient is sparse: about {about:g} of {labels} coordinates, which is also the "
            f"maximum for M = {samples}, M + 1.",
            f"on average {about:g} of {published['labels']} for large ε",
            None,
            alike(
                values[most],
                [about] * len(values[most]),
                names=(f"coordinates at ε = {most:g}", f"{about:g}"),
                within=published["within"],
                unit="coordinates",
            ),
        ),
    ]


def counting_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train, and count the nonzero coordinates of the gradient with respect to the logits of every training row.

    Args:
        settings: those of `experiments.candidates.trained`.
        root: where the data are.

    Returns:
        ``coordinates``, the mean number of nonzero ones; ``active``, the fraction of rows that have any; ``labels``,
        the number of coordinates.
    """
    with counted_coordinates() as counts:
        run = trained(settings, root)
    found = torch.cat(counts).double()
    return {
        "coordinates": float(found.mean()),
        "active": float((found > 0).double().mean()),
        "labels": run.dataset.num_labels,
    }


@contextmanager
def counted_coordinates() -> Iterator[list[Tensor]]:
    """Within the context, every backward pass of a `NoisedTopK` appends the counts of its rows to the list."""
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
