"""Tables of the auditor's measurements."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from benchmarks.side_by_side import colored


def ratio_table(records: list[dict[str, Any]]) -> Table:
    """One line per layer, size and verdict."""
    view = Table(
        title="processor time, one thread; milliseconds per set, ratio of the full program to ours",
        title_justify="left",
    )
    for name in ("layer", "n", "d", "verdict", "full LP\n(sets)", "verdict +\ncertificate", "ratio", "goal ≥"):
        view.add_column(name, justify="left" if name in ("layer", "verdict") else "right")
    for name in ("exact\nradius", "ratio", "goal ≥", "same verdict,\nradius"):
        view.add_column(name, justify="right")
    for entry in records:
        view.add_row(
            entry["layer"],
            str(entry["labels"]),
            str(entry["dimensions"]),
            entry["verdict"],
            f"{entry['full_program_milliseconds']:.0f} ({entry['full_program_sets']})",
            f"{entry['verdict_milliseconds']:.2f}",
            colored(f"{entry['verdict_ratio']:.0f}", entry["verdict_ratio"] >= entry["verdict_goal"]),
            f"{entry['verdict_goal']:g}",
            f"{entry['radius_milliseconds']:.2f}",
            colored(f"{entry['radius_ratio']:.0f}", entry["radius_ratio"] >= entry["radius_goal"]),
            f"{entry['radius_goal']:g}",
            f"{entry['same_verdicts']}, {entry['same_radii']} of {entry['full_program_sets']}",
        )
    return view


def throughput_table(records: list[dict[str, Any]]) -> Table:
    """One line per layer and dimension."""
    view = Table(
        title=f"{records[0]['sets']} sets with certificates, n = {records[0]['labels']}, two workers",
        title_justify="left",
    )
    for name in ("layer", "d", "seconds", "goal ≤", *records[0]["verdicts"], "verify,\nseconds", "fail"):
        view.add_column(name, justify="left" if name == "layer" else "right")
    for entry in records:
        view.add_row(
            entry["layer"],
            str(entry["dimensions"]),
            colored(f"{entry['seconds']:.1f}", entry["seconds"] <= entry["goal_seconds"]),
            f"{entry['goal_seconds']:g}",
            *[str(count) for count in entry["verdicts"].values()],
            f"{entry['verify_seconds']:.1f}",
            str(entry["certificates_that_fail"]),
        )
    return view
