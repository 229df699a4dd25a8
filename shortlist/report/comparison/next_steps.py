"""What to type for one's own data, by the kind of task that a report compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shortlist.comparison_document import ComparisonDocument, Task


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


def next_steps(documents: Sequence[ComparisonDocument]) -> list[Step]:
    """The commands for the tasks of some comparisons, and for a page of the result.

    Example:
        >>> next_steps([])[-1].command
        'shortlist report out/mine'
    """
    tasks: list[Task] = [task for task in _STEPS if any(document.data.task == task for document in documents)]
    folders: dict[Task, str] = {"one class": "out/mine", "sets": "out/sets"}
    shown = " ".join(folders[task] for task in tasks) or folders["one class"]
    steps = [step for task in tasks for step in _STEPS[task]]
    return [*steps, Step("a page like this one", f"shortlist report {shown}")]
