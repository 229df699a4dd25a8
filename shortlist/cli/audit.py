"""``shortlist audit``: which label sets a layer can never output."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from shortlist.cli.console import console, print_json, resumable, table
from shortlist.cli.options import add_cluster_option, add_data_options, add_json_option, add_parser, whole_number
from shortlist.errors import InputError
from shortlist.files import writing
from shortlist.formatting import format_percent

_EXAMPLES = """\
examples:
  shortlist audit model.safetensors test_labels.txt --key head.weight --bias head.bias
  shortlist audit weights.npz labels.npz --mode top-k --jobs 2 --output audit.json
  shortlist audit weights.npz labels.npz --cluster dask://scheduler:8786 --output audit.json
  shortlist audit mesh-model --data test.csv --output audit.json
  shortlist audit --verify audit.json

WEIGHTS may be a model saved by `shortlist fit`; then --data names the data whose label sets are audited, and --mode is
top-k by default, because set rules compare the scores of a row.

exit code: 0 if every set can be output, 1 if some sets cannot or are undecided (with --verify: if a certificate fails),
2 on errors, 130 if interrupted. An interrupted audit with --output resumes where it stopped.
"""
_MOST_SIZES = 15
_MOST_CULPRITS = 4


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "audit",
        run,
        help="which label sets a layer can never output, with proof",
        about="Decide for each label set, with a checked certificate, whether the layer can ever output it.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("weights", nargs="?", help="matrix, one row per label: .safetensors, .npz or .npy; or a model")
    parser.add_argument("labels", nargs="?", help="label sets: arrays, .json, or text with one set per line")
    parser.add_argument("--key", help="array in WEIGHTS; optional if it contains only one matrix")
    parser.add_argument("--bias", metavar="KEY", help="array in WEIGHTS to add to the logits")
    parser.add_argument("--labels-key", metavar="KEY", help="array in LABELS")
    parser.add_argument("--names", metavar="FILE", help="label names, one per line, in the order of the rows")
    parser.add_argument(
        "--mode", choices=("sign", "top-k"), help="compare logits with 0 (default), or take the k largest"
    )
    parser.add_argument(
        "--dft", metavar="K", type=int, help="declare that the first 2K + 1 columns are the Fourier matrix"
    )
    parser.add_argument("--no-radius", action="store_true", help="only verdicts and certificates; faster")
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=_jobs,
        help="processes; by default all cores if there is enough work; -1 for all cores",
    )
    add_cluster_option(parser, "no files")
    parser.add_argument("--worst", metavar="N", type=int, default=5, help="how many sets to list (default 5)")
    parser.add_argument("--output", "-o", metavar="FILE", help="write the report, including certificates")
    add_json_option(parser, "the counts")
    add_data_options(parser, part="all rows")
    parser.add_argument("--verify", metavar="FILE", help="verify the certificates of a saved report instead")


def _jobs(value: str) -> int:
    """Parse a number of processes as joblib does: negative numbers count back from all cores."""
    jobs = whole_number(at_least=-(1 << 16))(value)
    if jobs == 0:
        raise argparse.ArgumentTypeError("must not be 0")
    return jobs


def run(options: argparse.Namespace) -> int:
    """Audit a layer or verify a report."""
    if options.verify is not None:
        if options.weights is not None or options.output is not None:
            raise InputError("--verify takes only a saved report, which contains the layer and the sets.")
        return _verify(options)
    output = None if options.output is None else Path(options.output)
    finished = None if output is None else output.with_name(output.name + ".progress")
    how = {"radius": not options.no_radius, "jobs": options.jobs, "cluster": options.cluster}
    how |= {"resume": finished, "progress": True}
    model = options.weights is not None and Path(options.weights).is_dir()
    with resumable(options, kept=output is not None), writing(output):
        report = _of_model(options, how) if model else _of_files(options, how)
        if output is not None and finished is not None:
            report.save(output)
            finished.unlink()
    if options.json:
        print_json({**report.counts(), "output": options.output})
    else:
        _print(report, options.worst, output)
    return 0 if report.counts()["argmaxable"] == len(report) else 1


def _of_model(options: argparse.Namespace, how: dict[str, Any]) -> Any:
    from shortlist.predict import audit_model
    from shortlist.typed_values import read_entries

    if options.data is None:
        raise InputError(f"`{options.weights}` is a model: --data must name the data with the label sets.")
    for name in ("labels", "key", "bias", "labels_key", "names", "dft"):
        if getattr(options, name) is not None:
            flag = "LABELS" if name == "labels" else f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} is for files of weights, but `{options.weights}` is a model.")
    reader = read_entries(options.reader, "--reader", parse=False)
    reading = {"part": options.part, "format": options.format, "reader": reader}
    return audit_model(options.weights, options.data, mode=options.mode or "top-k", **reading, **how)


def _of_files(options: argparse.Namespace, how: dict[str, Any]) -> Any:
    if options.weights is None or options.labels is None:
        raise InputError("audit needs WEIGHTS and LABELS, or --verify FILE; see `shortlist audit --help`.")
    for name in ("data", "format", "part", "reader"):
        if getattr(options, name):
            raise InputError(f"--{name} is for models, but `{options.weights}` is not a folder with a model.")

    from shortlist.audit import audit
    from shortlist.audit.layer import read_array
    from shortlist.predict import read_label_sets, read_names

    names = None if options.names is None else read_names(options.names)
    weight = read_array(options.weights, options.key)
    if weight.ndim != 2:
        raise InputError(f"`{options.weights}` must hold a matrix; got shape {tuple(weight.shape)}.")
    bias = None if options.bias is None else read_array(options.weights, options.bias)
    _mention_bias(options)
    sets = read_label_sets(options.labels, len(weight), key=options.labels_key, names=names)
    return audit(weight, sets, bias, mode=options.mode or "sign", dft=options.dft, names=names, **how)


def _mention_bias(options: argparse.Namespace) -> None:
    """Warn that the bias stored beside the weight is ignored, which may be a mistake."""
    from shortlist.audit.layer import array_names

    key = options.key or ""
    beside = f"{key.removesuffix('weight')}bias"
    if options.bias is None and key.endswith("weight") and beside in array_names(options.weights):
        sys.stderr.write(f"shortlist: the bias is ignored; use --bias {beside} to add it.\n")


def _verify(options: argparse.Namespace) -> int:
    from shortlist.audit import AuditReport

    report = AuditReport.load(options.verify)
    wrong = report.verify()
    counts = report.counts()
    proved = len(report) - counts["undecided"]
    if wrong:
        shown = ", ".join(map(str, wrong[:10])) + (", …" if len(wrong) > 10 else "")
        sys.stdout.write(f"{len(wrong)} of {proved} certificates fail: set {shown}.\n")
        return 1
    sys.stdout.write(f"All {proved} certificates hold; {counts['undecided']} sets are undecided and have none.\n")
    sys.stdout.write(f"Digest: {report.digest()}\n")
    return 0


def _print(report: Any, worst: int, target: Path | None) -> None:
    screen = console(wrap=False)
    screen.print(_table(report))
    n, d = report.system.weight.shape
    counts = report.counts()
    ability = "can be the k largest logits" if report.system.mode == "top-k" else "can be output"
    possible = f"{counts['argmaxable']} of {len(report)} sets {ability}"
    screen.print(f"{possible} by this layer of {n} labels × {d} features.")
    if report.survives:
        shares = ", ".join(f"{format_percent(share, decimals=0)} in {name}" for name, share in report.survives.items())
        screen.print(f"Of these, the signs survive rounding of the vector and the layer: {shares}.")
    for index in report.worst(worst):
        screen.print(_describe(report, index), markup=False)
    if target is not None:
        screen.print(f"Report with certificates: {target}", markup=False)


def _table(report: Any) -> Any:
    found = table()
    for name in ("set size", "argmaxable", "unargmaxable", "undecided", "smallest radius"):
        found.add_column(name, justify="right")
    rows = report.table()
    for row in rows[:_MOST_SIZES]:
        smallest = "" if math.isnan(row.smallest_radius) else f"{row.smallest_radius:.3g}"
        found.add_row(str(row.size), *(str(n) if n else "·" for n in row[1:4]), smallest)
    rest = rows[_MOST_SIZES:]
    if rest:
        sums = [sum(row[column] for row in rest) for column in (1, 2, 3)]
        radii = [row.smallest_radius for row in rest if not math.isnan(row.smallest_radius)]
        smallest = f"{min(radii):.3g}" if radii else ""
        found.add_row(f"{rest[0].size}-{rest[-1].size}", *(str(n) if n else "·" for n in sums), smallest)
    return found


def _describe(report: Any, index: int) -> str:
    decision = report.decisions[index]
    labels = ", ".join(report.labels_of(index)) or "the empty set"
    detail = {
        "argmaxable": f"radius {decision.low:.3g}",
        "unargmaxable": f"no input gives it{_because(report, decision.certificate)}",
        "undecided": decision.reason,
    }[decision.verdict]
    return f"set {index}: {decision.verdict}, {detail}: {labels}"


def _because(report: Any, certificate: object) -> str:
    """Name the rows that exclude a set, if there are few."""
    from shortlist.audit import Combination

    if not isinstance(certificate, Combination) or len(certificate.rows) > _MOST_CULPRITS:
        return ""
    names = [report.name_of(row) for row in certificate.rows.tolist() if row < report.system.num_labels]
    return f" (the row of {names[0]} is zero)" if len(names) == 1 else f" (the rows of {', '.join(names)} exclude it)"
