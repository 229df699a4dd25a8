"""What rules fitted on the validation rows do: conformal sets, which rule to take, answers by group of labels."""

from __future__ import annotations

import numpy as np
import torch

from shortlist.comparison_document import ErrorControl, GroupAnswers, RuleAdvice, RuleFigures
from shortlist.data import Dataset
from shortlist.data.draws import Draws
from shortlist.functional import hierarchical_precision, hierarchical_recall
from shortlist.sets import (
    AverageError,
    AverageK,
    DeepestNode,
    MissGoal,
    RecallControl,
    SizeGoal,
    choose_rule,
    expand,
)
from shortlist.taxonomy import Taxonomy
from shortlist.train.comparison.scored_rows import missed_share, positive_pairs, probabilities, true_labels
from shortlist.train.evaluation import Evaluation

_ALPHA = 0.1
# A rule is chosen on as many validation rows as have this many scores.
_MOST_SCORES = 1 << 22


def error_control(evaluation: Evaluation, rows: Dataset, val: Dataset) -> ErrorControl | None:
    """Calibrate conformal sets on the validation rows; None if these have no true label."""
    link, true = evaluation.rule.link, true_labels(val)
    if true is None:
        return None
    rule = (AverageError if true.ndim == 1 else RecallControl)(_ALPHA, link=link)
    probs = probabilities(evaluation.logits, link)
    sets = rule.fit(probabilities(evaluation.val_logits, link), true, from_logits=False)(probs)
    at, labels = positive_pairs(rows)
    size = np.count_nonzero(sets.numpy()) / max(len(sets), 1)
    return ErrorControl(_ALPHA, missed_share(sets[at, labels], at, len(sets)), size)


def rule_advice(evaluation: Evaluation, val: Dataset) -> list[RuleAdvice]:
    """Recommend a rule for the size, and one for the error, on the validation rows alone; none without true labels."""
    rule, n = evaluation.rule, val.num_labels
    order = Draws(0, "rows for the choice of a rule").order(len(val))
    chosen = torch.from_numpy(order)[: max(_MOST_SCORES // n, 2)].sort().values
    true = true_labels(val.subset(chosen))
    if true is None or len(chosen) < 2:
        return []
    probs = probabilities(evaluation.val_logits[chosen], rule.link)
    found = []
    for goal in (SizeGoal(rule.k), MissGoal(_ALPHA)):
        choice = choose_rule(probs, true, goal=goal, from_logits=False, one_class=true.ndim == 1, link=rule.link)
        figures = [
            RuleFigures(each.name, each.size, each.missed, each.worst_class and each.worst_class.missed)
            for each in choice.figures
        ]
        found.append(RuleAdvice(str(goal), choice.best, choice.reason, figures))
    return found


def group_answers(evaluation: Evaluation, rows: Dataset, val: Dataset, rule: AverageK) -> GroupAnswers | None:
    """Answer with groups of labels where single ones are too unsure; None without nested groups of one class per row.

    Args:
        evaluation: scores and link.
        rows, val: the evaluated rows and the validation rows.
        rule: for the requested average size; takes probabilities.
    """
    taxonomy, true = _taxonomy(rows), true_labels(val)
    if taxonomy is None or true is None or true.ndim > 1:
        return None
    link = rule.link
    deepest = DeepestNode(_ALPHA, taxonomy, link=link)
    deepest.fit(probabilities(evaluation.val_logits, link), true, from_logits=False)
    probs = probabilities(evaluation.logits, link)
    nodes = deepest.predict_nodes(probs, generator=torch.Generator().manual_seed(0))
    inside = expand(nodes, taxonomy).to_mask()
    at, labels = positive_pairs(rows)
    depth = taxonomy.depths[nodes.labels]
    named = {
        "one label": nodes.labels < taxonomy.num_labels,
        "a group": (nodes.labels >= taxonomy.num_labels) & (depth > 0),
        "anything": depth == 0,
    }
    sets, truth = rule(probs), rows.true_targets
    return GroupAnswers(
        groups=list(rows.label_groups),
        alpha=_ALPHA,
        error=missed_share(inside[at, labels], at, len(inside)),
        named={what: float(mask.double().mean()) for what, mask in named.items()},
        precision=float(hierarchical_precision(sets, truth, taxonomy)),
        recall=float(hierarchical_recall(sets, truth, taxonomy)),
    )


def _taxonomy(rows: Dataset) -> Taxonomy | None:
    """The labels below their groups; None if there are none, or if they are not inside each other."""
    try:
        return rows.taxonomy() if rows.label_groups else None
    except ValueError:
        return None
