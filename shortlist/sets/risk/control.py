"""Risk control: one threshold whose risk, of the user's choice, stays below a bound for new rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from shortlist.labels import Labels
from shortlist.sets.risk.admissible import accepted_in_sequence, hoeffding_bentkus
from shortlist.sets.risk.hit_losses import HitLosses
from shortlist.sets.risk.risks import Risk, false_negative_rate, forgotten
from shortlist.sets.rule import SetRule, read_label_sets
from shortlist.sets.scores import BLOCK, Block, Link
from shortlist.tensors import as_written, check_number

Objective = Literal["smallest", "largest"]

CANDIDATES = tuple(1 / (1 + math.exp(-step / 16)) for step in range(-192, 193))
"""Thresholds for probabilities, from 6e-6 to 1 - 6e-6, evenly spaced as logits."""
_BITS = 32


class RiskControl(SetRule):
    r"""Sets above one threshold, with a bound on any risk: missing labels, wrong labels, F-beta, size, or your own.

    .. math:: C(x) = \{l : s_l(x) \ge t\}, \quad
              E\,R(t) \le \alpha \;\text{ without ``delta``}, \quad P(R(t) \le \alpha) \ge 1 - \delta \;\text{ with it}

    Without ``delta``, conformal risk control bounds the average over calibrations. The rows must be exchangeable and
    the risk monotone: larger sets only lower it, or only raise it. With ``delta``, Learn-then-Test bounds the risk
    itself, for all but a share ``delta`` of calibrations. The rows must be independent, and the risk may be any.
    Several risks hold at once: in expectation each, with ``delta`` all together.

    Risks that depend on hits alone and that larger sets lower, such as `false_negative_rate`, get exact thresholds:
    they change only at scores of true labels. For other risks, the threshold is one of ``candidates``, -inf (all
    labels) or inf (none).

    If empty or full sets keep all bounds by definition (the share of wrong labels of empty sets is 0), tests begin
    there, and these sets are the answer if no candidate is admissible. Otherwise it is an error that none is.

    Promises are for sets before ``min_size`` fills them, which breaks those of risks that larger sets raise. Absent
    labels are in no set, so the share of missing labels can exceed its bound where true labels are absent.

    Args:
        risk: a `Risk`, or a list of pairs ``(risk, alpha)``.
        alpha: the bound, between 0 and the largest loss; None for a list of pairs.
        delta: how often the bound may fail, in (0, 1). None bounds the expectation.
        objective: which admissible threshold: ``"smallest"`` or ``"largest"`` sets, or those with the least mean of
            another `Risk` on the held-out rows. By default the largest sets if the risk is kept by empty sets and not
            by full ones, otherwise the smallest.
        candidates: increasing thresholds. They must not be computed from the held-out rows, whose losses would not be
            independent of them. By default 385 for probabilities, evenly spaced as logits.
        link, min_size: as in `SetRule`.

    Example:
        >>> from shortlist.sets import f_risk, false_discovery_rate
        >>> generator = torch.Generator().manual_seed(0)
        >>> labels = torch.rand(500, 8, generator=generator) < 0.3
        >>> logits = torch.randn(500, 8, generator=generator) + 4 * labels - 2
        >>> rule = RiskControl(false_discovery_rate, 0.2, delta=0.1).fit(logits, labels, from_logits=True)
        >>> round(rule.evidence["achieved"], 2)  # in these rows, so that it is at most 0.2 in new ones
        0.16
        >>> both = [(false_negative_rate, 0.3), (false_discovery_rate, 0.3)]
        >>> RiskControl(both, delta=0.1, objective=f_risk()).fit(logits, labels, from_logits=True).threshold.item() > 0
        True

    References:
        Angelopoulos, Bates, Fisch, Lei, Schuster, "Conformal risk control", 2024; Angelopoulos, Bates, Candès, Jordan,
        Lei, "Learn then test", 2021; Bates, Angelopoulos, Lei, Malik, Jordan, "Distribution-free, risk-controlling
        prediction sets", 2021.
    """

    threshold_name: ClassVar[str | None] = "threshold"
    threshold: Tensor

    def __init__(
        self,
        risk: Risk | list[tuple[Risk, float]],
        alpha: float | None = None,
        delta: float | None = None,
        *,
        objective: Objective | Risk | None = None,
        candidates: Sequence[float] | None = None,
        link: Link = "sigmoid",
        min_size: int = 0,
    ) -> None:
        self.risk, self.alpha = risk, alpha
        self._bounds = _read_bounds(risk, alpha)
        self.delta = None if delta is None else _between("delta", delta, 1.0)
        if delta is None:
            for each, _ in self._bounds:
                if each.larger_sets is None:
                    raise ValueError(f"`delta` must be given, because larger sets may raise or lower {each.name!r}.")
        if not isinstance(objective, Risk) and objective not in ("smallest", "largest", None):
            raise ValueError(f'`objective` must be "smallest", "largest", a Risk or None; got {objective!r}.')
        self.objective: Objective | Risk | None = objective
        self.candidates = None if candidates is None else _read_candidates(candidates)
        self._exact = (
            candidates is None
            and objective in ("smallest", None)
            and all(each.of_hits is not None and each.larger_sets == "lower" for each, _ in self._bounds)
        )
        super().__init__(link=link, min_size=min_size)

    def _clear(self) -> None:
        self.register_buffer("threshold", torch.tensor(-torch.inf, dtype=torch.float64))
        self._totals: Tensor | None = None
        self._counted = [0] * len(self._watched)

    @property
    def _watched(self) -> list[Risk]:
        """The bounded risks, and the one to minimize."""
        return [*(risk for risk, _ in self._bounds), *([self.objective] if isinstance(self.objective, Risk) else [])]

    def _read_labels(self, labels: Tensor, rows: int) -> Labels:
        return read_label_sets(labels, rows, self.num_labels)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        if self._exact:
            return block.at(*labels.pairs()), labels.counts
        values = block.marked()
        edges = self._thresholds().to(values.dtype).clamp(min=torch.finfo(values.dtype).min).to(values.device)
        step = max(1, BLOCK // max(len(edges), values.shape[1]))
        for start in range(0, len(values), step):
            some, own = values[start : start + step], labels[start : start + step]
            every = torch.arange(len(some), device=values.device)[:, None].expand(some.shape)
            rows, at = (part.to(values.device) for part in own.pairs())
            sizes = _reaching(some, every, edges, len(some))
            self._add_losses(_reaching(some[rows, at], rows, edges, len(some)), sizes, own.counts)
        return ()

    def _add_losses(self, hits: Tensor, sizes: Tensor, positives: Tensor) -> None:
        """Add the losses of some rows at every candidate, ``(rows, candidates)``."""
        if self._totals is None:
            self._totals = torch.zeros(len(self._watched), sizes.shape[1], dtype=torch.int64)
        for i, risk in enumerate(self._watched):
            rows = positives >= int(risk.labeled_rows)
            losses = risk.losses(hits[rows], sizes[rows], positives[rows, None])
            _check_claim(risk, losses)
            # Whole numbers, so that the sum does not depend on the order; rounded up, so that the promise holds.
            self._totals[i] += (losses * (2.0**_BITS / self._unit(risk))).ceil().long().sum(0)
            self._counted[i] += len(losses)

    def _unit(self, risk: Risk) -> float:
        """The largest loss, rounded up to a power of two."""
        return 2.0 ** math.ceil(math.log2(self._largest(risk)))

    def _largest(self, risk: Risk) -> float:
        return float(self.num_labels or 1) if risk.bound is None else risk.bound

    def _thresholds(self) -> Tensor:
        """All candidates with both ends, ascending."""
        inner = CANDIDATES if self.candidates is None else self.candidates
        return torch.tensor([-math.inf, *inner, math.inf], dtype=torch.float64)

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        if self._exact:
            losses = [HitLosses(risk, *observed) for risk, _ in self._bounds]
            threshold = min(
                each.threshold(alpha, self.delta) for each, (_, alpha) in zip(losses, self._bounds, strict=True)
            )
            achieved = [each.mean(threshold) for each in losses]
        else:
            threshold, achieved = self._settle_candidates()
        self.threshold.fill_(threshold)
        names, wanted = zip(*((f"average {risk.name}", alpha) for risk, alpha in self._bounds), strict=True)
        several = isinstance(self.risk, list)
        return {
            "constraint": ", ".join(names),
            "wanted": list(wanted) if several else wanted[0],
            "achieved": achieved if several else achieved[0],
        }

    def _settle_candidates(self) -> tuple[float, list[float]]:
        """The threshold, and the mean of each risk at it."""
        for risk, rows in zip(self._watched, self._counted, strict=True):
            if not rows:
                raise ValueError(
                    f"`labels` must have at least one positive; without one, the {risk.name} is undefined."
                )
        if self._totals is None:
            raise RuntimeError("no losses were added")
        n = self.num_labels or 0
        full, empty = (
            [risk.is_kept_by(alpha, n, all_labels=all_labels) for risk, alpha in self._bounds]
            for all_labels in (True, False)
        )
        admissible = self._in_expectation(full, empty) if self.delta is None else self._with_confidence(full, empty)
        if not admissible.any():
            promises = " and ".join(f"the {risk.name} at {alpha:g}" for risk, alpha in self._bounds)
            raise ValueError(
                f"no threshold is sure to keep {promises} or below: give more rows, a larger `alpha` or `candidates` "
                "that suit the scores."
            )
        allowed = admissible.nonzero()[:, 0]
        at = int(allowed[0 if all(empty) and not all(full) else -1])
        if isinstance(self.objective, Risk):
            best = self._totals[-1][allowed]
            at = int(allowed[best == best.min()][-1])
        elif self.objective is not None:
            at = int(allowed[0 if self.objective == "largest" else -1])
        means = [float(self._total(i, at) / self._counted[i]) for i in range(len(self._bounds))]
        return float(self._thresholds()[at]), means

    def _total(self, risk: int, candidate: int) -> Fraction:
        """The total loss of a risk at a candidate."""
        whole = 0 if self._totals is None else int(self._totals[risk, candidate])
        return whole * Fraction(self._unit(self._watched[risk])) / 2**_BITS

    def _in_expectation(self, full: list[bool], empty: list[bool]) -> Tensor:
        """Conformal risk control: the mean over these rows and one more, with the greatest loss, is at most alpha."""
        count = len(self._thresholds())
        admissible = torch.ones(count, dtype=torch.bool)
        for i, (risk, alpha) in enumerate(self._bounds):
            budget = as_written(alpha) * (self._counted[i] + 1) - as_written(self._largest(risk))
            kept = torch.tensor([self._total(i, candidate) <= budget for candidate in range(count)])
            kept[0], kept[-1] = kept[0] | full[i], kept[-1] | empty[i]
            admissible &= kept
        return admissible

    def _with_confidence(self, full: list[bool], empty: list[bool]) -> Tensor:
        """Learn-then-Test: a candidate breaks a promise if it breaks one of them, so its p-value is the largest."""
        count = len(self._thresholds())
        p = torch.zeros(count, dtype=torch.float64)
        for i, (risk, alpha) in enumerate(self._bounds):
            largest = self._largest(risk)
            totals = torch.tensor([float(self._total(i, each)) for each in range(count)], dtype=torch.float64) / largest
            if alpha >= largest:  # no more than all labels can be in a set
                continue
            own = hoeffding_bentkus(totals, self._counted[i], alpha / largest)
            own[0], own[-1] = own[0] * (not full[i]), own[-1] * (not empty[i])
            p = torch.maximum(p, own)
        return accepted_in_sequence(p, self.delta or 0.0, full_is_safe=all(full), empty_is_safe=all(empty))

    def _arguments(self) -> dict[str, Any]:
        """As plain values: of a risk, its name."""
        arguments = super()._arguments()
        if "risk" in arguments:
            several = isinstance(self.risk, list)
            arguments["risk"] = [[r.name, a] for r, a in self._bounds] if several else self._bounds[0][0].name
            if isinstance(self.objective, Risk):
                arguments["objective"] = {"risk": self.objective.name}
        return arguments

    @classmethod
    def _read_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        if "risk" not in options:
            return options
        risk, objective = options["risk"], options["objective"]
        named = [(forgotten(name), alpha) for name, alpha in risk] if isinstance(risk, list) else forgotten(risk)
        goal = forgotten(objective["risk"]) if isinstance(objective, dict) else objective
        return {**options, "risk": named, "objective": goal}


class RecallControl(RiskControl):
    r"""Sets with a bound on the expected share of missing true labels.

    .. math:: C(x) = \{l : s_l(x) \ge t\}, \quad t = \max\Big\{t : \tfrac{1}{N + 1} \Big(1 + \sum_i \big(1 -
              \tfrac{|Y_i \cap C_t(x_i)|}{|Y_i|}\big)\Big) \le \alpha\Big\}

    `RiskControl` of `false_negative_rate`: for exchangeable data :math:`E[1 - |Y \cap C| / |Y|] \le \alpha`. The
    threshold is exact, without a grid. Rows without true labels have no recall and are left out.

    Args:
        alpha: the share of true labels that may be missing, in (0, 1).
        link, min_size: as in `SetRule`.

    Example:
        >>> scores = torch.tensor([[0.9, 0.8, 0.1], [0.2, 0.7, 0.6], [0.8, 0.1, 0.5]])
        >>> rule = RecallControl(0.5).fit(scores, torch.tensor([[0, 1], [1, 2], [0, -1]]), from_logits=False)
        >>> rule.predict(scores).sizes
        tensor([2, 0, 1])

    References:
        Angelopoulos, Bates, Fisch, Lei, Schuster, "Conformal risk control", 2024.
    """

    def __init__(self, alpha: float, *, link: Link = "sigmoid", min_size: int = 0) -> None:
        super().__init__(false_negative_rate, alpha, link=link, min_size=min_size)


def _read_bounds(risk: Risk | list[tuple[Risk, float]], alpha: float | None) -> list[tuple[Risk, float]]:
    """Each risk with its bound."""
    pairs = [(risk, alpha)] if isinstance(risk, Risk) else risk
    if not isinstance(pairs, list) or not pairs:
        raise TypeError(f"`risk` must be a Risk or a list of pairs (risk, alpha); got {risk!r}.")
    if isinstance(risk, Risk) != (alpha is not None):
        raise ValueError("`alpha` must be given for one risk, and only there: several are pairs (risk, alpha).")
    bounds = []
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], Risk):
            raise TypeError(f"`risk` must be a Risk or a list of pairs (risk, alpha); got an entry {pair!r}.")
        largest = math.inf if pair[0].bound is None else pair[0].bound
        bounds.append((pair[0], _between("alpha", pair[1], largest)))
    return bounds


def _between(name: str, value: Any, largest: float) -> float:
    value = check_number(name, value)
    if not 0 < value < largest:
        raise ValueError(f"`{name}` must lie strictly between 0 and {largest:g}; got {value}.")
    return value


def _read_candidates(candidates: Sequence[float]) -> list[float]:
    found = [check_number("candidates", value) for value in candidates]
    if not found or any(a >= b for a, b in pairwise(found)):
        raise ValueError(f"`candidates` must be thresholds in increasing order, at least one; got {found}.")
    return found


def _check_claim(risk: Risk, losses: Tensor) -> None:
    """Raise if the losses, by ascending thresholds, show that larger sets do not only lower or raise the risk."""
    if risk.larger_sets is None or not len(losses):
        return
    growth = losses.diff(dim=-1) * (1 if risk.larger_sets == "lower" else -1)
    if (growth < -1e-12 * losses.amax().clamp(min=1.0)).any():
        raise ValueError(f"larger sets must only {risk.larger_sets} the loss of {risk.name!r}, as it claims.")


def _reaching(values: Tensor, rows: Tensor, edges: Tensor, num_rows: int) -> Tensor:
    """How many values of each row reach each edge, ``(num_rows, edges)``, on the CPU."""
    slots = len(edges) + 1
    places = torch.bucketize(values.contiguous(), edges, right=True) + rows * slots
    counts = places.flatten().bincount(minlength=num_rows * slots).reshape(num_rows, slots).cpu()
    return counts.flip(-1).cumsum(-1).flip(-1)[:, 1:]
