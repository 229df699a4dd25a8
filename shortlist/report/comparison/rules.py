"""What a page says about rules: which one to take for a goal, and answers that name groups of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shortlist.comparison_document import ComparisonDocument, GroupAnswers, RuleAdvice
from shortlist.formatting import format_percent
from shortlist.report.comparison.tables import CandidateTable
from shortlist.report.comparison.winners import listed, shown_name


class RuleTable(NamedTuple):
    """The rules for a goal, the recommended one, and why; each row has a rule and its figures."""

    goal: str
    best: str
    reason: str
    columns: list[str]
    rows: list[list[str]]


def rule_tables(document: ComparisonDocument, name: str) -> list[RuleTable]:
    """The advice for the first seed of a candidate, one table for each goal; older documents have none."""
    return [_rule_table(advice) for advice in document.candidates[name].runs[0].sets.advice]


def _rule_table(advice: RuleAdvice) -> RuleTable:
    columns = ["rule", "labels per row", "missed", "worst class"]
    rows = [
        [shown_name(each.rule), f"{each.size:.2f}", _percent(each.missed), _percent(each.worst_class)]
        for each in advice.rules
    ]
    kept = [at for at in range(len(columns)) if any(row[at] != "–" for row in rows)]
    return RuleTable(
        shown_name(advice.goal),
        shown_name(advice.best),
        shown_name(advice.reason),
        [columns[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
    )


def group_table(document: ComparisonDocument) -> CandidateTable | None:
    """Answers by group of all candidates, means over seeds; None if the data have no groups or for older documents."""
    found = {
        name: groups
        for name, each in document.candidates.items()
        if (groups := [run.sets.groups for run in each.runs if run.sets.groups is not None])
    }
    if not found:
        return None
    first = next(iter(found.values()))[0]
    about = (
        f"Answers that name one label, or else the most specific {listed(first.groups, 'or')} that holds the true "
        f"label in all but {first.alpha:.0%} of the rows, by a rule fitted on the validation rows. Hierarchical "
        f"precision and recall are those of sets of {document.k:g} labels on average: a wrong label of the right "
        'group counts in part. An answer of "anything" says that the model is not sure of any group.'
    )
    named = list(first.named)
    columns = ["missed", *named, "hierarchical precision", "hierarchical recall"]
    return CandidateTable(about, columns, [[name, *_group_cells(groups, named)] for name, groups in found.items()])


def _group_cells(groups: Sequence[GroupAnswers], named: Sequence[str]) -> list[str]:
    def mean(values: Sequence[float | None]) -> str:
        known = [value for value in values if value is not None]
        return _percent(sum(known) / len(known) if known else None)

    shares = [mean([each.named.get(what) for each in groups]) for what in named]
    precision, recall = ([getattr(each, key) for each in groups] for key in ("precision", "recall"))
    return [mean([each.error for each in groups]), *shares, mean(precision), mean(recall)]


def _percent(share: float | None) -> str:
    return "–" if share is None else format_percent(share, 1)
