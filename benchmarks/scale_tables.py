"""The tables of ``docs/scale.md``, from what the benchmarks wrote: ``python -m benchmarks.scale_tables``.

The text of the document is written by hand; the tables between their marks are generated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import roofline
from benchmarks.cost_model import A100, Step
from shortlist.memory import estimate_memory

DOCUMENT = Path(__file__).parents[1] / "docs" / "scale.md"
RESULTS = Path(__file__).parent / "results"
FORECAST = {"rows": 4096, "labels": 10_000_000, "features": 768}
CARDS = (1, 8, 64)


def read(name: str) -> dict[str, Any]:
    """A result of the benchmarks."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with aligned columns; all but the first two are numbers."""
    cells = [list(columns), *map(list, rows)]
    widths = [max(4, *(len(row[at]) for row in cells)) for at in range(len(columns))]
    numeric = [all(re.fullmatch(r"[\d.,× –/]+", row[at]) for row in rows) for at in range(len(columns))]

    def line(row: Sequence[str]) -> str:
        parts = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        return "| " + " | ".join(parts) + " |"

    rule = ["-" * (width - 1) + ":" if right else "-" * width for width, right in zip(widths, numeric, strict=True)]
    return "\n".join([line(cells[0]), "| " + " | ".join(rule) + " |", *map(line, cells[1:])])


def chunked() -> str:
    """Memory and time of the chunked head over those of the plain one."""
    rows = [
        [
            f"`{record['loss']}`",
            *(f"{record['peak_bytes'][head]['beyond'] / 1e6:,.0f}" for head in ("plain", "chunked")),
            f"{record['share_beyond']:.3f}",
            f"{record['share_whole']:.2f}",
            *(f"{record['seconds'][head]:.1f}" for head in ("plain", "chunked")),
            f"{record['times_longer']:.2f}",
        ]
        for record in read("scale")["records"]
    ]
    columns = ("loss", "plain, MB", "chunked, MB", "share", "share of all", "plain, s", "chunked, s", "ratio")
    return table(columns, rows)


def checks() -> str:
    """Predicted over measured time of a step in one process."""
    records: dict[tuple[int, ...], dict[str, float]] = {}
    for record in read("cost")["checks"]:
        sizes = record["rows"], record["labels"], record["features"]
        ratio = record["predicted"] / record["seconds"]
        records.setdefault(sizes, {})[f"{record['loss']} {record['head']}"] = ratio
    names = list(next(iter(records.values())))
    short = {"truncated_topk_entropy": "truncated"}
    columns = ["B × n × d", *(f"{short.get(loss, loss)}, {head}" for loss, head in map(str.split, names))]
    rows = [
        [" × ".join(f"{size:,}" for size in sizes), *(f"{found[name]:.2f}" for name in names)]
        for sizes, found in records.items()
    ]
    return table(columns, rows)


def sharded() -> str:
    """Labels sharded over processes: time, messages and bytes, measured and predicted."""
    rows = [
        [
            str(record["processes"]),
            f"{record['seconds']:.3f}",
            f"{record['predicted']:.3f}",
            str(record["messages"]),
            str(record["predicted_messages"]),
            f"{record['message_bytes']:,}",
            f"{record['predicted_bytes']:,.0f}",
        ]
        for record in read("cost")["sharded"]
    ]
    return table(("processes", "s", "predicted", "messages", "predicted", "bytes", "predicted"), rows)


def forecast() -> str:
    """10⁷ labels on graphics cards."""
    rows = []
    for head in ("plain", "chunked"):
        for cards in CARDS:
            step = Step(**FORECAST, loss="lml_nll", head=head, processes=cards)
            memory = (
                estimate_memory(**FORECAST, loss="lml_nll", head=head, processes=cards, optimizer="adamw").total / 1e9
            )
            parts = {name: 1e3 * seconds for name, seconds in A100.parts(step).items()}
            fits = "yes" if memory < 0.9 * A100.memory / 1e9 else "no"
            figures = (f"{value:,.1f}" for value in (*parts.values(), sum(parts.values())))
            rows.append([f"{cards}", head, f"{memory:,.1f}", fits, *figures])
    columns = (
        "cards",
        "head",
        "GB per card",
        "fits",
        "products, ms",
        "loss, ms",
        "messages, ms",
        "optimizer, ms",
        "step, ms",
    )
    return table(columns, rows)


def accelerators() -> str:
    """The roofline of operators on two cards, in microseconds."""
    found = read("accelerator")["forecast"]
    at = {(entry["operator"], entry["code"], entry["rows"], entry["labels"]): entry for entry in found}
    rows = []
    for operator, code in dict.fromkeys((entry["operator"], entry["code"]) for entry in found):
        entries = [at[(operator, code, *size)] for size in roofline.SIZES]
        name = "torch" if operator == "softmax" else code
        cells = [
            " / ".join(f"{1e6 * roofline.seconds(entry, card):,.0f}" for card in ("A100", "H100")) for entry in entries
        ]
        rows.append([f"`{operator}`", name, str(entries[0]["kernels"]), *cells])
    rows.sort(key=lambda row: (row[0] != "`softmax`", row[0]))
    sizes = [f"{n_rows:,} × {labels:,}" for n_rows, labels in roofline.SIZES]
    return table(("operator", "code", "kernels", *sizes), rows)


TABLES: dict[str, Callable[[], str]] = {
    "chunked": chunked,
    "checks": checks,
    "sharded": sharded,
    "forecast": forecast,
    "accelerators": accelerators,
}


def filled(text: str) -> str:
    """``text`` with every table between its marks replaced by the current results."""
    for name, made in TABLES.items():
        pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{DOCUMENT.name} must have the marks of the table {name!r}.")
        text = pattern.sub(lambda match, made=made: f"{match[1]}\n{made()}\n\n{match[2]}", text)
    return text


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text()))
