"""``shortlist reproduce``: run published experiments, at small scale or at paper scale."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shortlist.cli.console import console, print_json, resumable, table
from shortlist.cli.options import add_cluster_option, add_json_option, add_parser, whole_number
from shortlist.errors import InputError
from shortlist.extras import MissingExtraError
from shortlist.formatting import format_duration
from shortlist.progress import progress_bar

_EXAMPLES = """\
examples:
  shortlist reproduce --list
  shortlist reproduce sets-table-4.4 --data-root data
  shortlist reproduce --all --scale small --data-root data
  shortlist reproduce dft-figure-6 --scale paper --data-root /datasets
  shortlist reproduce --all --data-root /datasets --cluster dask://scheduler:8786

An experiment is a published table or figure. It runs from the folder `experiments` of the source, either in minutes
on two cores or with the data, the network and the options of the paper. Every finished trial is saved, so the same
command resumes after an interruption. Results and figures go to experiments/results, and docs/evidence.md, which shows
all results, is rewritten; with --output, both go there.
exit code: 0, 2 if an experiment fails (the others still run), or 130 if interrupted.
"""
_ENOUGH_MINUTES = 0.5


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "reproduce",
        run,
        help="test published claims",
        about="Run published experiments and record which claims hold.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; see --list")
    parser.add_argument("--all", action="store_true", help="all experiments")
    parser.add_argument("--list", action="store_true", help="list the experiments without running them")
    parser.add_argument("--scale", choices=("small", "paper"), default="small", help="default small")
    parser.add_argument("--data-root", metavar="FOLDER", default="data", help="folder of the data (default data)")
    parser.add_argument("--experiments", metavar="FOLDER", default="experiments", help="default experiments")
    parser.add_argument("--output", "-o", metavar="FOLDER", default=None, help="default experiments/results")
    parser.add_argument(
        "--kept", metavar="FOLDER", default="out/trials", help="folder of finished trials (default out/trials)"
    )
    parser.add_argument("--again", action="store_true", help="rerun finished trials")
    parser.add_argument("--jobs", type=whole_number(at_least=1), help="number of concurrent trials (default all cores)")
    add_json_option(parser, "verdicts, or the list,")
    add_cluster_option(parser, "the folders of --experiments and --data-root, under the same paths; one thread each")


def run(options: argparse.Namespace) -> int:
    """Run the chosen experiments and write the document."""
    from shortlist.cluster import check_cluster
    from shortlist.evidence import read_experiments
    from shortlist.evidence.document import verdict_lines, write_evidence
    from shortlist.evidence.reproduction import Folders

    check_cluster(options.cluster)
    folder = Path(options.experiments)
    known = read_experiments(folder)
    if options.list:
        return _list(known, options)
    chosen = _chosen(known, options)
    output = folder / "results" if options.output is None else Path(options.output)
    document = folder.parent / "docs" / "evidence.md" if options.output is None else output / "evidence.md"
    folders = Folders(folder, Path(options.data_root), output, Path(options.kept))
    with resumable(options):
        results, failed = _reproduce(chosen, folders, options)
    verdicts = [
        {"experiment": result["name"], "verdict": verdict, "statement": statement, "reason": why}
        for result in results
        for verdict, statement, why in verdict_lines(result)
    ]
    written = write_evidence(folders, document, leave_out=failed)
    if options.json:
        print_json({"verdicts": verdicts, "failed": failed, "document": str(written)})
    else:
        for found in verdicts:
            sys.stdout.write("{experiment}: {verdict}: {statement}\n    {reason}\n".format_map(found))
        sys.stdout.write(f"Written: {written}\n")
    if failed:
        sys.stderr.write(
            f"shortlist: {len(failed)} of {len(chosen)} experiments could not be run: {' '.join(failed)}.\n"
        )
    return 2 if failed else 0


def _reproduce(
    chosen: dict[str, Any], folders: Any, options: argparse.Namespace
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run experiments one after the other; return their results and the names of those that failed."""
    from shortlist.evidence.reproduction import reproduce

    jobs = options.jobs or (os.cpu_count() or 1 if options.cluster == "local" else None)
    since = time.time() if options.again else 0.0
    results: list[dict[str, Any]] = []
    failed: list[str] = []
    minutes = {name: experiment.scales[options.scale].minutes for name, experiment in chosen.items()}
    shares: dict[str, tuple[float, float]] = {}
    with progress_bar("reproducing", len(chosen), unit="experiments", delay=0) as bar:
        for number, (name, experiment) in enumerate(chosen.items()):

            def tell(done: float, fresh: float, number: int = number, name: str = name) -> None:
                shares[name] = min(done, 1.0), fresh
                left = seconds_left(minutes, shares, bar.elapsed)
                bar.update(number + min(done, 1.0), description=name, seconds_left=left)

            tell(0.0, 0.0)
            try:
                arguments = {"jobs": jobs, "cluster": options.cluster, "since": since, "tell": tell}
                results.append(reproduce(experiment, options.scale, folders, **arguments))
                bar.message(f"[{number + 1}/{len(chosen)}] {name}: done after {format_duration(round(bar.elapsed))}")
            except Exception as error:
                if len(chosen) == 1:
                    raise
                failed.append(name)
                known = isinstance(error, InputError | MissingExtraError | OSError)
                bar.message(f"[{number + 1}/{len(chosen)}] {name}: {error if known else repr(error)}")
            tell(1.0, shares[name][1])
    return results, failed


