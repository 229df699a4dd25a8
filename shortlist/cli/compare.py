"""``shortlist compare``: several losses and seeds on the same data, with intervals and a winner."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from shortlist.cli.cluster_option import add_cluster_option
from shortlist.cli.output_file import check_folder, told_folder_failure
from shortlist.cli.work_bar import work_bar
from shortlist.comparison_document import ComparisonDocument, write_comparison
from shortlist.extras import require
from shortlist.report.winners import (
    MetricFormat,
    audit_sentence,
    main_metrics,
    metric_title,
    shown_name,
    summary_sentence,
)

_EXAMPLES = """\
examples:
  shortlist compare digits --losses cross_entropy lml_nll average_k --seeds 3 --k 2
  shortlist compare pubmed --config examples/pubmed.yaml --output mesh-comparison
  shortlist compare sets.npz --candidates '{wide: {loss: bce}, narrow: {loss: bce, head: bottleneck}}' --audit true
  shortlist compare digits --losses lml_nll bce --cluster dask://scheduler:8786 --output digits-comparison
  shortlist compare plants.csv --reader '{label: species}' --losses cross_entropy noised_topk --target average3_error

Every loss is trained with every seed, with the same budget. A mean comes with half its 95% interval (Student). A star
marks the best, and what cannot be told from it: the interval of the difference, paired by seed, holds 0. Candidates
may differ in any option but k and the seed. With --output all runs and their models are kept; a comparison that was
interrupted goes on when it is started again, also on another cluster, and `shortlist report` makes a page of it.
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
    given = _parsed(options.rest)
    check_folder(given.output)
    comparison = _compared(given, shlex.join(["shortlist", "compare", *options.rest]))
    with told_folder_failure(given.output):
        path = None if given.output is None else write_comparison(comparison, given.output)
    if given.json:
        sys.stdout.write(json.dumps(_content(comparison.to_json()), indent=1) + "\n")
    else:
        _print(comparison, path)
    return 0


def _parsed(rest: Sequence[str]) -> Any:
    from shortlist.cli.run_options import options_parser

    parser = options_parser("shortlist compare", "Compare losses on the same data.", _EXAMPLES)
    parser.add_argument("--losses", nargs="+", default=[], metavar="LOSS", help="names of losses")
    parser.add_argument("--candidates", type=dict, default={}, help="options by name, for more than the loss")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds (default 3)")
    parser.add_argument("--target", metavar="FIGURE", default=None, help="what to name the winner of")
    parser.add_argument("--audit", type=bool, default=False, help="which label sets can the layers never rank first?")
    parser.add_argument(
        "--jobs", type=int, default=None, help="runs at a time, each with its share of the cores (default 1)"
    )
    add_cluster_option(parser, "images, which are read as they are needed, under the same paths")
    parser.add_argument("--output", metavar="FOLDER", default=None, help="keeps runs, models and what a report shows")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    given = parser.parse_args(rest)
    if given.seeds < 1:
        raise ValueError(f"--seeds must be at least 1; got {given.seeds}.")
    return given


def _compared(given: Any, command: str) -> ComparisonDocument:
    """The document of the comparison that was asked for."""
    from shortlist.cli.model_data import describe_source
    from shortlist.cli.run_options import check_test_rows, fit_options, naming_data, training_data
    from shortlist.train import compare, comparison_document
    from shortlist.train.evaluation import metric_names

    began, base = time.monotonic(), fit_options(given)
    candidates = _candidates(base, given.losses, given.candidates)
    dataset = training_data(given)
    # Before the work, which may take hours.
    figures = metric_names(dataset, base.k)
    target = given.target or figures[0]
    if target not in figures:
        raise ValueError(f"--target must be one of {', '.join(figures)}; got {target!r}.")
    source = describe_source(dataset, given.data, format=given.format, reader=given.reader, seed=given.seed)
    with naming_data(given.data), told_folder_failure(given.output), work_bar("runs") as tell:
        check_test_rows(dataset, candidates.values())
        comparison = compare(
            dataset,
            candidates,
            seeds=range(base.seed, base.seed + given.seeds),
            folder=given.output,
            audit=given.audit,
            jobs=given.jobs,
            cluster=given.cluster,
            source=source,
            progress=tell,
        )
    return comparison_document(
        comparison,
        dataset,
        candidates,
        target=target,
        exact=exact_probabilities(source["format"]),
        commands=[command, *_configs(given)],
        seconds=max(time.monotonic() - began, _seconds(comparison, given.jobs, given.cluster)),
    )


