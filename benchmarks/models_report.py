"""The goals of `benchmarks.models`, its table of a dataset, and the page of all."""

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


_PAGE = """# Models beside those of other libraries

Written by `python -m benchmarks.models --data-root DATA --peers PYTHON` (`make bench-models`). All models of a table
train on the same rows; the best epoch and the thresholds of sets come from validation rows, and the figures are those
of test rows, in percent. `shortlist` is what the defaults give; the lines below it are losses of the library.
`average-K` is the mean share of the labels of a row that are in its set, for sets of K labels on average. The last
column is the processor time of training and prediction in seconds, features of texts included. Other work on the
machine lengthens it: the same training took 2.2 and 2.6 seconds. An asterisk marks an earlier run on the same rows.
"""


def page(datasets: dict[str, Any]) -> str:
    """All datasets as Markdown."""
    return "\n".join([_PAGE, *(_section(record) for record in datasets.values())])


def _section(record: dict[str, Any]) -> str:
    rows, k = record["rows"], record["k"]
    columns = [name for name in COLUMNS if name in record["models"][OURS] and name not in ("size", "train", "predict")]
    last = max(record.get("runs", {}).values(), default=None)
    day = f" Run of {last[:10]}." if last else ""
    tuned = f" Models of shortlist were tuned in {record['trials']} trials." if record["trials"] else ""
    lines = [
        f"## {record['name']}\n",
        f"{rows['train']:,} training rows, {rows['test']:,} test rows, {record['labels']:,} labels.{day}{tuned}\n",
        f"| model | {' | '.join(_title(name, k) for name in columns)} | seconds |",
        f"|---|{'---:|' * (len(columns) + 1)}",
    ]
    for model, values in record["models"].items():
        cells = [f"{values[name]:.1f}" for name in columns] if "reason" not in values else [values["reason"]]
        cells += [f"{seconds(values):.1f}"] if "reason" not in values else [""] * len(columns)
        mark = "" if record.get("runs", {}).get(model) == last else "*"
        lines.append(f"| {model}{mark} | {' | '.join(cells)} |")
    lines += ["", *(f"- {_verdict(goal)}" for goal in record["goals"]), ""]
    return "\n".join(lines)


def _verdict(goal: dict[str, Any]) -> str:
    sign = {True: "✔", False: "✘", None: "–"}[goal["met"]]
    wanted = "nothing to compare with" if goal["wanted"] is None else _wanted(goal)
    return f"{sign} {goal['goal']}: {goal['found']:.1f} (goal {wanted})"
