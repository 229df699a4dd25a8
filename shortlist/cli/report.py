"""``shortlist report``: comparisons as one page to look at, and who won in a short table."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from shortlist.extras import require

_EXAMPLES = """\
examples:
  shortlist report out/plants
  shortlist report out/ambiguous out/mesh --output report.html
  shortlist report out/plants --figures figures/ --json > winners.json

FOLDER is what `shortlist compare --output FOLDER` wrote, or the comparison.json in it; each becomes a section of the
page. The page is one file that loads nothing from elsewhere. --figures draws every chart at the K that was asked for,
as PNG and as SVG. Intervals are of 95%; what cannot be told apart from the best is named beside it.
exit code: 0, or 2 when something is wrong.
"""


def add_command(commands: Any) -> None:
    """Describe the command to the parser."""
    parser = commands.add_parser(
        "report",
        help="a page with charts of comparisons, and who won",
        description="Make one HTML page of comparisons, and print who won.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="folder of `shortlist compare --output`")
    parser.add_argument("--output", metavar="FILE", help="the page (default: report.html in the first folder)")
    parser.add_argument("--figures", metavar="DIR", help="draw every chart as PNG and SVG into this folder, too")
    parser.add_argument("--json", action="store_true", help="print who won as JSON and nothing else")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read and check all documents, write the page and the figures, print who won."""
    from shortlist.cli.output_file import check_output, told_failure
    from shortlist.comparison_document import comparison_file, read_comparison
    from shortlist.report.comparison_charts import draw_figures
    from shortlist.report.page import write_report
    from shortlist.report.winners import summary_of

    files = [comparison_file(folder) for folder in options.folders]
    output = Path(options.output) if options.output is not None else files[0].parent / "report.html"
    check_output(output, *files)
    if options.figures is not None and Path(options.figures).exists() and not Path(options.figures).is_dir():
        raise ValueError(f"`{options.figures}` must be a folder for figures; it is a file.")
    documents = [read_comparison(file) for file in files]
    with told_failure(output):
        write_report(documents, output)
    figures: list[Path] = []
    if options.figures is not None:
        named = {f"{number}-{document.data.name}": document for number, document in enumerate(documents, start=1)}
        with told_failure(options.figures):
            figures = draw_figures(named, options.figures, progress=_tell if sys.stderr.isatty() else None)
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
    if options.json:
        jobs = [{"file": str(file), **summary_of(document)} for file, document in zip(files, documents, strict=True)]
        content = {"report": str(output), "figures": [str(figure) for figure in figures], "jobs": jobs}
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        _print(documents, output, len(figures), options.figures)
    return 0


def _tell(name: str) -> None:
    sys.stderr.write(f"\r\x1b[Kdrawing {name}")
    sys.stderr.flush()


def _print(documents: list[Any], output: Path, figures: int, folder: str | None) -> None:
    from shortlist.report.winners import audit_sentence, shown_name

    console = require("rich.console", extra="report").Console(highlight=False, soft_wrap=True)
    for document in documents:
        console.print(f"{shown_name(document.data.name)}, K = {document.k:g}", markup=False, style="bold")
        console.print(_table(document))
        for name, candidate in document.candidates.items():
            if candidate.audit is not None:
                console.print(f"{shown_name(name)}: {audit_sentence(candidate.audit)}", markup=False)
        console.print()
    if folder is not None:
        console.print(f"Figures: {folder} ({figures} files)", markup=False)
    console.print(f"Report: {output}", markup=False)


def _table(document: Any) -> Any:
    from shortlist.report.winners import (
        MetricFormat,
        gap_words,
        listed,
        main_metrics,
        metric_title,
        shown_name,
        winners,
    )

    text = require("rich.text", extra="report").Text
    table = require("rich.table", extra="report").Table()
    table.add_column("metric")
    table.add_column("best")
    table.add_column("value", justify="right")
    shown = [winner for winner in winners(document) if winner.metric in main_metrics(document)]
    several = any(winner.ties for winner in shown)
    if several:
        table.add_column("not significantly different")
    if document.optimum is not None:
        table.add_column("distance to the optimum")
    for winner in shown:
        wording = MetricFormat(document, winner.metric)
        title = metric_title(winner.metric) + (" (target)" if winner.metric == document.target else "")
        cells = [title, shown_name(winner.name)]
        cells.append(wording.with_unit(winner.interval.mean, winner.interval.half_width))
        if several:
            cells.append(listed(winner.ties))
        if document.optimum is not None:
            cells.append(gap_words(winner, wording))
        table.add_row(*(text(cell) for cell in cells))
    return table
