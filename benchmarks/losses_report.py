"""Tables and the figure of the measurements of the losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.side_by_side import colored

OURS, PUBLISHED, GOAL = "#264653", "#b5651d", "#2a9d8f"


def speed_table(records: list[dict[str, Any]]) -> Table:
    """One line per loss and k, in three parts: with a published rival, with a goal, and the others."""
    lines: dict[tuple[str, int | None], list[dict[str, Any]]] = {}
    for entry in records:
        lines.setdefault((entry["loss"], entry["k"]), []).append(entry)
    view = Table(title_justify="left")
    view.add_column("loss")
    for name in ("k", "goal ≤"):
        view.add_column(name, justify="right")
    for scale in dict.fromkeys(entry["scale"] for entry in records):
        for name in ("milliseconds", "ratio", "published / ours"):
            view.add_column(f"{name}\nscale {scale}", justify="right")
    parts: dict[str, list[list[dict[str, Any]]]] = {}
    for entries in lines.values():
        first = entries[0]
        part = first["loss"] if "published_over_ours" in first else "goal" if first["goal"] else "other"
        parts.setdefault(part, []).append(entries)
    for part in parts.values():
        for entries in part:
            view.add_row(*_cells(entries))
        view.add_section()
    return view


def _cells(entries: list[dict[str, Any]]) -> list[str]:
    loss, k, goal = (entries[0][name] for name in ("loss", "k", "goal"))
    cells = [loss, "" if k is None else str(k), "" if goal is None else f"{goal:g}"]
    for entry in entries:
        rival = entry.get("published_over_ours")
        cells += [
            f"{entry['milliseconds']:.2f}",
            colored(f"{entry['ratio']:.1f}", None if goal is None else entry["ratio"] <= goal),
            f"{rival:.1f}" if rival else "",
        ]
    return cells


def peak_table(found: list[dict[str, Any]]) -> Table:
    """One line per shape, k and number of samples."""
    view = Table(title="noised_topk, forward: peak memory beyond the input", title_justify="left")
    names = ("rows", "labels", "k", "samples")
    for name in (*names, "goal ≤", "copies of logits"):
        view.add_column(name, justify="right")
    for case in found:
        view.add_row(
            *[str(case[name]) for name in names],
            f"{case['goal']:g}",
            colored(f"{case['copies']:.1f}", case["copies"] <= case["goal"]),
        )
    return view


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Ratios against k, one panel for each loss with a published rival; a band spans the scales of the logits."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rivals = [entry for entry in records if "published_over_ours" in entry]
    names = list(dict.fromkeys(entry["loss"] for entry in rivals))
    figure, axes = plt.subplots(1, len(names), figsize=(11, 3.8), sharey=True, constrained_layout=True)
    for axis, name in zip(axes, names, strict=True):
        _panel(axis, [entry for entry in rivals if entry["loss"] == name])
        axis.set_title(name, fontsize=10.5)
    axes[0].set_ylabel("time / time of cross-entropy,\nforward + backward")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _panel(axis: Any, entries: list[dict[str, Any]]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    ks = sorted({entry["k"] for entry in entries})
    scales = " to ".join(str(scale) for scale in sorted({entry["scale"] for entry in entries}))
    places = range(len(ks))

    def line(color: str, label: str, factor: str | None) -> None:
        ratios = [
            [entry["ratio"] * (entry[factor] if factor else 1) for entry in entries if entry["k"] == k] for k in ks
        ]
        low, high = [min(some) for some in ratios], [max(some) for some in ratios]
        axis.fill_between(places, low, high, color=color, alpha=0.25, linewidth=0)
        middle = [(a * b) ** 0.5 for a, b in zip(low, high, strict=True)]
        axis.plot(places, middle, "o-", color=color, label=label, markersize=5)

    line(PUBLISHED, "published code", "published_over_ours")
    line(OURS, "shortlist", None)
    axis.fill_between([], [], [], color="#888888", alpha=0.25, linewidth=0, label=f"logits of scale {scales}")
    goals = [next(entry["goal"] for entry in entries if entry["k"] == k) for k in ks]
    axis.plot(places, goals, "_", color=GOAL, markersize=18, markeredgewidth=2.5, zorder=1, label="goal: at most")
    axis.set(yscale="log", xlabel="k", xlim=(-0.5, len(ks) - 0.5))
    axis.set_xticks(places, [str(k) for k in ks])
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_locator(NullLocator())
    axis.grid(alpha=0.25, axis="y")
    axis.spines[["top", "right"]].set_visible(False)
