"""Fit and predict of every set rule and calibrator in times of ``torch.topk``: ``python -m benchmarks.set_rules``.

On the scores of a model that is confident in some rows and not in others, one thread. Prints a table and writes
``benchmarks/results/set_rules.json``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.sets import LABELS, ROWS, probabilities
from benchmarks.side_by_side import machine, write_json
from shortlist import calibration, sets
from shortlist.taxonomy import Taxonomy, taxonomy_from_groups

RESULTS = Path(__file__).parent / "results"
SHAPES = ((ROWS, LABELS), (10_000, 8_921))
CALIBRATION_ROWS = 5_000
"""Calibrators keep all held-out logits, so they are fitted on fewer rows."""

ONE_CLASS: dict[str, Callable[[int], Any]] = {
    "TopK": lambda n: sets.TopK(5),
    "AverageK": lambda n: sets.AverageK(5),
    "AverageError": lambda n: sets.AverageError(0.1),
    "PointwiseError": lambda n: sets.PointwiseError(0.1),
    "SplitConformal, SAPS": lambda n: sets.SplitConformal(0.1, score=sets.SAPS(0.1)),
    "SplitConformal, Margin": lambda n: sets.SplitConformal(0.1, score=sets.Margin()),
    "SplitConformal, Entropy": lambda n: sets.SplitConformal(0.1, score=sets.Entropy()),
    "ClassConditional": lambda n: sets.ClassConditional(0.1),
    "RankCalibrated": lambda n: sets.RankCalibrated(0.1),
    "PValues": lambda n: sets.PValues(0.1),
    "CovariateShift": lambda n: sets.CovariateShift(0.1),
    "LabelShift": lambda n: sets.LabelShift(0.1),
    "GroupConditional": lambda n: sets.GroupConditional(0.1),
    "AdaptiveConformal": lambda n: sets.AdaptiveConformal(0.1),
    "DeepestNode": lambda n: sets.DeepestNode(0.1, genera(n)),
    "CheapestCover": lambda n: sets.CheapestCover(0.1, genera(n)),
    "ExpectedUtility, u65": lambda n: sets.ExpectedUtility(sets.u65),
    "SelectiveAnswers": lambda n: sets.SelectiveAnswers(0.4),
}
LABEL_SETS: dict[str, Callable[[int], Any]] = {
    "RecallControl": lambda n: sets.RecallControl(0.1),
    "RiskControl, wrong labels": lambda n: sets.RiskControl(sets.false_discovery_rate, 0.5, 0.1),
    "ExpectedF": lambda n: sets.ExpectedF(),
}
OF_LOGITS: dict[str, Callable[[int], Any]] = {"NoneOfThese": lambda n: sets.NoneOfThese(0.1)}
CALIBRATORS = {name: getattr(calibration, name) for name in ("TemperatureScaling", "VectorScaling", "BetaCalibration")}
CALIBRATORS["IsotonicCalibration"] = calibration.IsotonicCalibration


def genera(labels: int) -> Taxonomy:
    """Genera of four labels, in families of ten genera."""
    groups = {"family": [f"f{i // 40}" for i in range(labels)], "genus": [f"g{i // 4}" for i in range(labels)]}
    return taxonomy_from_groups([str(i) for i in range(labels)], groups)


def seconds(call: Callable[[], object]) -> float:
    """Of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measured(scores: Tensor) -> list[dict[str, Any]]:
    """Times of each rule, once, as multiples of the five best labels of each row."""
    n = scores.shape[1]
    classes = scores.multinomial(1, generator=torch.Generator().manual_seed(1))[:, 0]
    pairs = scores.topk(2).indices
    topk = min(seconds(lambda: scores.topk(5)) for _ in range(3))
    records: list[dict[str, Any]] = []

    def record(name: str, fit: Callable[[], object], predict: Callable[[], object], rows: int) -> None:
        times = [seconds(step) / topk * len(scores) / rows for step in (fit, predict)]
        records.append({"rule": name, "rows": len(scores), "labels": n, "fit": times[0], "predict": times[1]})

    logits = scores.log()
    for rules, labels, x in ((ONE_CLASS, classes, scores), (LABEL_SETS, pairs, scores), (OF_LOGITS, classes, logits)):
        for name, make in rules.items():
            rule = make(n)
            record(
                name,
                lambda rule=rule, labels=labels, x=x: rule.fit(x, labels, from_logits=x is logits),
                lambda rule=rule, x=x: rule.predict(x),
                len(x),
            )
    logits, few = logits[:CALIBRATION_ROWS], classes[:CALIBRATION_ROWS]
    for name, make in CALIBRATORS.items():
        fitted = make()
        record(
            name,
            lambda fitted=fitted: fitted.fit(logits, few),
            lambda fitted=fitted: fitted.predict(logits),
            len(logits),
        )
    return records


def table(records: list[dict[str, Any]]) -> Table:
    """One line per rule, two columns per shape."""
    view = Table(title="times torch.topk(5), float32, one thread", title_justify="left")
    view.add_column("rule")
    shapes = list(dict.fromkeys((each["rows"], each["labels"]) for each in records))
    for rows, labels in shapes:
        for step in ("fit", "predict"):
            view.add_column(f"{step}\n{rows:,} × {labels:,}", justify="right")
    for name in dict.fromkeys(each["rule"] for each in records):
        found = [each for each in records if each["rule"] == name]
        view.add_row(name, *(f"{each[step]:.1f}" for each in found for step in ("fit", "predict")))
    return view


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)
    records = [record for shape in SHAPES for record in measured(probabilities(*shape))]
    Console(width=120).print(table(records))
    write_json(
        {"machine": machine(), "calibration_rows": CALIBRATION_ROWS, "records": records}, RESULTS / "set_rules.json"
    )


if __name__ == "__main__":
    main()
