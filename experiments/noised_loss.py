"""The noised top-k loss by its noise scale and number of samples (sets, tables 4.2 and 4.3, figure 4.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import log10
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from experiments.candidates import compared, count_runs, count_trials, merged, trained, tuned_runs
from experiments.label_noise import at_each, limits_words, setup_words, trial, with_fewer_rows
from experiments.presentation import interval_line, limits_around, saved, tried_words
from shortlist.evidence import Choice, Claim, Figure, Finding, Lab, Outcome, Table, alike, at_most, grows
from shortlist.evidence.lab import Trial
from shortlist.evidence.verdicts import FAILS, HOLDS, OPEN
from shortlist.nn import NoisedTopK
from shortlist.report.chart import Axis, Chart, candidate_style
from shortlist.train.comparison import Interval

By = Mapping[float, Sequence[float]]
"""One value per seed, by condition."""


def epsilon_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.2: accuracy by the scale of the noise; the learning rate is tuned for each scale with the same budget."""
    names = {float(epsilon): f"ε = {epsilon:g}" for epsilon in settings["epsilons"]}
    candidates = {
        name: {
            "fit": {"loss_options": {"epsilon": epsilon, "samples": settings["samples"]}},
            "grid": settings["grid"],
        }
        for epsilon, name in names.items()
    }
    asked = {**settings, "candidates": candidates}
    lab.plan(count_trials(asked))
    found = compared(lab, trial, asked, figure="topk", noise=0.0, rows=int(settings["rows"]))
    values = {epsilon: found.figure(name, "topk") for epsilon, name in names.items()}
    paper = dict(zip(map(float, published["epsilons"]), published["accuracy"], strict=True))
    rates = {epsilon: found.choices[name].options["learning_rate"] for epsilon, name in names.items()}
    rows = [
        [f"{epsilon:g}", Interval.of(each), f"{rates[epsilon]:g}", _fraction(paper.get(epsilon))]
        for epsilon, each in values.items()
    ]
    title = f"Top-{settings['fit']['k']} accuracy by the noise scale ε"
    columns = ["ε", "ours, test rows", "chosen learning rate", "published, best on validation rows"]
    return Outcome(
        setup_words({**settings, "noise": [0.0]}, chosen="for each ε"),
        _epsilon_claims(values, paper, published),
        [Table(f"{title}, in percent", columns, rows, percent=True, digits=2)],
        [_figure(title, "noise scale ε", values, lab, "accuracy.png")],
        [*tried_words(found.choices), *limits_words(settings)],
        {f"{epsilon:g}": found.found[name] for epsilon, name in names.items()},
    )


def _epsilon_claims(values: By, paper: Mapping[float, float], published: Mapping[str, Any]) -> list[Claim]:
    reference, failing = float(published["reference"]), float(published["failing"])
    tiny = [epsilon for epsilon in values if 0 < epsilon < published["wide_from"]]
    wide = {epsilon: each for epsilon, each in values.items() if epsilon >= published["wide_from"]}
    failed = {e: fails_to_learn(values[e], values[reference], fraction=failing) for e in (0.0, *tiny)}
    known = [paper[epsilon] for epsilon in wide if epsilon in paper]
    return [
        Claim(
            f"Without noise (ε = 0), the model fails to learn: less than {100 * failing:g}% of the accuracy at ε = "
            f"{reference:g}.",
            f"{paper[0.0]:g}% at ε = 0, {paper[reference]:g}% at ε = {reference:g}",
            failed[0.0],
        ),
        Claim(
            f"With too little noise (0 < ε < {published['wide_from']:g}), it also fails to learn.",
            ", ".join(f"{paper[epsilon]:g}% at {epsilon:g}" for epsilon in tiny if epsilon in paper),
            at_each({f"ε = {e:g}": failed[e] for e in tiny}),
        ),
        Claim(
            f"All ε from {published['wide_from']:g} on perform alike, within {100 * published['within']:g} points.",
            f"from {min(known):g}% to {max(known):g}%",
            at_most(_spread(wide), published["within"], name="spread over ε", unit="points"),
        ),
    ]


