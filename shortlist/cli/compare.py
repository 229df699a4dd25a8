"""``shortlist compare``: train several losses with several seeds on the same data, and name a winner."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from shortlist.cli.console import console, loading, note, print_json, resumable, table, text
from shortlist.cli.options import add_parser
from shortlist.cli.run_options import DataOptions, RunOptions, TuningOptions, add_run_options, read_run_options
from shortlist.comparison_document import FILE_NAME, Question, read_comparison
from shortlist.errors import InputError
from shortlist.files import check_folder, writing
from shortlist.fit_options import FitOptions
from shortlist.progress import progress_bar

_EXAMPLES = """\
examples:
  shortlist compare digits --losses cross_entropy lml_nll average_k --seeds 3 --k 2
  shortlist compare pubmed --config examples/pubmed.yaml --output mesh-comparison
  shortlist compare sets.npz --candidates '{wide: {loss: bce}, narrow: {loss: bce, head: bottleneck}}' --audit true
  shortlist compare features.npz --losses cross_entropy lml_nll --recipe paper --tune 24 --output paper-comparison
  shortlist compare digits --losses lml_nll bce --cluster dask://scheduler:8786 --output digits-comparison
  shortlist compare plants.csv --reader label=species --losses cross_entropy noised_topk --target average3_error

