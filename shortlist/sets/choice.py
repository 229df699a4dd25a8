"""Which rule? Fit those that promise what is wanted on half of the held-out rows; compare them on the other half."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.labels import LabelsLike, Numbers, read_numbers, read_scores, read_target
from shortlist.sets.average_k import AverageK
from shortlist.sets.conformal.class_conditional import ClassConditional
from shortlist.sets.conformal.conformity import SAPS
from shortlist.sets.conformal.rank_calibrated import RankCalibrated
from shortlist.sets.conformal.split import AverageError, PointwiseError, SplitConformal
from shortlist.sets.per_label import PerLabelThreshold
from shortlist.sets.risk.control import RecallControl
from shortlist.sets.rule import Draw, SetRule, check_alpha
from shortlist.sets.scores import Link
from shortlist.sets.top_k import TopK
from shortlist.targets import to_class_indices, to_index_lists, to_pairs
from shortlist.tensors import check_positive

LEAST_ROWS = 20
"""A class or group with fewer rows in the second half is too small to be called the worst."""


@dataclass(frozen=True)
class SizeGoal:
    """About k labels in the answers; the fewer true labels missed, the better.

    Args:
        k: labels per row, positive.
    """

    k: float

    def __post_init__(self) -> None:
        check_positive("k", self.k)

    def __str__(self) -> str:
        return f"about {self.k:g} labels per row"

    def candidates(self, *, one_class: bool, link: Link) -> dict[str, SetRule]:
        """The rules that keep this size, simplest first."""
        found: dict[str, SetRule] = {}
        if float(self.k).is_integer():
            found["top-k"] = TopK(int(self.k), link=link)
        found["average-k"] = AverageK(self.k, link=link)
        if not one_class:
            found["per-label"] = PerLabelThreshold("average-size", self.k, link=link)
        return found


@dataclass(frozen=True)
class MissGoal:
    """At most a fraction alpha of the true labels missed; the smaller the sets, the better.

    Args:
        alpha: the fraction, in (0, 1).
        per_class: whether this must hold within every class, not only on average over rows; for one class per row.
    """

    alpha: float
    per_class: bool = False

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def __str__(self) -> str:
        return f"at most {self.alpha:.1%} missed{' in every class' if self.per_class else ''}"

    def candidates(self, *, one_class: bool, link: Link) -> dict[str, SetRule]:
        """The rules that promise this, simplest first."""
        if not one_class:
            if self.per_class:
                raise ValueError("`goal` must have per_class=False for label sets; no rule promises it by class.")
            return {"recall-control": RecallControl(self.alpha, link=link)}
        by_class: dict[str, SetRule] = {"class-conditional": ClassConditional(self.alpha, link=link)}
        if self.per_class:
            return {**by_class, "rank-calibrated": RankCalibrated(self.alpha, link=link)}
        return {
            "average-error": AverageError(self.alpha, link=link),
            "pointwise-error": PointwiseError(self.alpha, link=link),
            "pointwise-error, penalty": PointwiseError(self.alpha, penalty=0.01, free=5, link=link),
            "pointwise-error, by rank": SplitConformal(self.alpha, score=SAPS(0.1), link=link),
            **by_class,
        }


Goal = SizeGoal | MissGoal


@dataclass(frozen=True)
class Worst:
    """The class or group of rows whose true labels are missed most.

    Attributes:
        index: of the class or group.
        missed: the share of its true labels that is missed.
        rows: how many rows that is measured on, at least `LEAST_ROWS`.
    """

    index: int
    missed: float
    rows: int


@dataclass(frozen=True)
class RuleFigures:
    """A rule on the rows that it was not fitted on.

    Attributes:
        name: of the candidate.
        rule: fitted on the first half.
        size, size_error: labels per row, and the standard error of that average.
        missed, missed_error: the share of a row's true labels that is not in its set, and its standard error.
        empty: the share of empty sets.
        worst_class, worst_group: None if no class or group has enough rows.
    """

    name: str
    rule: SetRule
    size: float
    size_error: float
    missed: float
    missed_error: float
    empty: float
    worst_class: Worst | None
    worst_group: Worst | None


@dataclass(frozen=True, eq=False)
class RuleChoice:
    """What `choose_rule` recommends; prints as a table.

    Attributes:
        best: the name of the recommended candidate.
        reason: why, in one or two sentences.
        figures: of all candidates, in the order of the candidates.
    """

    best: str
    reason: str
    figures: tuple[RuleFigures, ...]

    @property
    def rule(self) -> SetRule:
        """The recommended rule, fitted on the first half: what it promises holds although it was chosen."""
        return next(each.rule for each in self.figures if each.name == self.best)

    def __str__(self) -> str:
        columns = ["", "labels", "missed", "worst class", "worst group", "empty"]
        rows = []
        for each in self.figures:
            mark = "* " if each.name == self.best else "  "
            worst = (_percent(None if at is None else at.missed) for at in (each.worst_class, each.worst_group))
            rows.append([mark + each.name, f"{each.size:.2f}", _percent(each.missed), *worst, _percent(each.empty)])
        kept = [at for at in range(len(columns)) if any(row[at] != "-" for row in rows)]
        rows = [[row[at] for at in kept] for row in (columns, *rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
        return "\n".join([*lines, self.reason])


@torch.no_grad()
def choose_rule(
    scores: Numbers,
    labels: LabelsLike,
    *,
    goal: Goal,
    from_logits: bool,
    one_class: bool,
    link: Link | None = None,
    groups: Numbers | None = None,
    candidates: Mapping[str, SetRule] | None = None,
    seed: int = 0,
) -> RuleChoice:
    """Fit the rules that promise ``goal`` on a random half of held-out rows and recommend one by the other half.

    Among rules that keep a size, the one that misses least is best; among rules that bound the error, the one with the
    smallest sets. Where two differ by less than two standard errors of the paired difference, the simpler one, which is
    listed first, is preferred. A rule that breaks the goal by more than two standard errors is not recommended.

    The figures are measured on rows that no candidate was fitted on. Those of the recommended rule are still slightly
    too good, since it is the best of several; its promise is not affected, because the second half did not fit it.

    Args:
        scores: ``(N, n)``, in the forms of `SetRule.fit`, of rows that the model was not trained on.
        labels: their true labels in any form of ``shortlist.targets``.
        goal: `SizeGoal` or `MissGoal`.
        from_logits: whether scores are logits.
        one_class: whether every row has one true label, or a set of them; never inferred.
        link: how logits become scores; softmax for one class and sigmoid for sets by default.
        groups: ``(N,)`` integers, such as the source or the place of a row; the worst one is reported.
        candidates: unfitted rules by name, simplest first, instead of those of the goal.
        seed: of the split into halves.

    Example:
        >>> from shortlist.data import AmbiguousWorld
        >>> world = AmbiguousWorld()
        >>> x, y, _ = world.sample(4000, seed=0).batch(range(4000))
        >>> probs = world.probabilities(x)
        >>> choose_rule(probs, y, goal=SizeGoal(3), from_logits=False, one_class=True).best
        'average-k'
    """
    scores = read_scores(scores)
    if scores.ndim != 2 or len(scores) < 2:
        raise ValueError(f"`scores` must have shape (rows, labels) with at least 2 rows; got {tuple(scores.shape)}.")
    return choose_rule_in_blocks(
        lambda: iter([scores]),
        labels,
        shape=(len(scores), scores.shape[1]),
        goal=goal,
        from_logits=from_logits,
        one_class=one_class,
        link=link,
        groups=groups,
        candidates=candidates,
        seed=seed,
    )


@torch.no_grad()
def choose_rule_in_blocks(
    blocks: Callable[[], Iterator[Tensor]],
    labels: LabelsLike,
    *,
    shape: tuple[int, int],
    goal: Goal,
    from_logits: bool,
    one_class: bool,
    link: Link | None = None,
    groups: Numbers | None = None,
    candidates: Mapping[str, SetRule] | None = None,
    seed: int = 0,
) -> RuleChoice:
    """`choose_rule` for scores that are too many for the memory: the same choice from blocks of rows.

    Args:
        blocks: yields the rows in order; called twice for each candidate.
        labels: of all rows.
        shape: rows and labels of all blocks together.
        goal, from_logits, one_class, link, groups, candidates, seed: as in `choose_rule`.
    """
    num_rows, num_labels = shape
    if num_rows < 2:
        raise ValueError(f"`scores` must have at least 2 rows; got {num_rows}.")
    truth = _read_labels(labels, shape, one_class=one_class)
    grouping = None if groups is None else _read_groups(groups, num_rows)
    rules = candidates
    if rules is None:
        rules = goal.candidates(one_class=one_class, link=link or ("softmax" if one_class else "sigmoid"))
    if not rules:
        raise ValueError("`candidates` must hold at least one rule; got none.")
    order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(seed))
    first, second = (half.sort().values for half in order.tensor_split([(num_rows + 1) // 2]))
    test = _Half(truth[second], num_labels, None if grouping is None else grouping[second])
    found = []
    for name, rule in rules.items():
        parts = ((scores, truth[rows] if rule.needs_labels else None) for scores, rows in _rows_of(first, blocks()))
        rule.fit_blocks(parts, rows=len(first), from_logits=from_logits)
        found.append(test.measure(name, rule, (scores for scores, _ in _rows_of(second, blocks())), seed=seed))
    best, reason = _recommend(goal, found)
    return RuleChoice(best, reason, tuple(each.figures for each in found))


def _rows_of(half: Tensor, blocks: Iterator[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """The scores of the rows of a half, block by block, and their numbers."""
    start = 0
    for scores in blocks:
        stop = start + len(scores)
        rows = half[(half >= start) & (half < stop)]
        if len(rows):
            yield scores[rows - start], rows
        start = stop


class _Measured(NamedTuple):
    figures: RuleFigures
    sizes: Tensor
    missed: Tensor  # by row; NaN for rows without true labels


class _Half:
    """The rows that rules are compared on."""

    def __init__(self, truth: Tensor, num_labels: int, groups: Tensor | None) -> None:
        self.num_labels, self.groups = num_labels, groups
        self.rows, self.labels = to_pairs(truth, num_labels, name="labels")
        self.counts = torch.bincount(self.rows, minlength=len(truth))

    def measure(self, name: str, rule: SetRule, blocks: Iterator[Tensor], *, seed: int) -> _Measured:
        n, start, draw = self.num_labels, 0, Draw(torch.Generator().manual_seed(seed))
        found, absents = [], []
        for scores in blocks:
            sets, stop = rule.predict(scores, draw=draw), start + len(scores)
            here = (self.rows >= start) & (self.rows < stop)
            keys = (self.rows[here] - start) * n + self.labels[here]
            absents.append((~torch.isin(keys, sets.rows * n + sets.labels)).double())
            found.append(sets.sizes.double())
            start = stop
        absent, sizes = torch.cat(absents), torch.cat(found)
        missed = torch.zeros(len(sizes), dtype=torch.float64).index_add(0, self.rows, absent) / self.counts
        by_row = missed[self.counts > 0]
        figures = RuleFigures(
            name,
            rule,
            float(sizes.mean()),
            _standard_error(sizes),
            float(by_row.mean()),
            _standard_error(by_row),
            float((sizes == 0).double().mean()),
            _worst(self.labels, absent, n),
            None if self.groups is None else _worst(self.groups[self.counts > 0], by_row, int(self.groups.max()) + 1),
        )
        return _Measured(figures, sizes, missed)


def _read_labels(labels: LabelsLike, shape: tuple[int, int], *, one_class: bool) -> Tensor:
    """Class indices, or index lists."""
    num_rows, num_labels = shape
    target = read_target(labels, num_labels, name="labels").cpu()
    if len(target) != num_rows:
        raise ValueError(f"`labels` must have one row per row of scores, {num_rows}; got {len(target)}.")
    convert = to_class_indices if one_class else to_index_lists
    truth = convert(target, num_labels, name="labels")
    if not (truth >= 0).any():
        raise ValueError("`labels` must hold at least one true label.")
    return truth


def _read_groups(groups: Numbers, num_rows: int) -> Tensor:
    found = read_numbers(groups, name="groups").cpu()
    if found.is_floating_point() or found.shape != (num_rows,) or (found < 0).any():
        raise ValueError(f"`groups` must be {num_rows} integers, at least 0; got {found.dtype} {tuple(found.shape)}.")
    return found.long()


def _worst(index: Tensor, missed: Tensor, count: int) -> Worst | None:
    """Of the classes or groups with enough entries, the one with the largest mean of ``missed``."""
    rows = torch.bincount(index, minlength=count)
    mean = torch.zeros(count, dtype=torch.float64).index_add(0, index, missed) / rows
    mean = torch.where(rows >= LEAST_ROWS, mean, -torch.inf)
    at = int(mean.argmax())
    return Worst(at, float(mean[at]), int(rows[at])) if mean[at] >= 0 else None


def _standard_error(values: Tensor) -> float:
    return float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def _recommend(goal: Goal, found: Sequence[_Measured]) -> tuple[str, str]:
    """The name of the best candidate, and why."""
    fair = [each for each in found if _keeps(goal, each.figures)]
    if not fair:
        closest = min((each.figures for each in found), key=lambda each: _distance(goal, each))
        return closest.name, f"No rule keeps {goal} on the second half; {closest.name} comes closest."
    costs = {each.figures.name: each.missed if isinstance(goal, SizeGoal) else each.sizes for each in fair}
    best = min(costs, key=lambda name: float(costs[name].nanmean()))
    gaps = {name: _paired(cost, costs[best]) for name, cost in costs.items()}
    chosen = next(name for name, gap in gaps.items() if gap.mean <= 2 * gap.error)
    others = {name: _paired(costs[name], costs[chosen]) for name in costs if name != chosen}
    if not others:
        why = "is the only candidate" if len(found) == 1 else "is the only one"
        return chosen, f"{chosen} {why} that keeps {goal}."
    rival = min(others, key=lambda name: others[name].mean)
    gap = _difference(goal, others[rival])
    if others[rival].mean > 2 * others[rival].error:
        return chosen, f"{chosen} keeps {goal} and {gap} than {rival}."
    return chosen, f"{chosen} keeps {goal}; {rival} is not clearly better, and {chosen} is simpler."


class _Gap(NamedTuple):
    mean: float
    error: float


def _paired(first: Tensor, second: Tensor) -> _Gap:
    difference = (first - second)[~first.isnan()]
    return _Gap(float(difference.mean()), _standard_error(difference))


def _keeps(goal: Goal, figures: RuleFigures) -> bool:
    """Whether the second half does not refute the goal, by two standard errors."""
    # Thresholds were fitted on as many rows and vary as much as what is measured.
    errors = 2 * math.sqrt(2)
    if isinstance(goal, SizeGoal):
        return figures.size <= goal.k + errors * figures.size_error
    return figures.missed <= goal.alpha + errors * figures.missed_error


def _distance(goal: Goal, figures: RuleFigures) -> float:
    return abs(figures.size - goal.k) if isinstance(goal, SizeGoal) else figures.missed


def _difference(goal: Goal, gap: _Gap) -> str:
    if isinstance(goal, SizeGoal):
        return f"misses {100 * gap.mean:.1f} ± {200 * gap.error:.1f} percentage points less"
    return f"has {gap.mean:.2f} ± {2 * gap.error:.2f} fewer labels per row"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
