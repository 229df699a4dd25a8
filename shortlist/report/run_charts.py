"""Charts of the runs: whether probabilities mean what they say, how training went, what the layers cannot say."""

from __future__ import annotations

from typing import Any

from shortlist.formatting import format_number
from shortlist.report.chart import Axis, Chart, Panel, Reference, Series, candidate_style
from shortlist.report.figure_words import figure_title, share_words, shown_name
from shortlist.report.set_charts import findings, mean
from shortlist.report.winners import AUDITED

_FAR_APART = 20
_MOST_BARS = 40


def calibration_panel(document: dict[str, Any]) -> Panel:
    """How often labels are true, against the probability that the model gave them."""
    series = []
    for name, style, seeds in findings(document, optimum=False):
        bins = [bin for bin in seeds[0]["calibration"]["bins"] if bin["pairs"] and None not in bin.values()]
        error = mean([sets["calibration"]["error"] for sets in seeds])
        legend = name if error is None else f"{name}: {format_number(error)}"
        predicted, observed = [bin["predicted"] for bin in bins], [bin["observed"] for bin in bins]
        notes = [
            f"said {share_words(bin['predicted'])}, true {share_words(bin['observed'])} of {bin['pairs']:,} pairs"
            for bin in bins
        ]
        series.append(
            Series(
                legend, "line", tuple(predicted), tuple(observed), style, notes=tuple(notes), group=name, marked=True
            )
        )
    x = Axis("probability that the model gives a label", percent=True, limits=(-0.02, 1.02))
    y = Axis("how often the label is true", percent=True, limits=(-0.02, 1.02))
    chart = Chart("Calibration", x, y, tuple(series), (Reference("calibrated"),))
    about = (
        "On the dotted diagonal probabilities mean what they say; below it the model is too sure. Beside each name "
        "stands the calibration error: how much probability lies in a wrong bin, for each true label (0 is best). "
        "Losses that only rank labels, such as two-way and average-K, promise no probabilities."
    )
    seeds = max(len(candidate["runs"]) for candidate in document["candidates"].values())
    about += " Lines are of the first seed, errors are means over seeds." if seeds > 1 else ""
    return Panel("calibration", "Calibration", about, {"all": (chart,)})


def training_panels(document: dict[str, Any]) -> list[Panel]:
    """The watched metric and the training loss by epoch."""
    monitors = {run["monitor"] for candidate in document["candidates"].values() for run in candidate["runs"]}
    monitor = next(iter(monitors)) if len(monitors) == 1 else None
    metric = figure_title(monitor) if monitor else "watched metric"
    watched = _history(document, None)
    losses = _history(document, "train_loss")
    values = [value for series in losses for value in series.y if value is not None]
    far = bool(values) and min(values) > 0 and max(values) > _FAR_APART * min(values)
    whole = all(epoch == int(epoch) for series in (*losses, *watched) for epoch in series.x)
    epochs = Axis("epoch", whole=whole)
    panels = []
    if any(series.x for series in losses):
        about = "The loss on the training rows by epoch. Different losses have different scales: look at the shape."
        chart = Chart("Training loss", epochs, Axis("training loss", scale="log" if far else "linear"), losses)
        panels.append(Panel("training-loss", "Training loss", about, {"all": (chart,)}, log=True))
    if any(series.x for series in watched):
        about = (
            f"The {metric} on the validation rows by epoch, a line for each seed; the mark is the epoch whose model "
            "was kept. A line that still rises at its end asks for more epochs."
        )
        limits = _around([value for series in watched for value in series.y if value is not None])
        chart = Chart("Watched metric", epochs, Axis(metric, limits=limits), watched)
        panels.append(Panel("watched-metric", "Watched metric", about, {"all": (chart,)}))
    return panels


def _history(document: dict[str, Any], key: str | None) -> tuple[Series, ...]:
    """A line for each seed, and the best epoch of each as a point; ``key`` None for what each run watched."""
    series = []
    for place, (name, candidate) in enumerate(document["candidates"].items()):
        style, name = candidate_style(place), shown_name(name)
        for turn, run in enumerate(candidate["runs"]):
            field = key if key is not None else run["monitor"]
            rows = [row for row in run["history"] if row.get("epoch") is not None and row.get(field) is not None]
            epochs, values = tuple(row["epoch"] for row in rows), tuple(row[field] for row in rows)
            series.append(Series(name, "line", epochs, values, style, in_legend=turn == 0, faint=turn > 0))
            best = [(x, y) for x, y in zip(epochs, values, strict=True) if x == run["best_epoch"]]
            if best and key is None:
                note = f"epoch {best[0][0]:g}, seed {run['seed']}: {best[0][1]:.4g}"
                series.append(Series(name, "points", best[0][:1], best[0][1:], style, notes=(note,), in_legend=False))
    return tuple(series)


def _around(values: list[float]) -> tuple[float, float] | None:
    """Limits about the values: an axis from 0 would hide the differences at the end of training."""
    if not values or min(values) == max(values):
        return None
    room = 0.06 * (max(values) - min(values))
    return min(values) - room, max(values) + room


def audit_panel(document: dict[str, Any]) -> Panel | None:
    """The share of label sets of each size that a layer can never output; None when every set can be."""
    series = []
    modes = set()
    for place, (name, candidate) in enumerate(document["candidates"].items()):
        if candidate["audit"] is None:
            continue
        modes.add(candidate["audit"]["mode"])
        rows = [row for row in candidate["audit"]["by_size"] if _sets(row)]
        notes = [
            f"{row['unargmaxable']:,} of {_sets(row):,} sets of {row['size']}"
            + (f", {row['undecided']:,} undecided" if row["undecided"] else "")
            for row in rows
        ]
        x, y = tuple(float(row["size"]) for row in rows), tuple(row["unargmaxable"] / _sets(row) for row in rows)
        kind = "bars" if len(rows) <= _MOST_BARS else "line"
        series.append(Series(shown_name(name), kind, x, y, candidate_style(place), notes=tuple(notes)))
    if not any(share for one in series for share in one.y):
        return None
    act = AUDITED[modes.pop()] if len(modes) == 1 else "output"
    title = f"Sets that can never be {act}"
    about = f"The share of the label sets of each size that no input can bring out; without a bar all can be {act}."
    y = Axis(f"sets that can never be {act}", percent=True)
    chart = Chart(title, Axis("labels in the set", whole=True), y, tuple(series))
    return Panel("audit", title, about, {"all": (chart,)}, wide=True)


def _sets(row: dict[str, int]) -> int:
    return row["argmaxable"] + row["unargmaxable"] + row["undecided"]
