"""``shortlist predict``: apply a set rule to scores, row by row."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from shortlist.cli.console import note, print_json, resumable
from shortlist.cli.options import (
    add_parser,
    add_row_options,
    add_rule_option,
    add_score_options,
    add_seed_option,
    given_row_options,
    is_model,
    open_model_scores,
    open_score_file,
    rule_file,
)
from shortlist.errors import InputError
from shortlist.files import check_output
from shortlist.formatting import format_count, format_percent

_EXAMPLES = """\
examples:
  shortlist predict test.npy --logits --rule rule.json --names labels.txt --output sets.jsonl
  shortlist predict test.csv --probabilities --id image --rule rule.json --output sets.csv
  shortlist predict test.npy --logits --rule rule.json --output sets.parquet --resume
  shortlist predict test.npy --logits --rule rule.json | head
  shortlist predict plants-model --data new.csv --id plot --output sets.jsonl
  shortlist predict photos-model --data photos/ --output sets.csv
  shortlist predict mesh-model --data abstracts.txt --rule average-error | head
  shortlist predict mesh-model --text "a rose is a rose" --text "a daisy"
  grep -v '^#' abstracts.txt | shortlist predict mesh-model --data -
  shortlist predict photos-model --data photo.jpg --allowed candidates.txt

SCORES may be a model saved by `shortlist fit`, with the data to score in --data (- for standard input, a text per line)
or in --text; --rule defaults to the model's rule, and may name one of its folder or a file.
DATA needs no labels: a table with the training columns, one text per line (.txt), features (.npy, .npz), an image or a
folder of images. It is read like the training data; --reader overrides this.

.jsonl has one object per row: its number (from 0) or id, its labels, best first, and their probabilities; from rules
that may give no answer also whether they abstained (a column in the other formats).
.parquet has columns row or id, labels and scores (lists); .csv has one line per row, with ';' between labels.
Labels are names if SCORES or --names provides them, and indices otherwise. Rules on a taxonomy answer with the names of
its nodes: species, genera, families.

Memory stays below 700 MB for any number of rows and up to a million labels: the software and a few blocks of 16 MB of
scores. A model, 50 kB for each column of Parquet input, and the content of a compressed .npz come in addition.
Finished rows are stored in the folder OUTPUT.partial until all are done, and stay there if the command is interrupted,
killed or fails: the same command resumes after them, and with --resume it never starts over. They are reused only for
the same, unchanged SCORES (or model and DATA), rule and options, and discarded otherwise.
exit code: 0, 2 on errors, or 130 if interrupted; OUTPUT is either complete or left as it was before.
"""
_FORMATS = ("jsonl", "parquet", "csv")


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    about = "Predict the label set of each row, with a rule from `shortlist calibrate`."
    parser = add_parser(
        commands,
        "predict",
        run,
        help="apply a set rule to scores or to a model's predictions",
        about=about,
        epilog=_EXAMPLES,
    )
    add_score_options(parser, part="all rows")
    parser.add_argument(
        "--text", metavar="TEXT", action="append", help="with a model: a text to score; may be repeated"
    )
    add_row_options(parser)
    add_rule_option(parser)
    parser.add_argument("--output", "-o", metavar="FILE", help=".jsonl, .parquet or .csv (default: standard output)")
    parser.add_argument(
        "--output-format", choices=_FORMATS, help="jsonl, parquet or csv (default: from the suffix of OUTPUT, or jsonl)"
    )
    add_seed_option(parser, default=None, help="seed for breaking ties (default: a fresh one)")
    parser.add_argument("--resume", action="store_true", help="resume OUTPUT.partial, or fail if there is none")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON; needs --output")


def run(options: argparse.Namespace) -> int:
    """Write the sets of all rows."""
    if options.format in _FORMATS:  # What --format meant here before; no format of data has such a name.
        note(f"shortlist: --format {options.format} is called --output-format {options.format} now.")
        options.format, options.output_format = None, options.format
    output = None if options.output in (None, "-") else Path(options.output)
    if output is None:
        if options.output_format == "parquet":
            raise InputError("--output-format parquet needs a file: --output must name it.")
        if options.json:
            raise InputError(
                "--json prints a summary on standard output, where the sets go: --output must name a file."
            )
        if options.resume:
            raise InputError("--resume needs a file to resume: --output must name it.")
    else:
        from shortlist.predict.prediction import output_format

        output_format(output, options.output_format)
        read = (options.scores, options.rule, options.names, options.data, options.allowed)
        check_output(output, *read, options.groups, options.weights)
    scores, rule = _source(options)
    if output is None:
        _print_sets(options, scores, rule)
        return 0
    from shortlist.predict import predict_sets

    with resumable(options, kept=None):
        done = predict_sets(
            scores, rule, output, format=options.output_format, seed=options.seed, resume=options.resume, progress=True
        )
    if options.json:
        content = {"rows": done.rows, "average_size": done.average_size, "empty": done.empty, "output": options.output}
        print_json(content)
        return 0
    resumed = f" ({done.resumed:,} of them resumed)" if done.resumed else ""
    empty = f"{done.empty:,} empty ({format_percent(done.empty / done.rows)})" if done.empty else "none empty"
    sets = f"{format_count(done.rows, 'set')}{resumed}, {done.average_size:.4g} labels on average, {empty}"
    sys.stdout.write(f"{sets}: {options.output}\n")
    return 0


def _source(options: argparse.Namespace) -> tuple[Any, Any]:
    """Open the scores of a file or a model, and the given rule or the model's own."""
    from shortlist.predict import read_rule
    from shortlist.predict.row_values import check_row_values

    scores = open_model_scores(options, labelled=False).scores if is_model(options) else open_score_file(options)
    file = rule_file(options)
    rule = read_rule(file, scores)
    check_row_values(rule, given_row_options(options), name=str(file))
    return scores, rule


def _print_sets(options: argparse.Namespace, scores: Any, rule: Any) -> None:
    from shortlist.predict import iterate_sets
    from shortlist.predict.files.set_files import text_lines
    from shortlist.predict.prediction import answer_names, set_rows

    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    # If the terminal lacks a name's characters, write escapes, which JSON can read back.
    names = answer_names(rule, scores)
    lines = text_lines(options.output_format or "jsonl", names, ascii_only=not encoding.startswith("utf"))
    shown = not sys.stdout.isatty()
    # Always close the bar first, because it would overwrite an error message.
    with closing(iterate_sets(scores, rule, seed=options.seed, nodes=True, progress=shown)) as found:
        for block, sets in found:
            rows = set_rows(block, sets)
            if block.start == 0:
                sys.stdout.write(lines.header(rows))
            for text in lines.lines(rows):
                # Flush every line, to notice soon when a reader such as `head` closes the pipe.
                sys.stdout.writelines(text.splitlines(keepends=True))