def _configs(given: Any) -> list[str]:
    """What stands in the YAML files, without which a command says little."""
    files = [Path(str(path)) for path in given.config or ()]
    return [f"# {file} holds:\n{file.read_text().rstrip()}" for file in files if file.is_file()]


def _seconds(comparison: Any, jobs: int | None, cluster: str) -> float:
    """What all runs take at least, those of earlier calls included; on a cluster as long as the longest."""
    seconds = [run.seconds for runs in comparison.details.values() for run in runs.values()]
    return max(seconds) if jobs is None and cluster != "local" else sum(seconds) / (jobs or 1)


def _candidates(base: Any, losses: Sequence[str], named: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name: one candidate per loss, and those that were described."""
    candidates = {loss: replace(base, loss=loss) for loss in losses}
    if len(candidates) < len(losses):
        raise ValueError(f"--losses must name each loss once; got {' '.join(losses)}.")
    for name, options in named.items():
        if name in candidates:
            raise ValueError(f"--candidates must have names of their own; {name!r} is one of --losses.")
        known = [field.name for field in fields(base) if field.name not in ("k", "seed")]
        for option in options if isinstance(options, Mapping) else [options]:
            if option not in known:
                raise ValueError(f"--candidates {name}: must be options among {', '.join(known)}; got {option!r}.")
        try:
            candidates[name] = replace(base, **options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"--candidates {name}: {error}") from error
    if not candidates:
        raise ValueError("--losses or --candidates must say what to compare.")
    return candidates


def exact_probabilities(format: str) -> Callable[[Any], Any] | None:
    """From inputs to the true probabilities of the labels, for data of which they are known."""
    from shortlist.data import AmbiguousWorld

    if format != "ambiguous":
        return None
    world = AmbiguousWorld()
    return lambda inputs: world.probabilities(inputs.double())


def _content(document: Mapping[str, Any]) -> dict[str, Any]:
    """The figures; what a report shows besides is in the file."""
    candidates, optimum = document["candidates"].items(), document["optimum"]
    return {
        "format": "shortlist comparison figures",
        "version": 1,
        "target": document["target"],
        "best": document["best"],
        "intervals": {name: candidate["intervals"] for name, candidate in candidates},
        "runs": {name: {run["seed"]: run["values"] for run in candidate["runs"]} for name, candidate in candidates},
        "optimum": None if optimum is None else optimum["values"],
        "audits": {name: candidate["audit"] for name, candidate in candidates if candidate["audit"] is not None},
    }


def _cells(document: ComparisonDocument, candidate: str, columns: Sequence[tuple[str, MetricFormat]]) -> list[str]:
    """The metrics of a candidate, with stars."""
    intervals, best = document.candidates[candidate].intervals, document.best
    return [
        wording.interval(intervals[name].mean, intervals[name].half_width)
        + (" *" if candidate in best.get(name, ()) else "  ")
        for name, wording in columns
    ]


def _print(document: ComparisonDocument, path: Path | None) -> None:
    text = require("rich.text", extra="report").Text
    console = require("rich.console", extra="report").Console(highlight=False, soft_wrap=True)
    columns = [(name, MetricFormat(document, name)) for name in main_metrics(document)]
    rows = {candidate: _cells(document, candidate, columns) for candidate in document.candidates}
    titles = [f"{metric_title(name)}{wording.unit and f', {wording.unit}'}" for name, wording in columns]
    # In narrow terminals titles may be broken between words, and numbers may not.
    in_column = zip(titles, *rows.values(), strict=True)
    least = [max(map(len, [*title.split(), *cells])) for title, *cells in in_column]
    names = max(len(word) for candidate in rows for word in shown_name(candidate).split())
    fits = names + sum(least) + 3 * len(least) + 4 <= console.width
    table = require("rich.table", extra="report").Table(padding=(0, 1 if fits else 0))
    table.add_column("", overflow="fold")
    for title, width in zip(titles, least, strict=True):
        table.add_column(title, justify="right", min_width=width)
    for candidate, cells in rows.items():
        table.add_row(text(shown_name(candidate)), *cells)
    if document.optimum is not None:
        table.add_section()
        optimum = document.optimum.values
        table.add_row("optimum", *(f"{wording.value(optimum[name])}  " for name, wording in columns))
    console.print(table)
    console.print(summary_sentence(document), markup=False)
    for name, candidate in document.candidates.items():
        if candidate.audit is not None:
            console.print(f"{shown_name(name)}: {audit_sentence(candidate.audit)}", markup=False)
    if path is not None:
        console.print(f"Kept in {path.parent}; `shortlist report {path.parent}` makes a page of it.", markup=False)
