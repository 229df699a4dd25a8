"""Property fuzzing of every metric and every set rule: hostile scores, absent labels, layouts and dtypes, from a seed.

Metrics agree with their references. A rule is fitted, or refused in a sentence; it answers alike for every layout and
after saving and loading. Neither changes its input nor warns.
"""

from __future__ import annotations

import math
import random
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from shortlist.sets import load_rule
from tests.contracts_metrics import METRICS, MetricCase, N, draw, flat
from tests.fuzz.operators import failure_of, hostile_logits, layouts
from tests.sets.rules import LABELS, RULES, Rule, assert_same, state
from tests.sets.worlds import seeded

_DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def metric_failure(seed: int) -> str:
    """Update one metric with hostile scores; a description of what is wrong, or nothing."""
    return failure_of(METRICS, _check_metric, seed)


def rule_failure(seed: int) -> str:
    """Fit, apply, save and load one rule on hostile scores; a description of what is wrong, or nothing."""
    return failure_of(RULES, _check_rule, seed)


def hostile_scores(source: random.Random, rows: int, labels: int) -> Tensor:
    """Hostile logits of any dtype, in which some labels may be absent."""
    scores = hostile_logits(source, rows, labels, source.choice(_DTYPES))
    absent = torch.rand(rows, labels, generator=seeded(source.randrange(1 << 62))) < source.choice([0.0, 0.0, 0.2])
    return scores.masked_fill(absent, -math.inf)


def _check_metric(case: MetricCase, source: random.Random) -> str:
    rows = source.randint(1, 6)
    scores, target = hostile_scores(source, rows, N), draw(case, rows, source.randrange(1 << 62))[1]
    if case.takes_probs:  # Of those between -4 and 4 it makes some.
        scores = torch.where(scores.isinf(), scores, scores.clamp(-4, 4))
    before, target_before = scores.clone(), target.clone()
    value = _value(case, scores, target)
    if not (torch.equal(scores, before) and torch.equal(target, target_before)):
        return "the input is changed"
    given = f"{scores.dtype} {scores.tolist()}, {target.tolist()}"
    if "Binned" in str(case):  # Its reference is exact for whole numbers alone.
        wrong = not ((value >= 0) & (value <= 1) | value.isnan()).all()
    else:
        wanted = torch.tensor(case.expected(scores, target), dtype=torch.float64)
        wrong = not torch.allclose(value, wanted, rtol=1e-6, atol=1e-9, equal_nan=True)
    if wrong:
        return f"{value.tolist()} for {given}"
    for name, other in layouts(scores).items():
        if not torch.equal(_value(case, other, target).nan_to_num(-1), value.nan_to_num(-1)):
            return f"{name} gives another value for {given}"
    return ""


def _value(case: MetricCase, scores: Tensor, target: Tensor) -> Tensor:
    metric = case.metric()
    case.update(metric, scores, target)
    return torch.tensor(flat(metric.compute()), dtype=torch.float64)


def _check_rule(rule: Rule, source: random.Random) -> str:
    rows = source.choice([1, 2, 30, 60])
    scores, labels = hostile_scores(source, rows, LABELS), rule.data(rows, seed=source.randrange(1 << 62))[1]
    before, options = scores.clone(), {"min_size": source.choice([0, 0, 1, 3])}
    try:
        fitted = rule.make(**options).fit(scores, labels, from_logits=True)
    except (ValueError, TypeError) as error:
        return "" if str(error).endswith(".") and "\n" not in str(error) else f"not one sentence: {error}"
    if any(value.isnan().any() for value in state(fitted).values()):
        return f"NaN in the state for {scores.dtype} {scores.tolist()}"
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "rule.json")
        assert_same(fitted, load_rule(Path(folder) / "rule.json"), scores)
    masks = fitted(scores), fitted.predict(scores, generator=seeded(0)).to_mask()
    if any(mask[scores == -math.inf].any() for mask in masks):
        return "an absent label is in a set"
    for name, other in layouts(scores).items():
        again = rule.make(**options).fit(other, labels, from_logits=True)
        for key, value in state(fitted).items():
            torch.testing.assert_close(state(again)[key], value, rtol=1e-6, atol=0, msg=f"{name}: {key}")
        if not torch.equal(fitted(other), masks[0]):
            return f"{name} gives other sets"
    return "" if torch.equal(scores, before) else "the input is changed"
