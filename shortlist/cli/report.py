"""``shortlist report``: write an HTML page of comparisons and print the winners."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from shortlist.cli.console import console, print_json, table, text
from shortlist.cli.options import add_json_option, add_parser
from shortlist.files import check_folder, check_output, writing
from shortlist.progress import progress_bar

_EXAMPLES = """\
examples:
  shortlist report out/plants
  shortlist report out/ambiguous out/mesh --output report.html
  shortlist report out/plants --figures figures/ --json > winners.json

FOLDER is the output of `shortlist compare --output FOLDER`, or the comparison.json in it; each becomes a section of the
page. The page is a single file that loads nothing from the network. --figures saves every chart at the requested K, as
PNG and SVG. Intervals are 95% intervals; candidates that are not significantly worse than the best are named.
exit code: 0, 2 on errors, or 130 if interrupted.
"""


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "report",
        run,
        help="write an HTML page of comparisons and print the winners",
        about="Write one HTML page of comparisons and print the winners.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="output folder of `shortlist compare`")
    parser.add_argument("--output", "-o", metavar="FILE", help="the page (default: report.html in the first folder)")
    parser.add_argument("--figures", metavar="DIR", help="also save every chart as PNG and SVG in this folder")
    add_json_option(parser, "who won")


def run(options: argparse.Namespace) -> int:
    """Read and check all documents, write the page and the charts, and print the winners."""
    from shortlist.comparison_document import comparison_file, read_comparison
    from shortlist.report.comparison.charts import draw_figures
    from shortlist.report.comparison.highlights import highlights
    from shortlist.report.comparison.page import write_report
    from shortlist.report.comparison.winners import summary_of

    files = [comparison_file(folder) for folder in options.folders]
    output = Path(options.output) if options.output is not None else files[0].parent / "report.html"
    check_output(output, *files)
    check_folder(options.figures)
    documents = [read_comparison(file) for file in files]
    with writing(output):
        write_report(documents, output, folders=[file.parent for file in files])
    figures: list[Path] = []
    if options.figures is not None:
        named = {f"{number}-{document.data.name}": document for number, document in enumerate(documents, start=1)}
        with writing(options.figures), progress_bar("drawing", unit="charts") as bar:
            figures = draw_figures(
                named,
                options.figures,
                progress=lambda name: bar.update(bar.completed + 1, description=f"drawing {name}"),
            )
    if options.json:
        jobs = [{"file": str(file), **summary_of(document)} for file, document in zip(files, documents, strict=True)]
        content = {
            "report": str(output),
            "figures": [str(figure) for figure in figures],
            "highlights": [each.to_json() for document in documents for each in highlights(document)],
            "jobs": jobs,
        }
        print_json(content)
    else:
        _print(documents, output, len(figures), options.figures)
    return 0


def _print(documents: list[Any], output: Path, figures: int, folder: str | None) -> None:
    from shortlist.report.comparison.winners import audit_sentence, comparison_title, shown_name

    screen = console(wrap=False)
    for document in documents:
        screen.print(f"{comparison_title(document)}, K = {document.k:g}", markup=False, style="bold")
        screen.print(_table(document))
        for name, candidate in document.candidates.items():
            if candidate.audit is not None:
                screen.print(f"{shown_name(name)}: {audit_sentence(candidate.audit)}", markup=False)
        screen.print()
    _print_short(documents)
    if folder is not None:
        screen.print(f"Figures: {folder} ({figures} files)", markup=False)
    screen.print(f"Report: {output}", markup=False)


def _print_short(documents: list[Any]) -> None:
    """Print the highlights, whether the usual loss is enough, and what to type next."""
    from shortlist.report.comparison.cards import next_steps
    from shortlist.report.comparison.highlights import highlights, loss_sentence
    from shortlist.report.comparison.winners import comparison_title

    screen = console(wrap=False)
    for number, highlight in enumerate((each for one in documents for each in highlights(one)), start=1):
        line = f"{number}. {highlight.heading} {highlight.numbers}"
        screen.print(line, markup=False, style="bold")
        screen.print(f"   {highlight.caption} ({highlight.source})", markup=False)
    verdicts = [(comparison_title(document), loss_sentence(document)) for document in documents]
    for title, sentence in verdicts:
        if sentence is not None:
            screen.print(f"{title}: {sentence}", markup=False)
    screen.print()
    screen.print("Your own data:", markup=False, style="bold")
    for step in next_steps(documents):
        screen.print(f"  # {step.purpose}\n  {step.command}", markup=False)
    screen.print()


def _table(document: Any) -> Any:
    from shortlist.report.comparison.winners import (
        MetricFormat,
        gap_words,
        listed,
        main_metrics,
        metric_title,
        shown_name,
        winners,
    )

    found = table()
    found.add_column("metric")
    found.add_column("best")
    found.add_column("value", justify="right")
    shown = [winner for winner in winners(document) if winner.metric in main_metrics(document)]
    several = any(winner.ties for winner in shown)
    if several:
        found.add_column("not significantly different")
    if document.optimum is not None:
        found.add_column("distance to the optimum")
    for winner in shown:
        wording = MetricFormat(document, winner.metric)
        title = metric_title(winner.metric) + (" (target)" if winner.metric == document.target else "")
        cells = [title, shown_name(winner.name)]
        cells.append(wording.with_unit(winner.interval.mean, winner.interval.half_width))
        if several:
            cells.append(listed(winner.ties))
        if document.optimum is not None:
            cells.append(gap_words(winner, wording))
        found.add_row(*(text(cell) for cell in cells))
    return found
