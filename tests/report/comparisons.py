"""Comparison documents of many shapes, with made-up numbers."""

from __future__ import annotations

import math
from typing import Any

from shortlist.comparison_document import ComparisonDocument

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><!-- \" ' & `",
    "_$x_1$ {braces} %{x} [bold]",
    "שלום عربى 漢字 🌹",
    "long " * 60,
    "line\nend\u2028\ttab",
    "",
    "half \ud800",
    "__proto__",
    "7",
)


def document(
    *,
    sets: bool = False,
    seeds: int = 1,
    names: tuple[str, ...] = ("cross_entropy", "lml"),
    k: float = 3,
    ks: tuple[float, ...] = (1, 2, 3, 5),
    shots: tuple[str, ...] = ("many", "few"),
    kind: str = "features",
    labels: tuple[str, ...] = ("rose", "daisy", "clover", "tulip", "iris", "moss"),
    optimum: bool = False,
    audit: bool = False,
    baseline: str | None = None,
    title: str | None = None,
    questions: tuple[str, ...] = (),
    tuned: bool = False,
) -> dict[str, Any]:
    """A document as `shortlist compare --output` writes it."""
    target = f"recall@{round(k)}" if sets else f"average{k:g}_error"
    figures = {target: "higher" if sets else "lower", "map" if sets else "top1_error": "higher" if sets else "lower"}
    figures |= {} if sets else {"average_size": None}
    facts = {"ks": ks, "k": k, "shots": shots, "num_labels": len(labels)}
    candidates = {
        name: _candidate(place, name, seeds=seeds, figures=figures, audit=audit, tuned=tuned, **facts)
        for place, name in enumerate(names)
    }
    frequent = [
        {"name": name, "training": int(300 / (place + 1) ** 2), "evaluated": max(50 - place, 1)}
        for place, name in enumerate(labels[:-1])
    ]
    metrics = [target] if sets else [f"average{size:g}_error" for size in ks]
    best = {figure: list(names[:2]) if seeds > 1 else [names[0]] for figure, aim in figures.items() if aim is not None}
    values = {figure: 0.05 if aim == "lower" else 0.95 for figure, aim in figures.items()}
    return {
        "format": "shortlist comparison",
        "version": 2,
        "made": {
            "shortlist": "0.1.0", "torch": "2.13.0", "python": "3.11.2", "date": "2026-11-16T10:00:00+00:00",
            "seconds": 51.2, "threads": 2,
        },
        "commands": ["shortlist compare flowers.csv --losses cross_entropy lml --output out/flowers"],
        "data": {
            "name": "flowers", "kind": kind, "task": "sets" if sets else "one class", "labels": len(labels),
            "labels_per_row": 2.5 if sets else 1.0, "parts": {"train": 600, "val": 200, "test": 200},
            "evaluated": "test",
            "shots": [{"name": name, "about": f"{name} training rows", "labels": 3, "rows": 100} for name in shots],
        },
        "k": k, "ks": list(ks), "target": target,
        "figures": [{"name": figure, "better": aim} for figure, aim in figures.items()],
        "best": best,
        "optimum": {"values": values, "sets": _findings(0.05, **facts)} if optimum else None,
        "candidates": candidates,
        "examples": [_example(row, kind, names, labels, ks) for row in range(6)],
        "title": title, "questions": list(questions), "baseline": baseline,
        "labels": frequent,
        "standings": [_standing(names, metric, seeds) for metric in metrics],
    }  # fmt: skip


def _standing(names: tuple[str, ...], metric: str, seeds: int) -> dict[str, Any]:
    """With several seeds the second candidate cannot be told from the first."""
    tie = {"name": names[-1], "difference": {"mean": 0.02, "half_width": 0.03}, "seeds": 7}
    ties = [tie] if seeds > 1 and len(names) > 1 else []
    value = {"mean": 0.1, "half_width": 0.01 if seeds > 1 else None}
    return {"metric": metric, "best": names[0], "value": value, "ties": ties}