Every loss is trained with every seed on the same budget. Its learning rate and weight decay are found first, with as
many trials on the validation rows as for every other loss, unless --learning-rate is given or --tune is 0; the report
shows the score of each loss by its rate. Results are means with the half-width of Student's 95% interval. A star marks
the best candidate and those that are not significantly worse: the interval of the difference, paired by seed, contains
0. Candidates may differ in any option except k and the seed. With --output, all runs and their models are saved. Run an
interrupted comparison again to resume it, even on another cluster, or run it with more candidates or seeds to extend
it; one that leaves out some of those in the folder is refused. `shortlist report` turns a comparison into an HTML page.
exit code: 0, 2 on errors, or 130 if interrupted.
"""
# A folder that holds none of these is not the folder of a comparison.
_FILES = ("comparison.json", "tuning", "*-[0-9]*")


@dataclass(frozen=True)
class CompareOptions:
    """What is compared.

    Args:
        losses: names of losses; see `shortlist losses`.
        candidates: options by name, for candidates that differ in more than the loss.
        seeds: how many seeds.
        target: the metric that decides the winner.
        audit: find label sets that the layers can never rank first.
        title: name of the comparison on its page.
        questions: what its page shows first: rule, loss, head (default: all that it answers).
        jobs: number of concurrent runs, each with its share of the cores (default 1).
        cluster: local, dask://HOST:PORT or ray://HOST:PORT; dask:// and ray:// start one on this machine. All workers
            are used unless --jobs limits them; work lost with a worker is repeated. Workers need the same release of
            shortlist, and images, which are read on demand, under the same paths.
        output: folder for runs, models and the data of a report.
        json: print the metrics as JSON and nothing else.
    """

    losses: tuple[str, ...] = field(default=(), metadata={"metavar": "LOSS"})
    candidates: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 3
    target: str | None = field(default=None, metadata={"metavar": "METRIC"})
    audit: bool = field(default=False, metadata={"metavar": "true|false"})
    title: str | None = field(default=None, metadata={"metavar": "TEXT"})
    questions: tuple[str, ...] = field(default=(), metadata={"metavar": "QUESTION"})
    jobs: int | None = None
    cluster: str = "local"
    output: str | None = field(default=None, metadata={"metavar": "FOLDER"})
    json: bool = False


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    about = "Compare losses on the same data."
    parser = add_parser(commands, "compare", run, help="compare losses on the same data", about=about, epilog=_EXAMPLES)
    add_run_options(parser, CompareOptions, TuningOptions)


def run(options: argparse.Namespace) -> int:
    """Train and evaluate all candidates, and print the table."""
    given = read_run_options(options, CompareOptions, TuningOptions)
    asked: CompareOptions = given.of(CompareOptions)
    if asked.seeds < 1:
        raise InputError(f"--seeds must be at least 1; got {asked.seeds}.")
    for question in asked.questions:
        if question not in get_args(Question):
            raise InputError(f"--questions must be among {', '.join(get_args(Question))}; got {question!r}.")
    check_folder(asked.output, own=_FILES)
    with resumable(options, kept=asked.output is not None):
        document = _compare(given, asked, shlex.join(["shortlist", *options.command_line]))
    path = None
    if asked.output is not None:
        from shortlist.comparison_document import write_comparison

        with writing(asked.output):
            path = write_comparison(document, asked.output)
    if asked.json:
        print_json(_content(document.to_json()))
    else:
        _print(document, path)
    return 0


def _compare(given: RunOptions, asked: CompareOptions, command: str) -> Any:
    """Return the document of the comparison."""
    began, base, data = time.monotonic(), given.of(FitOptions), given.of(DataOptions)
    candidates = _candidates(base, asked.losses, asked.candidates)
    seeds = range(base.seed, base.seed + asked.seeds)
    _check_former(asked.output, candidates, seeds)
    trials = given.of(TuningOptions).trials(base, alone=base.nodes == 1)

    with loading():
        from shortlist.train import compare, comparison_document
        from shortlist.train.cautions import data_cautions
        from shortlist.train.data_source import check_test_rows, describe_source, open_training_data
        from shortlist.train.evaluation import metric_names

    reading: dict[str, Any] = {"format": data.format, "reader": data.reader, "seed": base.seed}
    dataset = open_training_data(data.data, **reading, multi_label=data.multi_label, tell=note)
    base = given.sized(base, dataset.num_labels, tell=note)
    candidates = {name: given.sized(each, dataset.num_labels) for name, each in candidates.items()}
    # Check before the work, which may take hours.
    metrics = metric_names(dataset, base.k)
    target = asked.target or metrics[0]
    if target not in metrics:
        raise InputError(f"--target must be one of {', '.join(metrics)}; got {target!r}.")
    source = describe_source(dataset, data.data, **reading)
    with writing(asked.output), progress_bar("comparing", unit="runs", delay=0) as bar:
        check_test_rows(dataset, candidates.values(), name=data.data)
        comparison = compare(
            dataset,
            candidates,
            seeds=seeds,
            folder=asked.output,
            trials=trials,
            audit=asked.audit,
            jobs=asked.jobs,
            cluster=asked.cluster,
            source=source,
            progress=bar.update,
            tell=bar.message,
            data_name=data.data,
        )
    for caution in data_cautions(dataset):
        note(f"Note: {caution}")
    seconds = [run.seconds or 0.0 for runs in comparison.details.values() for run in runs.values()]
    # A lower bound on the time of all runs, including earlier calls; on a cluster, the longest run.
    on_cluster = asked.jobs is None and asked.cluster != "local"
    least = max(seconds) if on_cluster else sum(seconds) / (asked.jobs or 1)
    return comparison_document(
        comparison,
        dataset,
        target=target,
        exact=exact_probabilities(source["format"]),
        commands=[command, *(f"# {file} holds:\n{file.read_text().rstrip()}" for file in given.configs)],
        seconds=max(time.monotonic() - began, least),
        title=asked.title,
        questions=asked.questions,  # pyright: ignore[reportArgumentType]
    )


def _candidates(base: FitOptions, losses: Sequence[str], named: Mapping[str, Any]) -> dict[str, FitOptions]:
    """Return options by name: one candidate per loss, and those of --candidates."""
    candidates = {loss: replace(base, loss=loss) for loss in losses}
    if len(candidates) < len(losses):
        raise InputError(f"--losses must name each loss once; got {' '.join(losses)}.")
    known = [each.name for each in fields(base) if each.name not in ("k", "seed")]
    for name, options in named.items():
        if name in candidates:
            raise InputError(f"--candidates must have names of their own; {name!r} is one of --losses.")
        for option in options if isinstance(options, Mapping) else [options]:
            if option not in known:
                raise InputError(f"--candidates {name}: options must be among {', '.join(known)}; got {option!r}.")
        try:
            candidates[name] = replace(base, **options)
        except (TypeError, ValueError) as error:
            raise InputError(f"--candidates {name}: {error}") from error
    if not candidates:
        raise InputError("--losses or --candidates must say what to compare.")
    return candidates


def _check_former(folder: str | None, candidates: Collection[str], seeds: Collection[int]) -> None:
    """Refuse a comparison that leaves out runs of the one in its folder: its table and page would lose them."""
    if folder is None or not (Path(folder) / FILE_NAME).is_file():
        return
    for name, former in read_comparison(folder).candidates.items():
        for run in former.runs:
            if name not in candidates or run.seed not in seeds:
                raise InputError(
                    f"`{folder}` holds another comparison ({name!r} with seed {run.seed}); compare that again, too, or "
                    "choose another folder."
                )


def exact_probabilities(format: str) -> Callable[[Any], Any] | None:
    """Return the function from inputs to true label probabilities, if the data have one."""
    from shortlist.data import AmbiguousWorld

    if format != "ambiguous":
        return None
    world = AmbiguousWorld()
    return lambda inputs: world.probabilities(inputs.double())


def _content(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics; everything else that a report shows is in the file."""
    candidates, optimum = document["candidates"].items(), document["optimum"]
    return {
        "format": "shortlist comparison figures",
        "version": 1,
        "target": document["target"],
        "best": document["best"],
        "intervals": {name: candidate["intervals"] for name, candidate in candidates},
        "runs": {name: {run["seed"]: run["values"] for run in candidate["runs"]} for name, candidate in candidates},
        "optimum": None if optimum is None else optimum["values"],
        "tuned": {name: _chosen(candidate["tuning"]) for name, candidate in candidates if candidate["tuning"]},
        "audits": {name: candidate["audit"] for name, candidate in candidates if candidate["audit"] is not None},
    }


