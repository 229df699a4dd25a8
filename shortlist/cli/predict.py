"""``shortlist predict``: from scores and a rule to sets of labels, row by row."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import torch

from shortlist.cli.model_options import add_data_options, check_model_options
from shortlist.cli.output_file import check_output, text_output
from shortlist.cli.row_progress import watched_blocks
from shortlist.cli.scores_file import ScoreBlock, Scores, add_score_options, scores_of
from shortlist.report.dataset import counted, percent
from shortlist.sets import PredictionSets, SetRule, load_rule

_EXAMPLES = """\
examples:
  shortlist predict test.npy --logits --rule rule.json --names labels.txt --output sets.jsonl
  shortlist predict test.csv --probabilities --id image --rule rule.json --output sets.csv
  shortlist predict test.npy --logits --rule rule.json | head
  shortlist predict plants-model --data new.csv --id plot --output sets.jsonl
  shortlist predict photos-model --data photos/ --output sets.csv
  shortlist predict mesh-model --data abstracts.txt --rule rule.json | head

SCORES may be a model of `shortlist fit`, and --data what it should answer to; its own rule serves without --rule.
DATA need no labels: a table with the columns of training, a text per line (.txt), features (.npy, .npz), an image or a
folder of images. They are read as those of training were; --reader says what is different.

.jsonl has an object per row: its number (from 0) or id, labels best first, and their probabilities.
.csv has a line per row, with ';' between labels. Labels are names where SCORES or --names has them, else numbers.
exit code: 0, or 2 when something is wrong; then no output file is left.
"""
_FORMATS = ("jsonl", "csv")
_SEPARATOR = ";"
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
    parser.add_argument("--output", "-o", metavar="FILE", help=".jsonl or .csv (default: standard output)")
    parser.add_argument("--format", choices=_FORMATS, help="by default what OUTPUT ends in, else jsonl")
    parser.add_argument("--seed", metavar="N", type=int, help="of the chance that decides ties (default: fresh)")
    parser.add_argument("--json", action="store_true", help="tell the summary as JSON; needs --output")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the sets of all rows."""
    output = None if options.output in (None, _STDOUT) else options.output
    form = _format(options, output)
    if options.json and output is None:
        raise ValueError("--json tells a summary on standard output, where the sets go: --output must name a file.")
    generator = None if options.seed is None else seeded(options.seed)
    if output is not None:
        check_output(output, options.scores, options.rule, options.names, options.data)
    scores, rule = _source(options)
    if form == "csv":
        _check_names(scores)
    rows = labels = empty = 0
    shown = output is not None or not sys.stdout.isatty()
    with _opened(output) as file, watched_blocks(scores, "predicting", shown=shown) as blocks:
        for block in blocks:
            sets = rule.predict(block.scores, generator=generator)
            _WRITERS[form](file, block, list(_answers(block, sets, scores.names)))
            rows, labels, empty = rows + len(sets), labels + len(sets.labels), empty + int((sets.sizes == 0).sum())
    if output is not None:
        _summarise(options, rows, labels, empty)
    return 0


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


class _Answer(NamedTuple):
    row: int | str
    labels: Sequence[int | str]
    scores: list[float]


def _answers(block: ScoreBlock, sets: PredictionSets, names: tuple[str, ...] | None) -> Iterator[_Answer]:
    """The rows of a block; scores in the fewest digits that tell them apart in their own precision."""
    ends, labels = sets.indptr.tolist(), sets.labels.tolist()
    scores = sets.scores.numpy().astype(str).astype(float).tolist()
    shown = labels if names is None else [names[label] for label in labels]
    rows = block.ids or block.numbers or block.rows
    for place, row in enumerate(rows):
        inside = slice(ends[place], ends[place + 1])
        yield _Answer(row, shown[inside], scores[inside])


def _write_jsonl(file: TextIO, block: ScoreBlock, answers: Sequence[_Answer]) -> None:
    key = "row" if block.ids is None else "id"
    # A terminal without the characters of a name gets their codes, which JSON reads back.
    codes = not (file.encoding or "utf-8").lower().startswith("utf")
    for row, labels, scores in answers:
        line = json.dumps({key: row, "labels": labels, "scores": scores}, ensure_ascii=codes)
        file.write(f"{line}\n")


def _write_csv(file: TextIO, block: ScoreBlock, answers: Sequence[_Answer]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    if block.start == 0:
        writer.writerow(["row" if block.ids is None else "id", "size", "labels", "scores"])
    for row, labels, scores in answers:
        joined = (_SEPARATOR.join(map(str, values)) for values in (labels, scores))
        writer.writerow([row, len(labels), *joined])


_WRITERS: dict[str, Callable[[TextIO, ScoreBlock, Sequence[_Answer]], None]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
}


def _format(options: argparse.Namespace, output: str | None) -> str:
    if options.format is not None:
        return options.format
    if output is None:
        return "jsonl"
    ending = Path(output).suffix.lower().removeprefix(".")
    if ending not in _FORMATS:
        raise ValueError(f"--output must end in .jsonl or .csv, or --format must say which it is; got {output!r}.")
    return ending


def _check_names(scores: Scores) -> None:
    for name in scores.names or ():
        if _SEPARATOR in name:
            raise ValueError(
                f"names must not hold {_SEPARATOR!r}, which separates them in CSV; {name!r} does (.jsonl can)."
            )


@contextmanager
def _opened(output: str | None) -> Iterator[TextIO]:
    if output is None:
        yield sys.stdout
        return
    with text_output(output) as file:
        yield file


def _summarise(options: argparse.Namespace, rows: int, labels: int, empty: int) -> None:
    if options.json:
        content = {"rows": rows, "average_size": labels / rows, "empty": empty, "output": options.output}
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
        return
    size = f"{labels / rows:.4g} labels on average"
    none = f"{empty:,} empty ({percent(empty / rows)})" if empty else "none empty"
    sys.stdout.write(f"{counted(rows, 'set')}, {size}, {none}: {options.output}\n")
