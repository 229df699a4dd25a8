"""``shortlist reproduce``: run published experiments, at small scale or at that of the texts."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shortlist.cli.cluster_option import add_cluster_option
from shortlist.cli.reproduce_progress import ReproduceProgress, reproduce_progress
from shortlist.extras import require

_EXAMPLES = """\
examples:
  shortlist reproduce --list
  shortlist reproduce sets-table-4.4 --data-root data
  shortlist reproduce --all --scale small --data-root data
  shortlist reproduce dft-figure-6 --scale paper --data-root /datasets
  shortlist reproduce --all --data-root /datasets --cluster dask://scheduler:8786

An experiment is a published table or figure. It is run again from the folder `experiments` of the source, at a scale of
minutes on two cores, or with the data, the network and the options of the text. Every finished trial is kept, so the
same command goes on where it was interrupted. Results and pictures go to experiments/results, and the document of all
results, docs/evidence.md, is written anew; with --output both go there.
exit code: 0; 2 when something is wrong, also with one of several experiments: the others are run.
"""


def add_command(commands: Any) -> None:
    """Describe the command and its options."""
    parser = commands.add_parser(
        "reproduce",
        help="put published claims to the test",
        description="Run published experiments, and write down which claims hold.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments; see --list")
    parser.add_argument("--all", action="store_true", help="all experiments")
    parser.add_argument("--list", action="store_true", help="list the experiments and run none")
    parser.add_argument("--scale", choices=("small", "paper"), default="small", help="default small")
    parser.add_argument("--data-root", metavar="FOLDER", default="data", help="where data are (default data)")
    parser.add_argument("--experiments", metavar="FOLDER", default="experiments", help="default experiments")
    parser.add_argument("--output", metavar="FOLDER", default=None, help="default experiments/results")
    parser.add_argument("--kept", metavar="FOLDER", default="out/trials", help="finished trials (default out/trials)")
    parser.add_argument("--again", action="store_true", help="run trials that are kept once more")
    parser.add_argument("--jobs", type=int, default=None, help="trials at a time (default all cores)")
    add_cluster_option(parser, "the folders of --experiments and --data-root, under the same paths; one thread each")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the experiments that were asked for, and write the document."""
    from shortlist.cluster import check_cluster
    from shortlist.evidence import read_experiments
    from shortlist.evidence.document import verdict_lines, write_evidence
    from shortlist.evidence.reproduction import Folders, reproduce

    if options.jobs is not None and options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1; got {options.jobs}.")
    jobs = options.jobs or (os.cpu_count() or 1 if options.cluster == "local" else None)
    check_cluster(options.cluster)
    folder = Path(options.experiments)
    known = read_experiments(folder)
    if options.list:
        return _list(known, options.scale)
    chosen = _chosen(known, options)
    output = folder / "results" if options.output is None else Path(options.output)
    document = folder.parent / "docs" / "evidence.md" if options.output is None else output / "evidence.md"
    folders = Folders(folder, Path(options.data_root), output, Path(options.kept))
    since = time.time() if options.again else 0.0
    failed: list[str] = []
    results: list[dict[str, Any]] = []
    minutes = {name: experiment.scales[options.scale].minutes for name, experiment in chosen.items()}
    with reproduce_progress(minutes) as progress:
        for name, experiment in chosen.items():
            with _told_failure(name, failed, progress, alone=len(chosen) == 1), progress.running(name) as tell:
                results.append(
                    reproduce(
                        experiment, options.scale, folders, jobs=jobs, cluster=options.cluster, since=since, tell=tell
                    )
                )
    for result in results:
        for verdict, statement, why in verdict_lines(result):
            sys.stdout.write(f"{result['name']}: {verdict}: {statement}\n    {why}\n")
    sys.stdout.write(f"Written: {write_evidence(folders, document, leave_out=failed)}\n")
    if failed:
        sys.stderr.write(
            f"shortlist: {len(failed)} of {len(chosen)} experiments could not be run: {' '.join(failed)}.\n"
        )
    return 2 if failed else 0


@contextmanager
def _told_failure(name: str, failed: list[str], progress: ReproduceProgress, *, alone: bool) -> Iterator[None]:
    """What is wrong with one of several experiments is told at once, and the others are run."""
    try:
        yield
    except Exception as error:
        if alone:
            raise
        failed.append(name)
        known = isinstance(error, ValueError | TypeError | ImportError | OSError)
        progress.say(f"{name}: {error if known else repr(error)}")


def _chosen(known: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    if options.all == bool(options.names):
        raise ValueError("say which experiments to run, or --all; --list shows them.")
    for name in options.names:
        if name not in known:
            raise ValueError(f"NAME must be one of the {len(known)} experiments that --list shows; got {name!r}.")
    return known if options.all else {name: known[name] for name in options.names}


def _list(known: dict[str, Any], scale: str) -> int:
    table = require("rich.table", extra="report").Table(box=None, pad_edge=False)
    for column in ("experiment", "claim", "title", "minutes"):
        table.add_column(column, justify="right" if column in ("claim", "minutes") else "left")
    for name, experiment in known.items():
        minutes = experiment.scales[scale].minutes
        table.add_row(name, str(experiment.claim), experiment.title, f"{minutes:.1f}" if minutes else "–")
    require("rich.console", extra="report").Console(highlight=False, soft_wrap=True).print(table)
    return 0
