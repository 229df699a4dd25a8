"""Fit and predict of every set rule and calibrator in times of ``torch.topk``: ``python -m benchmarks.set_rules``.

On the scores of a model that is confident in some rows and not in others, one thread. ``--peers PYTHON`` names the
interpreter of an environment with MAPIE, TorchCP, crepes or scikit-learn, whose rules run in a process of their own
(`benchmarks.set_rules_peer`). They answer with masks or p-values of all labels, and are compared with ours of the same
kind. Prints a table and writes ``benchmarks/results/set_rules.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.sets import LABELS, ROWS, probabilities
from benchmarks.side_by_side import colored, machine, write_json
from shortlist import calibration, sets
from shortlist.taxonomy import Taxonomy, taxonomy_from_groups

RESULTS = Path(__file__).parent / "results"
PEER = Path(__file__).with_name("set_rules_peer.py")
PEER_ROWS = 2000
GOAL = 10.0
"""Other libraries take so many times longer."""
SHAPES = ((ROWS, LABELS), (10_000, 8_921))
BATCH = 512
CALIBRATION_ROWS = PEER_ROWS
"""Calibrators keep all held-out logits, so they are fitted on fewer rows; those of scikit-learn on the same ones."""

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
    """Processor time of one call, which other work on the machine changes little."""
    start = time.process_time()
    call()
    return time.process_time() - start


def measured(scores: Tensor, peers: str | None) -> list[dict[str, Any]]:
    """Times of each rule as multiples of the five best labels of each row: to fit, to list the sets, to mask labels."""
    n = scores.shape[1]
    classes = scores.multinomial(1, generator=torch.Generator().manual_seed(1))[:, 0]
    pairs = scores.topk(2).indices
    topk = min(seconds(lambda: scores.topk(5)) for _ in range(3))
    theirs = {} if peers is None else peer_seconds(scores, classes, peers)
    records: list[dict[str, Any]] = []

    def record(name: str, rows: int, **steps: Callable[[], object]) -> None:
        times = {step: seconds(call) / topk * len(scores) / rows for step, call in steps.items()}
        others = {
            library: {step: value * len(scores) / topk for step, value in found.items() if step != "rows"}
            for library, found in theirs.get(name, {}).items()
            if not isinstance(found, str)
        }
        records.append({"rule": name, "rows": len(scores), "labels": n, **times, "peers": others})

    logits = scores.log()
    for rules, labels, x in ((ONE_CLASS, classes, scores), (LABEL_SETS, pairs, scores), (OF_LOGITS, classes, logits)):
        for name, make in rules.items():
            rule, few = make(n).fit(x[:50], labels[:50], from_logits=x is logits), x[:50]
            rule.predict(few)
            record(
                name,
                len(x),
                fit=lambda rule=rule, labels=labels, x=x: rule.fit(x, labels, from_logits=x is logits),
                predict=lambda rule=rule, x=x: rule.predict(x),
                mask=lambda rule=rule, x=x: masks(rule, x),
            )
            records[-1]["size"] = float(rule.predict(x[:PEER_ROWS]).sizes.double().mean())
    logits, few = logits[:CALIBRATION_ROWS], classes[:CALIBRATION_ROWS]
    for name, make in CALIBRATORS.items():
        fitted = make().fit(logits[:50], few[:50])  # what is loaded and compiled once
        record(
            name,
            len(logits),
            fit=lambda fitted=fitted: fitted.fit(logits, few),
            predict=lambda fitted=fitted: fitted.predict(logits),
        )
    return records


def masks(rule: Any, scores: Tensor) -> None:
    """Sets as masks, or p-values of all labels, in batches, so that neither answers nor steps fill the memory."""
    answer = rule.predict_p if isinstance(rule, sets.PValues) else rule
    for batch in scores.split(BATCH):
        answer(batch)


def peer_seconds(scores: Tensor, classes: Tensor, interpreter: str) -> dict[str, dict[str, Any]]:
    """Seconds per row of other libraries, by rule and library."""
    with TemporaryDirectory() as folder:
        np.save(f"{folder}/scores.npy", scores[:PEER_ROWS].numpy())
        np.save(f"{folder}/classes.npy", classes[:PEER_ROWS].numpy())
        subprocess.run([interpreter, str(PEER), folder], check=True)
        return json.loads(Path(folder, "seconds.json").read_text())


def table(records: list[dict[str, Any]]) -> Table:
    """One line per rule; for each shape three columns and the other libraries, in times of ours."""
    view = Table(title="times torch.topk(5), float32, one thread", title_justify="left")
    view.add_column("rule")
    shapes = list(dict.fromkeys((each["rows"], each["labels"]) for each in records))
    for rows, labels in shapes:
        for step in ("fit", "predict", "mask"):
            view.add_column(f"{step}\n{rows:,} × {labels:,}", justify="right")
        view.add_column("others take times ours\nto fit and to mask")
    for name in dict.fromkeys(each["rule"] for each in records):
        cells = []
        for each in (each for each in records if each["rule"] == name):
            cells += [f"{each[step]:.1f}" if step in each else "" for step in ("fit", "predict", "mask")]
            cells.append("\n".join(_faster(each, library) for library in each["peers"]))
        view.add_row(name, *cells)
    return view


def _faster(record: dict[str, Any], library: str) -> str:
    theirs = record["peers"][library]
    # Their answers are masks, or numbers for all labels, as calibrators give.
    ratios = (theirs["fit"] / record["fit"], theirs["predict"] / record.get("mask", record["predict"]))
    return f"{library} " + " ".join(colored(f"{ratio:.1f}", ratio >= GOAL) for ratio in ratios)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="interpreter of the environment of other libraries")
    parser.add_argument("--rows", type=int, help="only so many rows of each shape")
    options = parser.parse_args()
    torch.set_num_threads(1)
    records = []
    for rows, labels in SHAPES:
        records += measured(probabilities(options.rows or rows, labels), options.peers)
        Console(width=160).print(table(records))
        if options.rows is None:
            content = {"machine": machine(), "calibration_rows": CALIBRATION_ROWS, "records": records}
            write_json(content, RESULTS / "set_rules.json")


if __name__ == "__main__":
    main()
