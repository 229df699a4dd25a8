"""``shortlist audit``: which label sets a layer can never output."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from shortlist.audit import AuditReport, Combination, audit
from shortlist.audit.layer import array_names, read_array
from shortlist.cli.cluster_option import add_cluster_option
from shortlist.cli.label_file import read_label_file, read_names
from shortlist.extras import require

_EXAMPLES = """\
examples:
  shortlist audit model.safetensors test_labels.txt --key head.weight --bias head.bias
  shortlist audit weights.npz labels.npz --mode top-k --jobs 2 --json audit.json
  shortlist audit weights.npz labels.npz --cluster dask://scheduler:8786 --json audit.json
  shortlist audit --verify audit.json

exit code: 0 when every set can be output, 1 when some cannot or are undecided (with --verify: when a certificate
fails), 2 when something could not be read. An audit with --json that was interrupted goes on where it stopped.
"""
_MOST_SIZES = 15
_MOST_CULPRITS = 4


def add_command(commands: Any) -> None:
    """Describe the command to the parser."""
    parser = commands.add_parser(
        "audit",
        help="which label sets a layer can never output, with proof",
        description="Say of each label set, with a checked certificate, whether the layer can ever output it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("weights", nargs="?", help="matrix, one row per label: .safetensors, .npz or .npy")
    parser.add_argument("labels", nargs="?", help="label sets: arrays, .json, or text with one set per line")
    parser.add_argument("--key", help="which array of WEIGHTS; not needed when it holds one matrix")
    parser.add_argument("--bias", metavar="KEY", help="array of WEIGHTS that is added to the logits")
    parser.add_argument("--labels-key", metavar="KEY", help="which array of LABELS")
    parser.add_argument("--names", metavar="FILE", help="label names, one per line, in the order of the rows")
    parser.add_argument("--mode", choices=("sign", "top-k"), default="sign", help="logits against 0, or the k largest")
    parser.add_argument("--dft", metavar="K", type=int, help="the first 2K + 1 columns are the Fourier matrix")
    parser.add_argument("--no-radius", action="store_true", help="verdicts and certificates only: faster")
    parser.add_argument("--jobs", metavar="N", type=int, help="processes; by default all cores when it is worth it")
    add_cluster_option(parser, "no files")
    parser.add_argument("--worst", metavar="N", type=int, default=5, help="how many sets to name (default 5)")
    parser.add_argument("--json", metavar="FILE", help="write the report, certificates included")
    parser.add_argument("--verify", metavar="FILE", help="check the certificates of a saved report instead")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Audit a layer or verify a report."""
    if options.verify is not None:
        if options.weights is not None or options.json is not None:
            raise ValueError("--verify takes a saved report alone: it holds the layer and the sets.")
        return _verify(options)
    if options.weights is None or options.labels is None:
        raise ValueError("audit needs WEIGHTS and LABELS, or --verify FILE; see `shortlist audit --help`.")
    names = None if options.names is None else read_names(options.names)
    weight = read_array(options.weights, options.key)
    if weight.ndim != 2:
        raise ValueError(f"`{options.weights}` must hold a matrix; got shape {tuple(weight.shape)}.")
    bias = None if options.bias is None else read_array(options.weights, options.bias)
    _mention_bias(options)
    target = None if options.json is None else Path(options.json)
    progress = None if target is None else target.with_name(target.name + ".progress")
    report = audit(
        weight,
        read_label_file(options.labels, len(weight), key=options.labels_key, names=names),
        bias,
        mode=options.mode,
        radius=not options.no_radius,
        jobs=options.jobs,
        cluster=options.cluster,
        dft=options.dft,
        names=names,
        resume=progress,
        progress=sys.stderr.isatty(),
    )
    if target is not None and progress is not None:
        report.save(target)
        progress.unlink()
    _print(report, options.worst, target)
    return 0 if report.counts()["argmaxable"] == len(report) else 1


def _mention_bias(options: argparse.Namespace) -> None:
    """A layer's bias lies beside its weight; leaving it out is a choice that should not be made by accident."""
    key = options.key or ""
    beside = f"{key.removesuffix('weight')}bias"
    if options.bias is None and key.endswith("weight") and beside in array_names(options.weights):
        sys.stderr.write(f"shortlist: the bias is left out; --bias {beside} adds it.\n")


def _verify(options: argparse.Namespace) -> int:
    report = AuditReport.load(options.verify)
    wrong = report.verify()
    counts = report.counts()
    proved = len(report) - counts["undecided"]
    if wrong:
        shown = ", ".join(map(str, wrong[:10])) + (", …" if len(wrong) > 10 else "")
        sys.stdout.write(f"{len(wrong)} of {proved} certificates fail: set {shown}.\n")
        return 1
    sys.stdout.write(f"All {proved} certificates hold; {counts['undecided']} sets are undecided and have none.\n")
    return 0


def _print(report: AuditReport, worst: int, target: Path | None) -> None:
    console = require("rich.console", extra="audit").Console(highlight=False, soft_wrap=True)
    console.print(_table(report))
    n, d = report.system.weight.shape
    counts = report.counts()
    question = "can be the k largest logits" if report.system.mode == "top-k" else "can be output"
    console.print(
        f"{counts['argmaxable']} of {len(report)} sets {question} by this layer of {n} labels × {d} features."
    )
    if report.survives:
        shares = ", ".join(f"{100 * share:.0f}% in {name}" for name, share in report.survives.items())
        console.print(f"Share of them whose vector keeps all signs when it and the layer are rounded: {shares}.")
    for index in report.worst(worst):
        console.print(_describe(report, index), markup=False)
    if target is not None:
        console.print(f"Report with certificates: {target}", markup=False)


def _table(report: AuditReport) -> Any:
    table = require("rich.table", extra="audit").Table()
    for name in ("set size", "argmaxable", "unargmaxable", "undecided", "smallest radius"):
        table.add_column(name, justify="right")
    rows = report.table()
    for row in rows[:_MOST_SIZES]:
        smallest = "" if math.isnan(row.smallest_radius) else f"{row.smallest_radius:.3g}"
        table.add_row(str(row.size), *(str(n) if n else "·" for n in row[1:4]), smallest)
    rest = rows[_MOST_SIZES:]
    if rest:
        sums = [sum(row[column] for row in rest) for column in (1, 2, 3)]
        radii = [row.smallest_radius for row in rest if not math.isnan(row.smallest_radius)]
        smallest = f"{min(radii):.3g}" if radii else ""
        table.add_row(f"{rest[0].size}-{rest[-1].size}", *(str(n) if n else "·" for n in sums), smallest)
    return table


def _describe(report: AuditReport, index: int) -> str:
    decision = report.decisions[index]
    labels = ", ".join(report.labels_of(index)) or "the empty set"
    detail = {
        "argmaxable": f"radius {decision.low:.3g}",
        "unargmaxable": f"no input gives it{_because(report, decision.certificate)}",
        "undecided": decision.reason,
    }[decision.verdict]
    return f"set {index}: {decision.verdict}, {detail}: {labels}"


def _because(report: AuditReport, certificate: object) -> str:
    """A few rows that forbid a set are worth naming; a hundred are not."""
    if not isinstance(certificate, Combination) or len(certificate.rows) > _MOST_CULPRITS:
        return ""
    names = [report.name_of(row) for row in certificate.rows.tolist() if row < report.system.num_labels]
    return f" (the row of {names[0]} is zero)" if len(names) == 1 else f" (the rows of {', '.join(names)} exclude it)"
