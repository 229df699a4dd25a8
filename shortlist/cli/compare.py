"""``shortlist compare``: several losses and seeds on the same data, with intervals and a winner."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace
from typing import Any

from shortlist.extras import require

_EXAMPLES = """\
examples:
  shortlist compare digits --losses cross_entropy lml average_k --seeds 3 --k 2
  shortlist compare pubmed --losses bce lml two_way --k 8 --output mesh-comparison
  shortlist compare plants.csv --reader '{label: species}' --losses cross_entropy noised_topk --target average3_error

Every loss is trained with every seed, with the same budget. A mean comes with half its 95% interval (Student). A star
marks the best, and what cannot be told from it: the interval of the difference, paired by seed, holds 0.
exit code: 0, or 2 when something is wrong.
"""


def add_command(commands: Any) -> None:
    """Describe the command; its own parser reads what comes after its name."""
    # A prefix that nobody types, so that every option is left to the parser of the command.
    parser = commands.add_parser("compare", help="compare losses on the same data", add_help=False, prefix_chars="\0")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train and evaluate all, print the table."""
    from shortlist.cli.run_options import fit_options, options_parser, training_data
    from shortlist.train import compare
    from shortlist.train.evaluation import figure_names

    parser = options_parser("shortlist compare", "Compare losses on the same data.", _EXAMPLES)
    parser.add_argument("--losses", nargs="+", required=True, metavar="LOSS", help="names of losses")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds (default 3)")
    parser.add_argument("--target", metavar="FIGURE", default=None, help="what to name the winner of")
    parser.add_argument("--output", metavar="FOLDER", default=None, help="keeps finished runs, to go on after a break")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    given = parser.parse_args(options.rest)
    if given.seeds < 1:
        raise ValueError(f"--seeds must be at least 1; got {given.seeds}.")
    base = fit_options(given)
    candidates = {loss: replace(base, loss=loss) for loss in given.losses}
    dataset = training_data(given)
    # Before the work, which may take hours.
    figures = figure_names(dataset, base.k)
    target = given.target or figures[0]
    if target not in figures:
        raise ValueError(f"--target must be one of {', '.join(figures)}; got {target!r}.")
    comparison = compare(
        dataset,
        candidates,
        seeds=range(base.seed, base.seed + given.seeds),
        folder=given.output,
        progress=_tell if sys.stderr.isatty() else None,
    )
    if given.json:
        sys.stdout.write(json.dumps(_content(comparison, target), indent=1) + "\n")
    else:
        _print(comparison, target)
    return 0


def _tell(done: int, total: int, name: str) -> None:
    now = f", now {name}" if name else "\n"
    sys.stderr.write(f"\r\x1b[K{done} of {total} runs{now}")
    sys.stderr.flush()


def _content(comparison: Any, target: str) -> dict[str, Any]:
    def interval(name: str, figure: str) -> dict[str, float | None]:
        found = comparison.interval(name, figure)
        return {"mean": found.mean, "half_width": None if math.isnan(found.half_width) else found.half_width}

    return {
        "format": "shortlist comparison",
        "version": 1,
        "target": target,
        "best": {figure: comparison.best(figure) for figure in comparison.figures() if figure != "average_size"},
        "intervals": {
            name: {figure: interval(name, figure) for figure in comparison.figures()} for name in comparison.runs
        },
        "runs": comparison.runs,
    }


def _print(comparison: Any, target: str) -> None:
    console = require("rich.console", extra="report").Console(highlight=False, soft_wrap=True)
    table = require("rich.table", extra="report").Table()
    table.add_column("figure")
    for name in comparison.runs:
        table.add_column(name, justify="right")
    for figure in comparison.figures():
        best = comparison.best(figure) if figure != "average_size" else []
        cells = []
        for name in comparison.runs:
            found = comparison.interval(name, figure)
            spread = "" if math.isnan(found.half_width) else f" ± {found.half_width:.4f}"
            cells.append(f"{found.mean:.4f}{spread}{' *' if name in best else '  '}")
        table.add_row(figure, *cells)
    console.print(table)
    best = comparison.best(target)
    others = f", not told apart from {', '.join(best[1:])}" if len(best) > 1 else ""
    console.print(f"Best {target}: {best[0]}{others}.", markup=False)
