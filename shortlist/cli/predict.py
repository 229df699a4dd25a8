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

from shortlist.cli.model_scores import is_model, open_model_scores
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
  shortlist predict plants-model --data plants.csv --part test --output sets.jsonl

SCORES may be a model of `shortlist fit`, and --data what it should answer to; its own rule serves without --rule.

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
    parser.add_argument("--data", metavar="PATH", help="with a model: the data to answer to")
    parser.add_argument("--data-format", metavar="NAME", help="of DATA; see `shortlist data formats`")
    parser.add_argument("--part", metavar="NAME", help="with a model: the part of the data (default: all rows)")
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
        check_output(output, options.scores, options.rule, options.names)
    scores, rule_file = _source(options)
    rule = read_rule(rule_file, scores)
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


def _source(options: argparse.Namespace) -> tuple[Scores, str | Path]:
    """Scores of a file or of a model, and the file of the rule."""
    if is_model(options.scores):
        if options.data is None:
            raise ValueError(f"`{options.scores}` is a model: --data must name what it should answer to.")
        for name in ("logits", "probabilities", "key", "id", "names"):
            if getattr(options, name):
                raise ValueError(f"--{name} is for files of scores; `{options.scores}` is a model.")
        scores = open_model_scores(options.scores, options.data, part=options.part, format=options.data_format)
        rule = options.rule or Path(options.scores) / "rule.json"
    else:
        for name in ("data", "data_format", "part"):
            if getattr(options, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} is for models; `{options.scores}` is none.")
        if not options.logits and not options.probabilities:
            raise ValueError("one of --logits and --probabilities must say what the scores are.")
        scores, rule = scores_of(options), options.rule
    if rule is None:
        raise ValueError("--rule must name the JSON of `shortlist calibrate`.")
    return scores, rule


def read_rule(path: str | Path, scores: Scores) -> SetRule:
    """A saved rule, if it was calibrated on as many labels and on the same kind of scores."""
    rule = load_rule(path)
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
    for place, row in enumerate(block.rows if block.ids is None else block.ids):
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
