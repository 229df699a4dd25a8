"""The goals of `benchmarks.models`, and its table of a dataset."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from benchmarks.side_by_side import colored

SHORTFALL = 0.5
"""Points by which the defaults may fall short of the best other model."""

OURS = "shortlist"
COLUMNS = {
    "top1": "top-1",
    "topK": "top-{k}",
    "P@1": "P@1",
    "P@K": "P@{k}",
    "recall@K": "recall@{k}",
    "average": "average-{k}",
    "size": "size",
    "train": "train s",
    "predict": "predict s",
}


def goals(record: dict[str, Any]) -> list[dict[str, Any]]:
    """What is expected of shortlist beside the other models; ``met`` is None if nothing ran to compare with.

    Processor time is compared with the faster of the models of LibMultiLabel.
    """
    ours, peers = _split(record)
    default, k = ours[OURS], record["k"]
    main = "top1" if record["one_class"] else "P@K"
    found = [_goal(f"default, {_title(main, k)}", default[main], _best(peers, main), -SHORTFALL)]
    set_losses = [model for name, model in ours.items() if name != OURS]
    ahead = [
        _goal(f"best set loss, {_title(name, k)}", max(model[name] for model in set_losses), _best(peers, name))
        for name in ("average", "topK" if record["one_class"] else "recall@K")
    ]
    # Being ahead in one of the two is enough.
    found.append(max(ahead, key=lambda goal: goal["found"] - (goal["wanted"] or 0)))
    libmultilabel = [seconds(model) for name, model in peers.items() if name.startswith("LibMultiLabel")]
    if libmultilabel:
        spent, wanted = seconds(default), min(libmultilabel)
        found.append({"goal": "default, seconds", "found": spent, "wanted": wanted, "met": spent <= wanted})
    return found


def seconds(model: dict[str, float]) -> float:
    """Processor seconds of training and prediction."""
    return model["train"] + model["predict"]


def _split(record: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Models of shortlist, and the others that ran."""
    ran = {name: model for name, model in record["models"].items() if "reason" not in model}
    ours = {name: model for name, model in ran.items() if name.startswith(OURS)}
    return ours, {name: model for name, model in ran.items() if name not in ours}


def _best(models: dict[str, Any], name: str) -> float | None:
    return max((model[name] for model in models.values()), default=None)


def _goal(goal: str, found: float, best: float | None, allowed: float = 0.0) -> dict[str, Any]:
    """At least the best of the others with an allowance, above it without one."""
    wanted = None if best is None else best + allowed
    met = None if wanted is None else found >= wanted if allowed else found > wanted
    return {"goal": goal, "found": found, "wanted": wanted, "met": met}


def _title(name: str, k: int) -> str:
    return COLUMNS[name].format(k=k)


def table(record: dict[str, Any]) -> Table:
    """One line per model, and one per goal."""
    rows = record["rows"]
    shape = f"{rows['train']:,} + {rows['val']:,} + {rows['test']:,} rows, {record['labels']:,} labels"
    tuned = f"; shortlist tuned in {record['trials']} trials" if record["trials"] else ""
    view = Table(title=f"{record['name']}: {shape}{tuned}", title_justify="left")
    view.add_column("model")
    models = record["models"]
    columns = [name for name in COLUMNS if name in models[OURS]]
    for name in columns:
        view.add_column(_title(name, record["k"]), justify="right")
    ours, peers = _split(record)
    best = {name: _best(peers | ours, name) for name in columns if name not in ("size", "train", "predict")}
    for model, values in models.items():
        if "reason" in values:
            view.add_row(model, *["" for _ in columns[1:]], colored(values["reason"], None))
            continue
        cells = [_cell(values[name], best.get(name)) for name in columns]
        view.add_row(model, *cells, end_section=model == list(ours)[-1])
    view.add_section()
    for goal in record["goals"]:
        wanted = "nothing to compare with" if goal["wanted"] is None else _wanted(goal)
        view.add_row(f"goal: {goal['goal']}", colored(f"{goal['found']:.1f}", goal["met"]), wanted)
    return view


def _cell(value: float, best: float | None) -> str:
    return f"[bold]{value:.1f}[/]" if value == best else f"{value:.1f}"


def _wanted(goal: dict[str, Any]) -> str:
    sign = "≤" if goal["goal"].endswith("seconds") else ">" if goal["goal"].startswith("best set loss") else "≥"
    return f"{sign} {goal['wanted']:.1f}"
