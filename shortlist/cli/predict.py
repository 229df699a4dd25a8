"""``shortlist predict``: from scores and a rule to sets of labels, row by row."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from shortlist.cli.model_options import add_data_options, check_model_options
from shortlist.cli.output_file import check_output, told_failure
from shortlist.cli.partial_output import Finished, partial_folder, partial_output
from shortlist.cli.question import content_identity, file_identity, versions
from shortlist.cli.row_progress import watched_blocks
from shortlist.cli.scores_file import ScoreBlock, Scores, add_score_options, scores_of
from shortlist.cli.set_lines import CsvLines, JsonLines, SetRows
from shortlist.cli.set_output import set_output
from shortlist.formatting import format_count, format_percent
from shortlist.sets import PredictionSets, SetRule, load_rule
from shortlist.sets.rule import Draw

_EXAMPLES = """\
examples:
  shortlist predict test.npy --logits --rule rule.json --names labels.txt --output sets.jsonl
  shortlist predict test.csv --probabilities --id image --rule rule.json --output sets.csv
  shortlist predict test.npy --logits --rule rule.json --output sets.parquet --resume
  shortlist predict test.npy --logits --rule rule.json | head
  shortlist predict plants-model --data new.csv --id plot --output sets.jsonl
  shortlist predict photos-model --data photos/ --output sets.csv
  shortlist predict mesh-model --data abstracts.txt --rule rule.json | head

SCORES may be a model of `shortlist fit`, and --data what it should answer to; its own rule serves without --rule.
DATA need no labels: a table with the columns of training, a text per line (.txt), features (.npy, .npz), an image or a
folder of images. They are read as those of training were; --reader says what is different.

.jsonl has an object per row: its number (from 0) or id, labels best first, and their probabilities.
.parquet has columns row or id, labels and scores (lists); .csv a line per row, with ';' between labels.
Labels are names where SCORES or --names has them, else numbers.

Any number of rows: memory stays below 700 MB, up to a million labels, for the software and a few blocks of 16 MB of
scores. A model comes on top of that, Parquet with 50 kB for each of its columns, and a compressed .npz as a whole.
Rows that are finished stand in the folder OUTPUT.partial until all are, and stay there if the command is interrupted,
killed or fails: the same command goes on with them, and with --resume it does nothing else. They belong to the same
SCORES (or model and DATA), unchanged, and to the same rule and options; for any others they are discarded.
exit code: 0, 2 when something is wrong, or 130 when interrupted; OUTPUT is there whole, or as it was before.
"""
_FORMATS = ("jsonl", "parquet", "csv")
_TEXTS = ("jsonl", "csv")
_STDOUT = "-"


def add_command(commands: Any) -> None:
    """Describe the command to the parser."""
    parser = commands.add_parser(
        "predict",
        help="from scores and a rule to sets of labels",
        description="Write the set of labels of each row, with a rule of `shortlist calibrate`.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_score_options(parser, required=False)
    add_data_options(parser, part="all rows")
    parser.add_argument("--rule", metavar="FILE", help="JSON of `shortlist calibrate`")
    parser.add_argument("--output", "-o", metavar="FILE", help=".jsonl, .parquet or .csv (default: standard output)")
    parser.add_argument("--format", choices=_FORMATS, help="by default what OUTPUT ends in, else jsonl")
    parser.add_argument("--seed", metavar="N", type=int, help="of the chance that decides ties (default: fresh)")
    parser.add_argument(
        "--resume", action="store_true", help="go on with OUTPUT.partial, or refuse if there is nothing"
    )
    parser.add_argument("--json", action="store_true", help="tell the summary as JSON; needs --output")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the sets of all rows."""
    output = None if options.output in (None, _STDOUT) else Path(options.output)
    form = _format(options, output)
    if options.json and output is None:
        raise ValueError("--json tells a summary on standard output, where the sets go: --output must name a file.")
    if options.resume and output is None:
        raise ValueError("--resume goes on with a file: --output must name it.")
    generator = None if options.seed is None else seeded(options.seed)
    if output is not None:
        check_output(output, options.scores, options.rule, options.names, options.data)
    scores, rule = _source(options)
    if output is None:
        _show(form, scores, rule, Draw(generator))
        return 0
    return _write(options, output, form, scores, rule, Draw(generator))


def _show(form: str, scores: Scores, rule: SetRule, draw: Draw) -> None:
    """Write the sets to standard output."""
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    # A terminal without the characters of a name gets their codes, which JSON reads back.
    ascii_only = not encoding.startswith("utf")
    lines = CsvLines(scores.names) if form == "csv" else JsonLines(scores.names, ascii_only=ascii_only)
    with watched_blocks(scores, "predicting", shown=not sys.stdout.isatty()) as blocks:
        for block in blocks:
            rows = _rows(block, rule.predict(block.scores, draw=draw))
            if block.start == 0:
                sys.stdout.write(lines.begin(rows))
            for text in lines.lines(rows):
                # In small pieces: whoever reads along may have seen enough, which one large piece would not notice.
                sys.stdout.writelines(text.splitlines(keepends=True))


