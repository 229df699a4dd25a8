"""``shortlist fit``: from labelled data to a model that answers with sets."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from shortlist.cli.output_file import check_folder, told_folder_failure
from shortlist.extras import require

_EXAMPLES = """\
examples:
  shortlist fit digits --k 2 --output digits-model
  shortlist fit plants.csv --reader '{label: species}' --loss average_k --k 3 --output plants-model
  shortlist fit pubmed --loss lml_nll --k 8 --head bottleneck --head_options '{bottleneck: 50}' --output mesh-model
  shortlist fit features.npz --config run.yaml --epochs 40 --output model
  shortlist fit photos/ --frozen efficientnet-lite0 --encoder linear --k 3 --output photo-model
  shortlist fit features.npz --processes 4 --strategy fsdp --output model --resume
  MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 NODE_RANK=1 shortlist fit features.npz --nodes 2 --processes 4 --output model

A run that was interrupted goes on when it is started again with the same --output; what it loses is the epoch that it
was in. With --resume it must have begun there, so that a mistyped folder does not start it anew. The folder holds the
model (safetensors and JSON), its set rule and its checkpoints; `shortlist predict` reads it.
Several nodes: start the same command on each, with the variables of the last example and another NODE_RANK, 0, 1, ...
All must see the folder; node 0 evaluates and writes the model. If a machine vanishes, the others end within 5 minutes.
exit code: 0, or 2 when something is wrong.
"""


def add_command(commands: Any) -> None:
    """Describe the command; its own parser reads what comes after its name."""
    # A prefix that nobody types, so that every option is left to the parser of the command.
    parser = commands.add_parser("fit", help="train a model that answers with sets", add_help=False, prefix_chars="\0")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train, evaluate, save."""
    from shortlist.cli.model_data import describe_source
    from shortlist.cli.run_options import check_test_rows, fit_options, naming_data, options_parser, training_data
    from shortlist.train import evaluate, fit, save_model
    from shortlist.train.checkpoints import RunFolder
    from shortlist.train.distributed.processes import Topology

    parser = options_parser("shortlist fit", "Train a model that answers with sets.", _EXAMPLES)
    parser.add_argument("--output", metavar="FOLDER", required=True, help="where the model goes")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder, which must hold one")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else")
    given = parser.parse_args(options.rest)
    check_folder(given.output)
    asked = fit_options(given)
    first = Topology.of(asked).is_first
    if given.resume and not RunFolder(given.output).has_begun:
        raise ValueError(f"`--resume`: `{given.output}` holds no run to go on with.")
    dataset = training_data(given)
    source = describe_source(dataset, given.data, format=given.format, reader=given.reader, seed=given.seed)
    with naming_data(given.data), told_folder_failure(given.output):
        check_test_rows(dataset, [asked])
        show = first and sys.stderr.isatty()
        fitted = fit(dataset, asked, folder=given.output, resume=given.resume, progress=show)
        if not first:
            told = json.dumps({"model": given.output}) if given.json else f"Node 0 writes the model: {given.output}"
            sys.stdout.write(told + "\n")
            return 0
        evaluation = evaluate(fitted, dataset)
        folder = save_model(fitted, given.output, rule=evaluation.rule, source=source)
    figures = {"best_epoch": fitted.best_epoch, "epochs": len(fitted.history), **evaluation.values}
    if given.json:
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    else:
        _print(dataset.name, fitted.plan.loss, figures, folder)
    return 0


def _print(name: str, loss: str, figures: dict[str, float], folder: Path) -> None:
    console = require("rich.console", extra="report").Console(highlight=False, soft_wrap=True)
    title = f"{name or 'model'}, {loss}, test rows"
    text = require("rich.text", extra="report").Text
    table = require("rich.table", extra="report").Table(title=text(title), title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for figure, value in figures.items():
        table.add_row(figure, f"{value:.4f}" if isinstance(value, float) else str(value))
    console.print(table)
    console.print(f"Model: {folder}", markup=False)