def samples_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 4.3: accuracy by the number of samples, all with the learning rate chosen for the paper's number."""
    conditions = {float(count): {"samples": int(count)} for count in settings["samples"]}
    choice, runs = _from_reference(settings, lab, conditions)
    values = {count: [run["topk"] for run in each] for count, each in runs.items()}
    paper = dict(zip(published["samples"], published["accuracy"], strict=True))
    few, most, within = published["few"], max(values), published["within"]
    claims = [
        Claim(
            f"The number of samples hardly matters: all M are within {100 * within:g} points.",
            f"from {min(paper.values()):g}% to {max(paper.values()):g}%",
            at_most(_spread(values), within, name="spread over M", unit="points"),
        ),
        Claim(
            f"Few samples suffice: M = {few} performs like M = {most:g}.",
            f"{paper[few]:g}% at M = {few}, {paper[max(paper)]:g}% at M = {max(paper):g}",
            alike(values[few], values[most], names=(f"M = {few}", f"M = {most:g}"), within=within),
        ),
    ]
    title = f"Top-{settings['fit']['k']} accuracy by the number of samples M"
    rows = [[f"{count:g}", Interval.of(each), _fraction(paper.get(count))] for count, each in values.items()]
    columns = ["M", "ours, test rows", "published, best on validation rows"]
    return Outcome(
        setup_words({**settings, "noise": [0.0]}, chosen=_reference_words(settings)),
        claims,
        [Table(f"{title}, in percent", columns, rows, percent=True, digits=2)],
        [_figure(title, "number of samples M", values, lab, "accuracy.png")],
        [*tried_words({"reference": choice}), *limits_words(settings)],
        {f"{count:g}": each for count, each in runs.items()},
    )