def _write(options: argparse.Namespace, output: Path, form: str, scores: Scores, rule: SetRule, draw: Draw) -> int:
    """Write the sets to a file, or go on with it; what is finished outlives whatever happens."""
    writer, question = set_output(form, scores.names), _question(options, output, form)
    done = Finished()
    try:
        with told_failure(output), partial_output(output, question, resume=options.resume) as partial:
            done = before = partial.finished
            draw = draw if before.chance is None else Draw.from_state(before.chance)
            with watched_blocks(scores, "predicting", start=before.rows) as blocks:
                for block in blocks:
                    sets = rule.predict(block.scores, draw=draw)
                    writer.append(_rows(block, sets), partial)
                    empty = int((sets.sizes == 0).sum())
                    partial.finish_rows(len(sets), len(sets.labels), empty, draw.state())
                    done = partial.finished
            partial.put_in_place(writer.convert)
    except KeyboardInterrupt:
        if done.rows == 0:
            raise
        sys.stderr.write(
            f"\nshortlist: interrupted; the same command goes on after {format_count(done.rows, 'row')}.\n"
        )
        return 130
    _summarise(options, done, before.rows)
    return 0


def _question(options: argparse.Namespace, output: Path, form: str) -> dict[str, Any]:
    """All that the rows depend on."""
    own = (output, partial_folder(output))
    model = Path(options.scores).is_dir()
    kept = ("logits", "probabilities", "key", "id", "part", "data_format", "reader", "seed")
    return {
        "scores": file_identity(options.scores, besides=own),
        "data": file_identity(options.data, besides=own),
        # The rule of a model is one of the files in its folder.
        "rule": None if model and options.rule is None else content_identity(options.rule),
        "names": content_identity(options.names),
        "format": form,
        **{name: getattr(options, name) for name in kept},
        "versions": versions(),
    }


def _rows(block: ScoreBlock, sets: PredictionSets) -> SetRows:
    return SetRows("row" if block.ids is None else "id", block.ids or block.numbers or block.rows, sets)


def _source(options: argparse.Namespace) -> tuple[Scores, SetRule]:
    """Scores of a file or of a model, and the rule that is asked for, or else that of the model."""
    if not check_model_options(options):
        if options.rule is None:
            raise ValueError("--rule must name the JSON of `shortlist calibrate`.")
        scores = scores_of(options)
        return scores, read_rule(options.rule, scores)
    from shortlist.cli.model_scores import unlabelled_scores

    scores, own = unlabelled_scores(options)
    rule = options.rule or own
    if rule is None:
        raise ValueError(f"`{options.scores}` has no rule: --rule must name the JSON of `shortlist calibrate`.")
    return scores, read_rule(rule, scores, model=options.scores)


def read_rule(path: str | Path, scores: Scores, *, model: str | None = None) -> SetRule:
    """A saved rule, if it was calibrated on as many labels and on the same kind of scores; ``model`` gives them."""
    rule = load_rule(path)
    if model is not None and rule.num_labels != scores.num_labels:
        raise ValueError(f"`{path}` is for {rule.num_labels} labels, and `{model}` has {scores.num_labels}.")
    if model is not None and not rule.from_logits:
        raise ValueError(f"`{path}` was calibrated on probabilities, and `{model}` gives logits.")
    if rule.num_labels != scores.num_labels:
        # The usual reason: a column of ids that passes for a label.
        hint = f"; --id {scores.names[0]}, if that names the rows" if scores.names else ""
        got = f"`{scores.path}` has scores of {scores.num_labels}"
        raise ValueError(f"`{path}` is for {rule.num_labels} labels, and {got}{hint}.")
    if rule.from_logits != scores.from_logits:
        kinds = {True: "logits", False: "probabilities"}
        raise ValueError(
            f"`{path}` was calibrated on {kinds[not scores.from_logits]}, and --{kinds[scores.from_logits]} says that "
            "these scores are others."
        )
    return rule


def seeded(seed: int) -> torch.Generator:
    """A generator of a seed from the command line."""
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"--seed must lie in [0, 2**63); got {seed}.")
    return torch.Generator().manual_seed(seed)


def _format(options: argparse.Namespace, output: Path | None) -> str:
    if output is None:
        form = options.format or "jsonl"
        if form not in _TEXTS:
            raise ValueError(f"--format {form} is a file: --output must name it.")
        return form
    ending = output.suffix.lower().removeprefix(".")
    if options.format is None and ending not in _FORMATS:
        endings = ".jsonl, .parquet or .csv"
        raise ValueError(f"--output must end in {endings}, or --format must say which it is; got {str(output)!r}.")
    return options.format or ending


def _summarise(options: argparse.Namespace, done: Finished, before: int) -> None:
    rows = done.rows
    if options.json:
        content = {"rows": rows, "average_size": done.labels / rows, "empty": done.empty, "output": options.output}
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
        return
    kept = f" ({before:,} of them from before)" if before else ""
    size = f"{done.labels / rows:.4g} labels on average"
    none = f"{done.empty:,} empty ({format_percent(done.empty / rows)})" if done.empty else "none empty"
    sys.stdout.write(f"{format_count(rows, 'set')}{kept}, {size}, {none}: {options.output}\n")
