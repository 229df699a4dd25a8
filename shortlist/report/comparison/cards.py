"""What a page says first about a comparison: the winner, what is undecided, sizes, the better rule, commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shortlist.comparison_document import (
    ComparisonDocument,
    SetFindings,
    Standing,
    Task,
    Tie,
    run_folder,
)
from shortlist.fit_options import still_improving
from shortlist.formatting import format_count, format_percent
from shortlist.report.comparison.winners import MetricFormat, listed, metric_title, shown_name, winners

_FEW_ROWS = 500
_FEW_SEEDS = 3
_SIZE_TOLERANCE = 0.05
# What commands call the data of a user, without and with labels.
_DATA = {"images": ("PHOTOS/", "LABELED_PHOTOS/"), "sparse features": ("NEW.txt", "LABELED.txt")}


class Step(NamedTuple):
    """A command, and what it is for."""

    purpose: str
    command: str


_STEPS: dict[Task, tuple[Step, ...]] = {
    "one class": (
        Step(
            "one label per row (a column `label`; texts in `text`, or numbers): is cross-entropy enough?",
            "shortlist compare DATA.csv --losses cross_entropy lml_nll smooth_topk_svm --k 3 --output out/mine",
        ),
        Step("a model that answers with 3 labels on average", "shortlist fit DATA.csv --k 3 --output model"),
        Step(
            "a rule for that model: answers that miss the label in 10% of the rows",
            "shortlist calibrate model --data DATA.csv --rule average-error --alpha 0.1 --output rule.json",
        ),
        Step(
            "the answers for new rows; without --rule, 3 labels on average",
            "shortlist predict model --data NEW.csv --rule rule.json --output sets.jsonl",
        ),
    ),
    "sets": (
        Step(
            "several labels per row (a column `labels`, such as `red;rose`): is BCE enough, and is every set possible?",
            "shortlist compare SETS.csv --losses bce two_way --k 6 --audit true --output out/sets",
        ),
        Step(
            "a narrow output layer that can output every set of the training rows",
            "shortlist fit SETS.csv --loss two_way --head dft --k 6 --output narrow",
        ),
    ),
}


@dataclass(frozen=True)
class Card:
    """The answers of a comparison; lists have one entry for each K of the slider.

    Attributes:
        headline: who wins the target.
        value, caption: its value, and what that is.
        undecided: what cannot be told from the winner, and how many seeds would tell.
        size: how large the winner's answers are, and where their rule was fitted.
        rule: which rule is better for the winner's scores, at the same size; empty where this is not known.
        caveats: what the numbers do not say.
        steps: commands that use the winner.
    """

    headline: list[str]
    value: list[str]
    caption: list[str]
    undecided: list[str]
    size: list[str]
    rule: list[str]
    caveats: list[str]
    steps: list[Step]


def result_card(document: ComparisonDocument, folder: Path | None = None) -> Card:
    """The card of a comparison.

    Args:
        document: the comparison.
        folder: where it and its models are kept, for commands; None if unknown.
    """
    found = _standings(document)
    at_k = [found[min(index, len(found) - 1)] for index in range(len(document.ks))]
    everywhere = list(enumerate(at_k))
    requested = at_k[document.ks.index(document.k)].best
    return Card(
        headline=[_headline(document, each) for each in at_k],
        value=[MetricFormat(document, document.target).with_unit(each.value.mean) for each in at_k],
        caption=[_caption(document, each) for each in at_k],
        undecided=[_undecided(document, each) for each in at_k],
        size=[_size_sentence(document, index, each.best) for index, each in everywhere],
        rule=[_rule_sentence(document, index, each.best) for index, each in everywhere],
        caveats=caveats(document),
        steps=model_steps(document, requested, folder),
    )


def _standings(document: ComparisonDocument) -> list[Standing]:
    """Those of the document; older ones have none, and the winner of the target stands for all K."""
    if document.standings:
        return document.standings
    best = winners(document)[0]
    ties = [
        Tie(name, document.candidates[name].differences.get(best.metric, best.interval), None) for name in best.ties
    ]
    return [Standing(best.metric, best.name, best.interval, ties)]


def _headline(document: ComparisonDocument, standing: Standing) -> str:
    name = shown_name(standing.best)
    if len(document.candidates) == 1:
        return name
    if _seeds(document, standing.best) == 1:
        return f"{name} is ahead, by one seed"
    return f"{name} leads, but not clearly" if standing.ties else f"{name} wins"


def _caption(document: ComparisonDocument, standing: Standing) -> str:
    wording, seeds = MetricFormat(document, document.target), _seeds(document, standing.best)
    width = standing.value.half_width
    words = [metric_title(standing.metric)]
    words += [] if width is None else [f"± {wording.with_unit(width)}"]
    words += [f"over {format_count(seeds, 'seed')}"]
    optimum = None if document.optimum is None else document.optimum.values.get(standing.metric)
    if optimum is not None:
        words.append(f"optimum {wording.with_unit(optimum)}")
    return ", ".join(words)


def _undecided(document: ComparisonDocument, standing: Standing) -> str:
    seeds = _seeds(document, standing.best)
    if len(document.candidates) == 1:
        return ""
    if seeds == 1:
        return "One seed cannot separate skill from luck: use --seeds 5."
    if not standing.ties:
        others = len(document.candidates) - 1
        who = "The other is" if others == 1 else f"All {others} others are"
        return f"{who} significantly worse (95% intervals, paired by seed)."
    return f"Cannot be told apart from it: {listed([_tie_words(document, tie) for tie in standing.ties])}."


def _tie_words(document: ComparisonDocument, tie: Tie) -> str:
    wording, difference = MetricFormat(document, document.target), tie.difference
    words = f"{shown_name(tie.name)} ("
    if difference.mean == 0 and difference.half_width == 0:
        return words + "equal with every seed)"
    if difference.mean is not None:
        unit = " points" if wording.is_fraction else ""
        width = "" if difference.half_width is None else f" ± {wording.value(difference.half_width)}"
        words += f"{wording.difference(difference.mean)}{width}{unit}; "
    return words + ("more than 100 seeds" if tie.seeds is None else f"about {tie.seeds} seeds") + " would tell)"


def _seeds(document: ComparisonDocument, name: str) -> int:
    return len(document.candidates[name].runs)


def achieved_sizes(document: ComparisonDocument, k_index: int) -> dict[str, float]:
    """The average size of the answers of each candidate in the evaluated rows, over seeds."""
    return {
        name: sum(run.sets.by_k[k_index].average_size for run in each.runs) / len(each.runs)
        for name, each in document.candidates.items()
    }


def _size_sentence(document: ComparisonDocument, k_index: int, name: str) -> str:
    sizes = achieved_sizes(document, k_index)
    others = f" (all candidates: {min(sizes.values()):.2f} to {max(sizes.values()):.2f})" if len(sizes) > 1 else ""
    return f"{sizes[name]:.2f} labels per answer at K = {document.ks[k_index]:g}{others}. {fitted_where(document)}"


def fitted_where(document: ComparisonDocument) -> str:
    """Which rows set the thresholds, and which were answered."""
    rows = document.data.parts.get("val")
    validation = "validation rows" if rows is None else f"{rows:,} validation rows"
    return f"Thresholds are fitted on {validation} and used on {_evaluated(document)}."


def _evaluated(document: ComparisonDocument) -> str:
    part = document.data.evaluated
    return f"{document.data.parts[part]:,} {shown_name(part)} rows"


def error_at_size(sets: Sequence[SetFindings], rule: str, size: float) -> list[float] | None:
    """The error of a rule in each seed if answers have exactly this size on average; None if that is not known."""
    errors = [
        each.curves.errors[rule][each.curves.sizes.index(size)]
        for each in sets
        if rule in each.curves.errors and size in each.curves.sizes
    ]
    known = [error for error in errors if error is not None]
    return known if known and len(known) == len(sets) else None


def better_rule(document: ComparisonDocument, name: str, k_index: int) -> str | None:
    """``"top-k"`` or ``"average-k"``, whichever misses less in all seeds at exactly K labels; None if neither does."""
    sets = [run.sets for run in document.candidates[name].runs]
    top, average = (error_at_size(sets, rule, document.ks[k_index]) for rule in ("top-k", "average-k"))
    if top is None or average is None:
        return None
    gaps = [one - other for one, other in zip(top, average, strict=True)]
    return "average-k" if min(gaps) > 0 else "top-k" if max(gaps) < 0 else None


def _rule_sentence(document: ComparisonDocument, k_index: int, name: str) -> str:
    k = f"{document.ks[k_index]:g}"
    sets = [run.sets for run in document.candidates[name].runs]
    top, average = (error_at_size(sets, rule, document.ks[k_index]) for rule in ("top-k", "average-k"))
    if top is None or average is None:
        return ""
    each, shared = (format_percent(sum(errors) / len(errors), 1) for errors in (top, average))
    better = better_rule(document, name, k_index)
    if better == "average-k":
        return f"{k} on average misses {shared} of the true labels, {k} in every answer {each}, at equal size."
    if better == "top-k":
        return f"{k} in every answer misses {each} of the true labels, {k} on average {shared}, at equal size."
    return f"Neither: {k} on average misses {shared} of the true labels, {k} in every answer {each}, at equal size."


def caveats(document: ComparisonDocument) -> list[str]:
    """What a reader of the numbers should know, each in a sentence."""
    found = []
    seeds = min(len(each.runs) for each in document.candidates.values())
    if 1 < seeds < _FEW_SEEDS:
        found.append(f"{seeds} seeds decide little: use --seeds 5.")
    rows = document.data.parts[document.data.evaluated]
    if rows < _FEW_ROWS:
        found.append(f"Only {format_count(rows, 'row')} were evaluated.")
    sizes = achieved_sizes(document, document.ks.index(document.k)).values()
    if max(abs(size / document.k - 1) for size in sizes) > _SIZE_TOLERANCE:
        found.append(
            f"Validation and {shown_name(document.data.evaluated)} rows differ: answers have {min(sizes):.2f} to "
            f"{max(sizes):.2f} labels, not {document.k:g}. For a fair comparison, see the errors at equal size."
        )
    late = [
        name
        for name, candidate in document.candidates.items()
        if any(still_improving(run.history, run.monitor) for run in candidate.runs)
    ]
    if late:
        found.append(f"Still improving at the last epoch: {listed(late)}. More --epochs may help.")
    classes = next(iter(document.candidates.values())).runs[0].sets.classes
    unseen = sum(count == 0 and seen is not None for count, seen in zip(classes.count, classes.accuracy, strict=True))
    if unseen:
        found.append(
            f"{format_count(unseen, 'label')} of the evaluated rows {'has' if unseen == 1 else 'have'} no training row."
        )
    audits = {name: each.audit for name, each in document.candidates.items() if each.audit is not None}
    impossible = [f"{shown_name(name)} {audit.unargmaxable:,}" for name, audit in audits.items() if audit.unargmaxable]
    if impossible:
        found.append(f"Label sets that an output layer can never produce: {listed(impossible)}.")
    return found


def model_steps(document: ComparisonDocument, name: str, folder: Path | None) -> list[Step]:
    """The commands that use the model of a candidate, on new data and for other promises."""
    run = run_folder(name, document.candidates[name].runs[0].seed)
    model = "MODEL" if folder is None else shlex.quote(str(folder / run))
    data, labeled = _DATA.get(document.data.kind, ("NEW.csv", "LABELED.csv"))
    rule = "average-error" if document.data.task == "one class" else "recall-control"
    use_rule = " --rule rule.json"
    steps = []
    if better_rule(document, name, document.ks.index(document.k)) == "top-k":
        command = f"shortlist calibrate {model} --data {labeled} --rule top-k --k {document.k:g} --output rule.json"
        steps.append(Step(f"the better rule: {document.k:g} labels in every answer", command))
    else:
        use_rule = ""
    predict = f"shortlist predict {model} --data {data}{use_rule} --output sets.jsonl"
    calibrate = f"shortlist calibrate {model} --data {labeled} --rule {rule} --alpha 0.1 --output rule.json"
    return [
        *steps,
        Step("the answers for new rows", predict),
        Step("a rule that misses at most 10% of the true labels", calibrate),
        Step("one file for other programs", f"shortlist export {model} --onnx"),
        Step("the model in the browser and over HTTP", f"shortlist serve {model}"),
    ]


def next_steps(documents: Sequence[ComparisonDocument]) -> list[Step]:
    """The commands to type for data of one's own, for the tasks of some comparisons, and for a page of the result.

    Example:
        >>> next_steps([])[-1].command
        'shortlist report out/mine'
    """
    tasks: list[Task] = [task for task in _STEPS if any(document.data.task == task for document in documents)]
    folders: dict[Task, str] = {"one class": "out/mine", "sets": "out/sets"}
    shown = " ".join(folders[task] for task in tasks) or folders["one class"]
    steps = [step for task in tasks for step in _STEPS[task]]
    return [*steps, Step("a page like this one", f"shortlist report {shown}")]