def sparsity_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 4.2: nonzero coordinates of the gradient in the first epoch, by the noise scale."""
    samples = settings["counted_samples"]
    scales = [float(epsilon) for epsilon in settings["epsilons"]]
    conditions = {epsilon: {"epsilon": epsilon, "samples": samples} for epsilon in scales}
    # The rate stays constant: a milestone at the very end replaces the cosine schedule.
    once = {"epochs": 1, "milestones": [0.999]}
    choice, runs = _from_reference(settings, lab, conditions, final_trial=counting_trial, fit=once, part="train")
    values = {epsilon: [run["coordinates"] for run in each] for epsilon, each in runs.items()}
    rows = [
        [f"{epsilon:g}", Interval.of(values[epsilon]), Interval.of([run["active"] for run in each])]
        for epsilon, each in runs.items()
    ]
    labels = int(next(iter(runs.values()))[0]["labels"])
    title = f"Nonzero gradient coordinates, of {labels}, in the first epoch (M = {samples})"
    note = f"At most M + 1 = {samples + 1} coordinates are nonzero; a row beyond the margin has none."
    counted = "trained for one epoch at the chosen rate, and the gradient of every training row is counted"
    return Outcome(
        setup_words({**settings, "noise": [0.0]}, chosen=_reference_words(settings), measured=counted),
        _sparsity_claims(values, labels, samples, published),
        [Table(title, ["ε", "coordinates", "fraction of rows with a gradient"], rows, digits=2, note=note)],
        [_figure(title, "noise scale ε", values, lab, "coordinates.png", percent=False)],
        [*tried_words({"reference": choice}), *limits_words(settings)],
        {f"{epsilon:g}": each for epsilon, each in runs.items()},
    )


def _sparsity_claims(values: By, labels: int, samples: int, published: Mapping[str, Any]) -> list[Claim]:
    rising = {log10(epsilon): each for epsilon, each in values.items() if epsilon > 0}
    most, about = max(values), float(published["coordinates"])
    return [
        Claim(
            "The number of nonzero coordinates grows with ε.",
            "a rising curve; the paper gives no numbers",
            grows(rising, name="their number", along="log10 ε =", worth=published["worth"], unit="coordinates"),
        ),
        Claim(
            f"Even for large ε, the gradient is sparse: about {about:g} of {labels} coordinates, which is also the "
            f"maximum for M = {samples}, M + 1.",
            f"on average {about:g} of {published['labels']} for large ε",
            alike(
                values[most],
                [about] * len(values[most]),
                names=(f"coordinates at ε = {most:g}", f"{about:g}"),
                within=published["within"],
                unit="coordinates",
            ),
        ),
    ]


def _from_reference(
    settings: Mapping[str, Any],
    lab: Lab,
    conditions: Mapping[float, Mapping[str, Any]],
    *,
    final_trial: Trial = trial,
    fit: Mapping[str, Any] | None = None,
    part: str = "test",
) -> tuple[Choice, dict[float, list[dict[str, Any]]]]:
    """Tune once for the paper's scale and number of samples, ``reference``; then run with other loss options.

    Args:
        settings: of the study.
        lab: runs the trials.
        conditions: the loss options of the final runs.
        final_trial, fit, part: of the final runs.
    """

    def asked(_: str, options: Mapping[str, Any], condition: Any, seed: int, stage: str) -> dict[str, Any]:
        final = stage == "test"
        loss = {"loss_options": {**settings["reference"], **(conditions[condition] if final else {})}}
        return {
            "data": settings["data"],
            "fit": merged(settings["fit"], loss, options, (fit or {}) if final else {}),
            "seed": seed,
            "part": part if final else "val",
            "noise": 0.0,
            "rows": int(settings["rows"]),
        }

    tuning = {**settings, "candidates": {"reference": {"grid": settings["grid"]}}}
    by_name = {"reference": list(conditions)}
    lab.plan(count_runs(tuning, by_name))
    choices, found = tuned_runs(lab, trial, tuning, asked, figure="topk", conditions=by_name, final_trial=final_trial)
    return choices["reference"], found["reference"]


def counting_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Train, and count the nonzero coordinates of the gradient with respect to the logits of every training row.

    Args:
        settings: those of `experiments.label_noise.trial`; labels are clean, and no part is evaluated.
        root: where the data are.

    Returns:
        ``coordinates``, the mean number of nonzero ones; ``active``, the fraction of rows that have any; ``labels``,
        the number of coordinates.
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


def fails_to_learn(values: Sequence[float], reference: Sequence[float], *, fraction: float) -> Finding:
    """Whether accuracies are below a fraction of those of a reference, paired by seed.

    Example:
        >>> fails_to_learn([0.1, 0.12], [0.9, 0.9], fraction=0.5).verdict
        'holds'
    """
    found = Interval.of([value - fraction * other for value, other in zip(values, reference, strict=True)])
    low, high = found.mean - found.half_width, found.mean + found.half_width
    verdict = HOLDS if high < 0 else FAILS if low >= 0 else OPEN
    bound = fraction * Interval.of(reference).mean
    accuracy = f"{100 * (bound + found.mean):.1f} ± {100 * found.half_width:.1f}%"
    return Finding(verdict, f"accuracy {accuracy} (failure: below {100 * bound:.1f}%)")


def _spread(values: By) -> list[float]:
    """Largest minus smallest accuracy over conditions, per seed; never 0 under noise, so it errs against a claim."""
    return [max(seed) - min(seed) for seed in zip(*values.values(), strict=True)]


def _reference_words(settings: Mapping[str, Any]) -> str:
    return f"once, for ε = {settings['reference']['epsilon']:g} and M = {settings['reference']['samples']},"


def _figure(title: str, along: str, values: By, lab: Lab, file: str, *, percent: bool = True) -> Figure:
    """A line of means with a band of intervals; conditions are evenly spaced."""
    series = interval_line(
        "mean over seeds", list(map(float, range(len(values)))), list(values.values()), candidate_style(0)
    )
    x = Axis(along, scale="names", names=tuple(f"{each:g}" for each in values))
    y = Axis("nonzero coordinates")
    if percent:
        y = Axis("accuracy on test rows", percent=True, limits=limits_around(series))
    caption = f"{title}; the band is the 95% interval over seeds."
    return saved(Chart(title, x, y, tuple(series)), lab, file, caption)


def _fraction(percent: float | None) -> float | None:
    return None if percent is None else percent / 100