def _candidate(
    place: int, name: str, *, seeds: int, figures: dict, audit: bool, tuned: bool, **facts: Any
) -> dict[str, Any]:
    level = 0.1 + 0.02 * place
    runs = [
        {
            "seed": seed,
            "values": dict.fromkeys(figures, level),
            "best_epoch": 2.0,
            "seconds": 3.2,
            "monitor": "average3_accuracy",
            "history": [
                {"epoch": float(epoch), "train_loss": 2.0 / (1 + epoch), "average3_accuracy": 0.6 + 0.1 * epoch}
                for epoch in range(4)
            ],
            "sets": _findings(level + 0.01 * seed, **facts),
        }
        for seed in range(seeds)
    ]
    width = 0.01 if seeds > 1 else None
    return {
        "about": f"loss {name}",
        "recipe": "paper" if place % 3 == 1 else "adamw",
        "options": {"loss": name, "k": facts["k"], "hidden": [64, 64], "note": "</td><b>"},
        "intervals": {figure: {"mean": level, "half_width": width} for figure in figures},
        "runs": runs,
        "audit": _audit(place, facts["num_labels"]) if audit else None,
        # Every candidate after the first is that much worse, with a little noise.
        "differences": {figure: {"mean": 0.02 * place, "half_width": width} for figure in figures} if place else {},
        "tuning": _tuning(place) if tuned else None,
    }


def _tuning(place: int) -> dict[str, Any]:
    """Trials whose scores peak at 0.003; every candidate after the first is more sensitive, and the second diverges."""
    rates = [0.0001, 0.0003, 0.001, 0.003, 0.01]
    trials = [
        {
            "learning_rate": rate,
            "weight_decay": decay,
            "rows": 600,
            "epochs": 2,
            "score": None if place == 1 and rate == 0.01 else 0.8 - 0.004 * (place + 1) * abs(at - 3) - decay / 100,
        }
        for at, rate in enumerate(rates)
        for decay in (0.0001, 0.1)
    ]
    later = [{**trial, "epochs": epochs, "score": 0.9} for epochs, some in ((8, 3), (16, 2)) for trial in trials[:some]]
    return {"monitor": "average3_accuracy", "learning_rate": 0.003, "weight_decay": 0.0001, "trials": trials + later}


def _findings(level: float, *, ks, k, shots, num_labels) -> dict[str, Any]:
    sizes = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0]
    curve = [min(1.0, 3 * level / size) for size in sizes]
    rows = [0, 40, 80, 50, 20, 10]
    by_k = [
        {
            "average_size": 1.01 * size,
            "error": min(1.0, 3 * level / size),
            "empty": 0.0,
            "top_error": min(1.0, 3.2 * level / size) if size == int(size) else None,
            "error_by_shot": {name: min(1.0, level * (place + 1)) for place, name in enumerate(shots)},
            "top_error_by_shot": dict.fromkeys(shots, level) if size == int(size) else {},
            "histogram": {"all": [*([0] * place), *rows], **dict.fromkeys(shots, rows[: 3 + place])},
        }
        for place, size in enumerate(ks)
    ]
    counts = [int(300 / (label + 1) ** 2) for label in range(num_labels)]
    accuracy = [None if label % 4 == 3 else 1 / (label + 1) for label in range(num_labels)]
    bins = [{"predicted": share, "observed": min(1.0, share + level / 2), "pairs": 100} for share in (0.02, 0.3, 0.9)]
    return {
        "curves": {"sizes": sizes, "errors": {"top-k": curve, "average-k": curve, "aps": curve}},
        "by_k": by_k,
        "classes": {"count": counts, "accuracy": accuracy},
        "calibration": {"bins": bins, "error": level / 2, "top_error": 0.2, "adaptive_error": 0.25, "brier": 0.04},
        "error_control": {"alpha": 0.1, "error": 0.09 + level / 10, "average_size": 4 * level + 3},
        "labels": {
            "recall": [[min(1.0, size / (label + 4)) for label in range(num_labels - 1)] for size in ks],
            "size": [[size + label / 10 for label in range(num_labels - 1)] for size in ks],
            "confused": [[{"label": "weed", "share": 0.25}] if label else [] for label in range(num_labels - 1)],
        },
        "recalibrated": {"bins": bins, "error": level / 4, "top_error": 0.1, "adaptive_error": 0.15, "brier": 0.02},
        "advice": [
            {
                "goal": f"about {k:g} labels per row",
                "best": "average-k",
                "reason": "average-k keeps the goal and misses less than top-k.",
                "rules": [
                    {"rule": rule, "size": size * k, "missed": min(1.0, size * level), "worst_class": None}
                    for rule, size in {"top-k": 1.0, "average-k": 0.9}.items()
                ],
            }
        ],
        "groups": {
            "groups": ["family", "genus"],
            "alpha": 0.1,
            "error": 0.09,
            "named": {"one label": 0.6, "a group": 0.3, "anything": 0.1},
            "precision": 0.5,
            "recall": 0.75,
        },
    }