def _chosen(tuning: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuning[name] for name in ("learning_rate", "weight_decay")} | {"trials": len(tuning["trials"])}


def _cells(document: Any, candidate: str, columns: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the metrics of a candidate, with stars."""
    intervals, best = document.candidates[candidate].intervals, document.best
    return [
        wording.interval(intervals[name].mean, intervals[name].half_width)
        + (" *" if candidate in best.get(name, ()) else "  ")
        for name, wording in columns
    ]


def _print(document: Any, path: Path | None) -> None:
    from shortlist.report.comparison.cards import caveats
    from shortlist.report.comparison.rate_chart import tuning_sentence
    from shortlist.report.comparison.winners import (
        MetricFormat,
        audit_sentence,
        main_metrics,
        metric_title,
        shown_name,
        summary_sentence,
    )

    screen = console(wrap=False)
    columns = [(name, MetricFormat(document, name)) for name in main_metrics(document)]
    rows = {candidate: _cells(document, candidate, columns) for candidate in document.candidates}
    titles = [f"{metric_title(name)}{wording.unit and f', {wording.unit}'}" for name, wording in columns]
    # In narrow terminals, titles may wrap between words, but numbers must not.
    in_column = zip(titles, *rows.values(), strict=True)
    least = [max(map(len, [*title.split(), *cells])) for title, *cells in in_column]
    names = max(len(word) for candidate in rows for word in shown_name(candidate).split())
    fits = names + sum(least) + 3 * len(least) + 4 <= screen.width
    found = table(padding=(0, 1 if fits else 0))
    found.add_column("", overflow="fold")
    for title, width in zip(titles, least, strict=True):
        found.add_column(title, justify="right", min_width=width)
    for candidate, cells in rows.items():
        found.add_row(text(shown_name(candidate)), *cells)
    if document.optimum is not None:
        found.add_section()
        optimum = document.optimum.values
        found.add_row("optimum", *(f"{wording.value(optimum[name])}  " for name, wording in columns))
    screen.print(found)
    screen.print(summary_sentence(document), markup=False)
    if tuned := tuning_sentence(document):
        screen.print(tuned, markup=False)
    for name, candidate in document.candidates.items():
        if candidate.audit is not None:
            screen.print(f"{shown_name(name)}: {audit_sentence(candidate.audit)}", markup=False)
    for caution in caveats(document):
        screen.print(f"Note: {caution}", markup=False)
    if path is not None:
        screen.print(f"Kept in {path.parent}; `shortlist report {path.parent}` makes a page of it.", markup=False)
