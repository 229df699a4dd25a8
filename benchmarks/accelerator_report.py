"""Tables of what operators cost on accelerators."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.side_by_side import colored

LABELLED = {"lists": "index lists", "class": "one class", "dense": "multi-hot"}


def show(console: Console, result: dict[str, Any]) -> None:
    """Print all tables and how many goals are met."""
    rows, labels = result["setting"]["rows"], result["setting"]["labels"]
    console.print(cost_table(f"tensor operations, {rows} × {labels}, float32, forward + backward", result["eager"]))
    if result["triton"]:
        console.print(cost_table("Triton kernels, by their loads and stores", result["triton"]))
    console.print(cost_table("published algorithms, plain versions", result["published"]))
    quoted = result["quoted"]
    console.print(
        f"the authors' {quoted['operator']} (CUDA branch, quoted): {quoted['kernels']} kernels, "
        f"{quoted['host_reads']} host reads, {quoted['multiple']} × softmax"
    )
    console.print(rules_table(result["rules"]))
    if result["compiled"]:
        console.print(compile_table(result["compiled"]))
    for entry in result.get("measured", []):
        took = "did not fit" if entry["seconds"] is None else f"{1e6 * entry['seconds']:,.0f} µs measured"
        console.print(f"{entry['operator']}, {entry['code']}, {entry['rows']:,} × {entry['labels']:,}: {took}")
    goals = [met for entry in (*result["eager"], *result["triton"]) for met in goals_of(entry)]
    goals += [entry.get("spills") == 0 for entry in result["compiled"]]
    console.print(f"goals met: {sum(goals)} of {len(goals)}")


def goals_of(entry: dict[str, Any]) -> list[bool]:
    """Whether each goal of a line is met: launches, bytes, float64 and host reads."""
    if "error" in entry:
        return [False]
    pairs = [(entry["kernels"], entry.get("kernels_goal")), (entry["multiple"], entry.get("goal"))]
    found = [value <= goal for value, goal in pairs if goal is not None]
    return [*found, entry["float64"] == 0, entry["host_reads"] == 0]


def cost_table(title: str, entries: list[dict[str, Any]]) -> Table:
    """One line per operator, its option and the form of its target."""
    view = Table(title=title, title_justify="left")
    view.add_column("operator")
    view.add_column("target")
    for name in (
        "kernels",
        "goal ≤",
        "Triton's",
        "bytes / softmax",
        "goal ≤",
        "float64, wide",
        "host reads",
        "uploads",
    ):
        view.add_column(name, justify="right")
    for before, entry in zip([None, *entries], entries, strict=False):
        if before and before["kind"] != entry["kind"]:
            view.add_section()
        view.add_row(*_cells(entry))
    return view


def _cells(entry: dict[str, Any]) -> list[str]:
    name = ", ".join(filter(None, (entry["operator"], entry["option"])))
    head = [name, LABELLED.get(entry["target"], "")]
    if "error" in entry:
        return [*head, colored(entry["error"][:60], False)]
    kernels, goal = entry.get("kernels_goal"), entry.get("goal")
    return [
        *head,
        colored(str(entry["kernels"]), None if kernels is None else entry["kernels"] <= kernels),
        "" if kernels is None else str(kernels),
        str(entry["launches"] or ""),
        colored(f"{entry['multiple']:.1f}", None if goal is None else entry["multiple"] <= goal),
        "" if goal is None else f"{goal:g}",
        *(colored(str(entry[what]), entry[what] == 0) for what in ("float64", "host_reads")),
        str(entry["uploads"] or ""),
    ]


def rules_table(entries: list[dict[str, Any]]) -> Table:
    """One line per metric, and per rule and method."""
    view = Table(title="metrics and set rules, scores on a device; bytes beside torch.topk", title_justify="left")
    view.add_column("step")
    for name in ("kernels", "bytes / topk", "goal ≤", "float64, wide", "host reads", "scores leave the device"):
        view.add_column(name, justify="right")
    for entry in entries:
        view.add_row(
            entry["step"],
            str(entry["kernels"]),
            colored(f"{entry['multiple']:.1f}", entry["multiple"] <= entry["goal"]),
            f"{entry['goal']:g}",
            colored(str(entry["float64"]), entry["float64"] == 0),
            str(entry["host_reads"]),
            colored("yes" if entry["scores_leave"] else "no", not entry["scores_leave"]),
        )
    return view


def compile_table(entries: list[dict[str, Any]]) -> Table:
    """One line per kernel and block: registers, spilled bytes and shared memory on every target."""
    targets = list(dict.fromkeys(entry["target"] for entry in entries))
    lines: dict[tuple[str, str, int], dict[str, dict[str, Any]]] = {}
    for entry in entries:
        lines.setdefault((entry["module"], entry["kernel"], entry["block"]), {})[entry["target"]] = entry
    view = Table(title="registers a thread / spilled / shared bytes; spills: goal 0", title_justify="left")
    for name in ("module", "kernel"):
        view.add_column(name)
    for name in ("block", "warps", *targets):
        view.add_column(name, justify="right")
    for (module, kernel, block), found in lines.items():
        warps = next((str(one["num_warps"]) for one in found.values() if "num_warps" in one), "")
        view.add_row(module, kernel, str(block), warps, *(_resources(found.get(target)) for target in targets))
    return view


def _resources(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return ""
    if "error" in entry:
        return colored("does not compile", False)
    text = f"{entry['registers']} / {entry['spills']} / {entry['shared']}" + (" f64" if entry["float64"] else "")
    return colored(text, entry["spills"] == 0)