def _audit(place: int, num_labels: int) -> dict[str, Any]:
    never = 0 if place else 5
    by_size = [{"size": size, "argmaxable": 10, "unargmaxable": never, "undecided": 0} for size in (1, 2, 4)]
    return {
        "mode": "sign", "sets": 30 + 3 * never, "argmaxable": 30, "unargmaxable": 3 * never, "undecided": 0,
        "labels": num_labels, "features": 2, "parameters": 100 + 50 * place, "seconds": 0.5, "by_size": by_size,
        "worst": [["rose", "moss"], ["daisy", "iris"]] if never else [],
    }  # fmt: skip


def _example(row: int, kind: str, names: tuple[str, ...], labels: tuple[str, ...], ks) -> dict[str, Any]:
    shown = {
        "text": {"kind": "text", "text": f"Row {row} <b>& more</b> " + "words and words " * 60 * (row % 2)},
        "images": {"kind": "image", "png": PIXEL},
    }.get(kind, {"kind": "features", "values": [0.5, -1.0, None, 2.0 * row]})
    listed = labels[:5]
    answer = {
        "labels": list(listed),
        "scores": [0.6 / (place + 1) for place in range(len(listed))],
        "sizes": [math.ceil(size) + row % 2 - 1 for size in ks],
    }
    truth = [labels[1], labels[-1]]
    return {"row": row, "input": shown, "truth": truth, "answers": dict.fromkeys(names, answer), "rarest": 8 + 20 * row}


DOCUMENTS = {
    "one class, one seed": lambda: document(),
    "one class, seeds, optimum": lambda: document(seeds=3, optimum=True),
    "sets, text, audit": lambda: document(sets=True, kind="text", audit=True, k=5, names=("bce", "dft head")),
    "one candidate": lambda: document(names=("lml",), kind="images"),
    "twelve candidates": lambda: document(names=tuple(f"way {place}" for place in range(12)), seeds=2, audit=True),
    "fractional k": lambda: document(k=2.5, ks=(1, 2, 2.5, 4)),
    "one k, no shots": lambda: document(ks=(3,), shots=()),
    "large k": lambda: document(k=80, ks=(8, 16, 80, 160)),
    "baseline": lambda: document(seeds=3, optimum=True, baseline="lml", title="Flowers <i>"),
    "hostile names": lambda: document(
        names=HOSTILE, labels=HOSTILE, kind="text", audit=True, seeds=2, optimum=True, tuned=True
    ),
}


def comparison(name: str | None = None, /, **options: Any) -> ComparisonDocument:
    """One of `DOCUMENTS`, or `document` of the options, as it is read."""
    return ComparisonDocument.from_json(document(**options) if name is None else DOCUMENTS[name]())