def seconds_left(minutes: Mapping[str, float], shares: Mapping[str, tuple[float, float]], elapsed: float) -> float:
    """Estimate the remaining time.

    Args:
        minutes: the known duration of each experiment.
        shares: for each that was started, the fraction of its trials that is done and the fraction that was run just
            now.
        elapsed: seconds so far.

    Example:
        >>> seconds_left({"a": 2.0, "b": 2.0}, {"a": (1.0, 1.0)}, 60.0)  # Twice as fast as known.
        60.0
    """
    weights = {name: max(each, 0.05) for name, each in minutes.items()}
    fresh = sum(weights[name] * share for name, (_, share) in shares.items())
    left = sum(weights[name] * (1 - shares.get(name, (0.0, 0.0))[0]) for name in weights)
    pace = elapsed / 60 / fresh if fresh >= _ENOUGH_MINUTES else 1.0
    return 60 * left * pace


def _chosen(known: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    if options.all == bool(options.names):
        raise InputError("name the experiments to run, or give --all; --list shows them.")
    for name in options.names:
        if name not in known:
            raise InputError(f"NAME must be one of the {len(known)} experiments that --list shows; got {name!r}.")
        if known[name].not_decidable:
            raise InputError(f"{name} cannot be run: {known[name].not_decidable}")
        if options.scale not in known[name].scales:
            raise InputError(f"{name} is ours and has no {options.scale} scale.")
    if options.all:
        return {name: experiment for name, experiment in known.items() if options.scale in experiment.scales}
    return {name: known[name] for name in options.names}


def _list(known: dict[str, Any], options: argparse.Namespace) -> int:
    rows = [
        {
            "experiment": name,
            "claim": experiment.claim,
            "title": experiment.title,
            "minutes": experiment.scales[options.scale].minutes if options.scale in experiment.scales else None,
        }
        for name, experiment in known.items()
    ]
    if options.json:
        print_json(rows)
        return 0
    found = table(box=None, pad_edge=False)
    for column in ("experiment", "claim", "title", "minutes"):
        found.add_column(column, justify="right" if column in ("claim", "minutes") else "left")
    for row in rows:
        minutes = f"{row['minutes']:.1f}" if row["minutes"] else "–"
        found.add_row(row["experiment"], str(row["claim"]), row["title"], minutes)
    console(wrap=False).print(found)
    return 0
