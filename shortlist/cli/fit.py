"""``shortlist fit``: train a model that predicts sets of labels."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shortlist.cli.console import console, loading, note, print_json, resumable, table, text
from shortlist.cli.options import add_parser
from shortlist.cli.run_options import DataOptions, TuningOptions, add_run_options, read_run_options
from shortlist.errors import InputError
from shortlist.files import check_folder, locked, writing
from shortlist.fit_options import FitOptions
from shortlist.formatting import format_percent

_EXAMPLES = """\
examples:
  shortlist fit digits --k 2 --output digits-model
  shortlist fit plants.csv --reader label=species --loss average_k --k 3 --output plants-model
  shortlist fit pubmed --loss lml_nll --k 8 --head bottleneck --head-options bottleneck=50 --output mesh-model
  shortlist fit features.npz --config run.yaml --epochs 40 --output model
  shortlist fit features.npz --recipe paper --epochs 100 --tune 24 --output model
  shortlist fit features.npz --learning-rate 0.01 --output model
  shortlist fit photos/ --frozen efficientnet-lite0 --encoder linear --k 3 --output photo-model
  shortlist fit features.npz --processes 4 --strategy fsdp --output model --resume
  MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 NODE_RANK=1 shortlist fit features.npz --nodes 2 --processes 4 --output model

Run an interrupted command again with the same --output to resume it; only the current epoch is lost. --resume fails
unless there is a run to resume, so a mistyped folder does not start a new one. The folder contains the model
(safetensors and JSON), its set rule, its model card (README.md), its checkpoints and the trials of the learning rate;
`shortlist predict` reads it.
Learning rate and weight decay are found on the validation rows first, unless --learning-rate is given or --tune is 0.
Several nodes: run the same command on each, with the variables of the last example and NODE_RANK 0, 1, ...
All nodes must see the folder; node 0 evaluates and writes the model. If a machine disappears, the others stop within 5
minutes.
exit code: 0, 2 on errors, or 130 if interrupted.
"""
# A folder that holds none of these is not the folder of a run.
_FILES = ("calibration.json", "checkpoints", "model.*", "rule.json", "tuning.json", "words.json")


@dataclass(frozen=True)
class Output:
    """Output options of ``shortlist fit``.

    Args:
        output: folder for the model.
        resume: resume the run in the folder; fail if there is none.
        json: print the metrics as JSON and nothing else.
    """

    output: str | None = field(default=None, metadata={"metavar": "FOLDER"})
    resume: bool = False
    json: bool = False


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    about = "Train a model that predicts sets of labels."
    parser = add_parser(
        commands, "fit", run, help="train a model that predicts sets of labels", about=about, epilog=_EXAMPLES
    )
    add_run_options(parser, Output, TuningOptions)


def run(options: argparse.Namespace) -> int:
    """Train, evaluate, save."""
    given = read_run_options(options, Output, TuningOptions)
    fit_options, data, to = given.of(FitOptions), given.of(DataOptions), given.of(Output)
    if to.output is None:
        from shortlist.data.opening import recognize_format

        if data.format is None:
            recognize_format(data.data)  # A missing file is the mistake to name first.
        raise InputError("--output must name the folder for the model.")
    check_folder(to.output, own=_FILES)

    with loading():
        from shortlist.fit_options import still_improving
        from shortlist.train import evaluate, fit, save_model, tune
        from shortlist.train.card.facts import measured
        from shortlist.train.cautions import data_cautions
        from shortlist.train.checkpoints import RunFolder
        from shortlist.train.data_source import check_test_rows, describe_source, open_training_data
        from shortlist.train.distributed.processes import Topology
        from shortlist.train.estimate import duration_sentence, estimate_seconds
        from shortlist.train.tuning import tried_decays

    topology, begun = Topology.of(fit_options), RunFolder(to.output).has_begun
    trials = given.of(TuningOptions).trials(fit_options, alone=topology.is_alone)
    trial_file = Path(to.output) / "tuning.json"
    if to.resume and not begun and not trial_file.is_file():
        raise InputError(f"`{to.output}` holds no run to resume.")
    seed = fit_options.seed
    reading: dict[str, Any] = {"format": data.format, "reader": data.reader, "seed": seed}
    dataset = open_training_data(data.data, **reading, multi_label=data.multi_label, tell=note)
    fit_options = given.sized(fit_options, dataset.num_labels, tell=note)
    source = describe_source(dataset, data.data, **reading)
    lock = locked(Path(to.output) / ".lock", to.output) if topology.is_first else nullcontext()
    with resumable(options), writing(to.output), lock:
        check_test_rows(dataset, [fit_options], name=data.data)
        if topology.world_size == 1 and not begun:
            decays = tried_decays(fit_options)
            search: dict[str, Any] = {"trials": trials, "decays": decays, "file": trial_file}
            if sentence := duration_sentence([estimate_seconds(dataset, fit_options, runs=1, **search)]):
                note(sentence)
        if trials:
            tuned = tune(dataset, fit_options, trials=trials, file=trial_file, progress=True, data_name=data.data)
            fit_options = tuned.options
        fitted = fit(
            dataset,
            fit_options,
            folder=to.output,
            resume=to.resume and begun,
            progress=topology.is_first,
            data_name=data.data,
        )
        if not topology.is_first:
            if to.json:
                print_json({"model": to.output})
            else:
                sys.stdout.write(f"Node 0 writes the model: {to.output}\n")
            return 0
        evaluation = evaluate(fitted, dataset, data_name=data.data)
        found = measured(fitted.model, dataset, evaluation)
        folder = save_model(fitted, to.output, rule=evaluation.rule, source=source, measured=found)
    for caution in data_cautions(dataset):
        note(f"Note: {caution}")
    metrics = {"best_epoch": fitted.best_epoch, "epochs": len(fitted.history), **evaluation.values}
    if trials:
        metrics |= {"learning_rate": fitted.options.learning_rate, "weight_decay": fitted.options.weight_decay}
    if to.json:
        print_json(metrics)
    else:
        _print(dataset.name, fitted.plan.loss, metrics, folder)
        if still_improving(fitted.history, fitted.monitor):
            note("Note: scores still improved at the last epoch: use more --epochs.")
    return 0


def _print(name: str, loss: str, metrics: dict[str, float], folder: Path) -> None:
    found = table(title=text(f"{name or 'model'}, {loss}, test rows"), title_justify="left")
    found.add_column("metric")
    found.add_column("value", justify="right")
    counts = ("best_epoch", "epochs", "average_size", "learning_rate", "weight_decay")
    for metric, value in metrics.items():
        found.add_row(metric, f"{value:.4g}" if metric in counts else format_percent(value))
    screen = console(wrap=False)
    screen.print(found)
    screen.print(f"Model: {folder}", markup=False)
