"""``shortlist calibrate``: fit a set rule to held-out scores and a constraint, or calibrate a model's probabilities."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from shortlist.cli.console import console, name_value_grid, print_json, text
from shortlist.cli.evaluate import set_lines
from shortlist.cli.options import (
    add_json_option,
    add_labelled_score_options,
    add_parser,
    add_row_options,
    given_row_options,
    is_model,
    open_labelled_scores,
    open_model_scores,
    open_score_file,
    refuse_file_options,
    whole_number,
)
from shortlist.errors import InputError
from shortlist.files import check_output, writing
from shortlist.formatting import format_count, format_percent

_EXAMPLES = """\
examples:
  shortlist calibrate val.npy --logits --rule average-k --k 3 --output rule.json
  shortlist calibrate val.npy val_labels.txt --logits --rule average-error --alpha 0.1 --output rule.json
  shortlist calibrate val.csv labels.txt --probabilities --id image --rule class-conditional --alpha 0.05
  shortlist calibrate val.npz val.npz --key logits --labels-key y --logits --rule recall-control --alpha 0.2
  shortlist calibrate val.npy sets.json --logits --rule risk-control --risk precision --alpha 0.2 --delta 0.1
  shortlist calibrate val.npy sets.json --logits --rule per-label --objective f1 --output rule.json
  shortlist calibrate val.npy labels.txt --logits --rule label-shift --alpha 0.1 --new monday.npy
  shortlist calibrate plants-model --data plants.csv --rule average-error --alpha 0.1
  shortlist calibrate plants-model --data plants.csv --rule deepest-node --alpha 0.05 --taxonomy genera.csv
  shortlist calibrate plants-model --data more.csv --recalibrate temperature

SCORES may be a model saved by `shortlist fit`; then --data names inputs and labels. On the data that it was trained on,
the validation rows are used. The rule is put into the model's folder: `shortlist predict` answers with it from now on,
and with former ones by --rule NAME. With --output it is written there instead.

rules (`shortlist rules` says what each guarantees):
  top-k              exactly --k labels
  average-k          --k labels on average, more for hard rows
  average-error      the true label is missing at most at rate --alpha, with the smallest sets
  pointwise-error    the same, with adaptive sets, so that errors do not concentrate on hard rows
  class-conditional  the same, separately for each class
  rank-calibrated    the same for each class, without labels of low rank
  group-conditional  the same, separately for each of --groups of rows
  covariate-shift    average-error for rows of another kind, by the --weights of the calibration rows
  label-shift        average-error for classes of another frequency, new over old: --ratios, or by scores of --new rows
  adaptive-conformal, online-conformal, online-average-k
                     an error of --alpha, or --k labels, along a stream that `shortlist update` follows
  selective          at most --max-error of the answers given are wrong; no answer to rows in doubt
  none-of-these      rejects rows that look like no label, and at most --alpha of the others
  deepest-node       a label, or the most specific node of --taxonomy that is right but for a fraction --alpha
  cheapest-cover     the sets of average-error, covered by few nodes of --taxonomy
  recall-control     at most a fraction --alpha of a row's true labels is missing on average
  risk-control       one minus the --risk recall, precision or f1, or the size, is at most --alpha on average; with
                     --delta, which precision and f1 need, in all but that share of calibrations
  per-label          one threshold per label, for the best --objective f1 or for --objective average-size with --k
  expected-utility   the set of greatest expected --utility u65, u80 or f1, if one label is true
  expected-f         the set of greatest expected F-score, of weight --beta (default 1), if labels are independent

--recalibrate fits the model's probabilities to the labels instead: temperature (one number), vector (a slope and a bias
per label), isotonic (any increasing curve) or beta (three numbers). From now on the model's scores are calibrated
wherever they are used, ONNX included, and its rules are removed: fit them again, on other rows for a guarantee.

top-k, average-k and the last two do not need LABELS; with them, the error is reported, too. Use scores of rows that the
model was not trained on. per-label keeps all scores in memory; the other rules read them in blocks.
exit code: 0, 2 on errors, or 130 if interrupted.
"""
_RULES = (
    "top-k",
    "average-k",
    "average-error",
    "pointwise-error",
    "class-conditional",
    "rank-calibrated",
    "group-conditional",
    "covariate-shift",
    "label-shift",
    "adaptive-conformal",
    "online-conformal",
    "online-average-k",
    "selective",
    "none-of-these",
    "deepest-node",
    "cheapest-cover",
    "recall-control",
    "risk-control",
    "per-label",
    "expected-utility",
    "expected-f",
)
_OPTIONS = (
    "k",
    "alpha",
    "risk",
    "delta",
    "utility",
    "beta",
    "objective",
    "prior",
    "clusters",
    "min_count",
    "penalty",
    "free",
    "randomized",
    "taxonomy",
    "name_cost",
    "rank_share",
    "ratios",
    "new",
    "step",
    "decay",
    "max_error",
    "confidence",
    "familiarity",
    "inner",
)
_CALIBRATORS = ("temperature", "vector", "isotonic", "beta")


def add_command(commands: Any) -> None:
    """Add the command to the parser."""
    parser = add_parser(
        commands,
        "calibrate",
        run,
        help="fit a set rule to held-out scores and a constraint",
        about="Find the thresholds that give sets of labels the requested size or error.",
        epilog=_EXAMPLES,
    )
    add_labelled_score_options(parser, part="val")
    parser.add_argument("--rule", type=_rule_name, choices=_RULES, metavar="RULE", help=", ".join(_RULES))
    parser.add_argument(
        "--recalibrate",
        choices=_CALIBRATORS,
        metavar="KIND",
        help=f"instead of --rule, with a model: {', '.join(_CALIBRATORS)}",
    )
    parser.add_argument(
        "--per-label", action="store_true", help="for isotonic and beta: a curve for each label with enough positives"
    )
    parser.add_argument("--k", metavar="K", type=float, help="number of labels, in every set or on average")
    parser.add_argument("--alpha", metavar="FRACTION", type=float, help="error rate, between 0 and 1")
    parser.add_argument("--risk", choices=("recall", "precision", "f1", "size"), help="for risk-control")
    parser.add_argument(
        "--delta", metavar="FRACTION", type=float, help="for risk-control and selective: how often it may fail"
    )
    parser.add_argument("--utility", choices=("u65", "u80", "f1"), help="for expected-utility")
    parser.add_argument("--beta", metavar="B", type=float, help="for expected-f: weight of recall (default 1)")
    parser.add_argument("--objective", choices=("f1", "average-size"), help="for per-label (default f1)")
    parser.add_argument(
        "--prior", metavar="N", type=float, help="for per-label: weight of the pooled labels, in examples"
    )
    parser.add_argument(
        "--clusters", metavar="N", type=int, help="for class-conditional: number of groups of similar classes"
    )
    parser.add_argument(
        "--min-count", metavar="N", type=int, help="for class-conditional: examples a class needs for its own threshold"
    )
    parser.add_argument(
        "--rank-share", metavar="FRACTION", type=float, help="for rank-calibrated: the share of alpha for ranks"
    )
    add_row_options(parser)
    parser.add_argument(
        "--ratios", metavar="FILE", help="for label-shift: new over old frequency of each label, one per line"
    )
    parser.add_argument(
        "--new", metavar="FILE", help="for label-shift: scores (with a model, data) of new rows, which tell the ratios"
    )
    parser.add_argument("--step", metavar="S", type=float, help="for online rules: how fast they follow the stream")
    parser.add_argument("--decay", metavar="D", type=float, help="for online rules: how fast steps shrink, below 1")
    parser.add_argument(
        "--max-error", metavar="FRACTION", type=float, help="for selective: how many of the answers given may be wrong"
    )
    parser.add_argument("--confidence", choices=("best", "margin"), help="for selective (default best)")
    parser.add_argument(
        "--familiarity", choices=("energy", "max-logit"), help="for none-of-these: its score (default energy)"
    )
    parser.add_argument(
        "--inner", metavar="RULE", help="for selective and none-of-these: the rule that answers (default: best label)"
    )
    parser.add_argument(
        "--penalty", metavar="P", type=float, help="for pointwise-error: penalty per label beyond --free"
    )
    parser.add_argument("--free", metavar="N", type=int, help="for pointwise-error: number of labels without penalty")
    parser.add_argument(
        "--deterministic",
        dest="randomized",
        action="store_const",
        const=False,
        help="for pointwise-error: deterministic, larger sets",
    )
    parser.add_argument(
        "--taxonomy", metavar="FILE", help="for deepest-node and cheapest-cover: CSV of children and parents, by name"
    )
    parser.add_argument(
        "--name-cost", metavar="C", type=float, help="for cheapest-cover: what a name costs, in labels (default 1)"
    )
    parser.add_argument(
        "--link", choices=("softmax", "sigmoid"), help="how logits become probabilities (default: depends on the rule)"
    )
    parser.add_argument(
        "--min-size", metavar="N", type=whole_number(at_least=0), default=0, help="every set contains the N best labels"
    )
    parser.add_argument("--output", "-o", metavar="FILE", help="where to save the rule, as JSON")
    add_json_option(parser)


def flag(name: str) -> str:
    """The flag of an option of a rule."""
    return "--deterministic" if name == "randomized" else f"--{name.replace('_', '-')}"


def _rule_name(name: str) -> str:
    return name.replace("_", "-")


def run(options: argparse.Namespace) -> int:
    """Fit a rule, report what it achieves, and save it."""
    if options.recalibrate is not None:
        return _recalibrate(options)
    if options.rule is None:
        raise InputError("--rule must name a rule, or --recalibrate a kind of calibration.")
    if options.per_label:
        raise InputError("--per-label is for --recalibrate; the rule of that name is --rule per-label.")
    from shortlist.predict import RULES, calibrate, evaluate_sets, make_rule
    from shortlist.predict.calibration import calibration_warnings

    kind = RULES[options.rule]
    given = _given(options, kind)
    from shortlist.predict.row_values import check_row_values

    check_row_values(kind.rule, given_row_options(options), name=options.rule)
    if options.output is not None:
        read = (options.scores, options.labels, options.names, options.data, options.taxonomy, options.inner)
        check_output(options.output, *read, options.groups, options.weights, options.ratios, options.new)
    model, needs_labels = is_model(options), kind.rule.needs_labels
    if needs_labels and not model and options.labels is None:
        raise InputError(f"--rule {options.rule} is fitted on true labels: LABELS must be given.")
    found = open_labelled_scores(options, one_class=kind.one_class, required=needs_labels)
    scores, target = found.scores, found.target
    new = given.pop("new", None)
    if options.rule == "label-shift":
        if (new is None) == (options.ratios is None):
            raise InputError("--rule label-shift needs either --ratios or --new.")
        given["ratios"] = options.ratios if new is None else _ratios(options, scores, target)
    rule = make_rule(options.rule, scores, link=options.link or found.link, min_size=options.min_size, **given)
    calibrate(scores, rule, target, progress=True)
    metrics = evaluate_sets(scores, rule, target, progress=True)
    if options.output is not None:
        with writing(options.output):
            rule.save(options.output)
    elif model:
        from shortlist.predict import save_rule

        with writing(options.scores):
            options.output = str(save_rule(options.scores, rule))
    guarantee, notes = kind.guarantee.format(**rule.options()), calibration_warnings(rule)
    if new is not None:
        notes.append(f"ratios from {min(given['ratios']):.3g} to {max(given['ratios']):.3g}, estimated from {new}")
    if options.json:
        print_json(_content(options, rule, guarantee, notes, metrics))
    else:
        _print(options, rule, guarantee, notes, metrics)
    return 0


def _recalibrate(options: argparse.Namespace) -> int:
    """Calibrate the probabilities of a model, and report the likelihood before and after."""
    for name in ("rule", "output", *_OPTIONS):
        if getattr(options, name) is not None:
            raise InputError(
                f"{flag(name)} does not apply to --recalibrate; rules are fitted afterwards, by another command."
            )
    if not is_model(options):
        raise InputError(f"--recalibrate is for models, but `{options.scores}` is not a folder with a model.")
    if options.per_label and options.recalibrate not in ("isotonic", "beta"):
        raise InputError(f"--per-label is for isotonic and beta, not for {options.recalibrate}.")
    refuse_file_options(options)
    from shortlist.predict import CALIBRATORS, fit_calibrator, save_calibrator

    found = open_model_scores(options, labelled=True, unseen="drop", calibrated=False)
    given = {"per_label": True} if options.per_label else {}
    calibrator: Any = CALIBRATORS[options.recalibrate]
    calibrator = fit_calibrator(
        found.scores, calibrator(link=options.link or found.link, **given), found.target, progress=True
    )
    with writing(options.scores):
        output = str(save_calibrator(options.scores, calibrator))
    evidence = calibrator.evidence
    if options.json:
        print_json(
            {"calibration": options.recalibrate, "link": calibrator.link, "evidence": evidence, "output": output}
        )
        return 0
    rows, labels = format_count(evidence["rows"], "row"), format_count(evidence["labels"], "label")
    console().print(text(f"{options.recalibrate} on {rows} of {labels}", "bold green"))
    likelihood = f"{evidence['nll_before']:.4g} before, {evidence['nll_after']:.4g} after, on these rows"
    console().print(name_value_grid([("negative log likelihood", text(likelihood))]))
    sys.stdout.write(f"Calibration: {output}\nRules of the model were removed; fit them again.\n")
    return 0


def _ratios(options: argparse.Namespace, scores: Any, target: Any) -> list[float]:
    """The ratios of classes that the scores of --new tell."""
    from shortlist.predict import estimate_ratios

    rows = {"groups": None, "weights": None, "allowed": None, "part": None}
    if is_model(options):
        new = open_model_scores(argparse.Namespace(**{**vars(options), **rows, "data": options.new}), labelled=False)
        return estimate_ratios(scores, target, new.scores)
    new = open_score_file(argparse.Namespace(**{**vars(options), **rows, "scores": options.new}))
    return estimate_ratios(scores, target, new)


def _given(options: argparse.Namespace, kind: Any) -> dict[str, Any]:
    """Return the options of the rule that were given."""
    given = {name: getattr(options, name) for name in _OPTIONS if getattr(options, name) is not None}
    for name in kind.required:
        if name not in given:
            raise InputError(f"--rule {options.rule} needs {flag(name)}.")
    for name in given:
        if name not in (*kind.required, *kind.optional):
            taken = ", ".join(map(flag, (*kind.required, *kind.optional)))
            raise InputError(f"{flag(name)} does not apply to --rule {options.rule}, which takes {taken}.")
    if options.link is not None and options.probabilities:
        raise InputError(
            "--link turns logits into probabilities, but --probabilities means that SCORES has them already."
        )
    return given


def _content(options: argparse.Namespace, rule: Any, guarantee: str, notes: list[str], metrics: Any) -> dict[str, Any]:
    from shortlist.predict.evaluation import json_number

    evidence = {
        name: json_number(value) if isinstance(value, float) else value for name, value in rule.evidence.items()
    }
    chosen = {**rule.options(), **({} if options.taxonomy is None else {"taxonomy": options.taxonomy})}
    return {
        "rule": options.rule,
        "options": {**chosen, "link": rule.link if rule.from_logits else None, "min_size": rule.min_size},
        "scores": "logits" if rule.from_logits else "probabilities",
        "evidence": evidence,
        "promise": guarantee,
        "warnings": notes,
        "sets": metrics.to_json(),
        "output": options.output,
    }


def _print(options: argparse.Namespace, rule: Any, guarantee: str, notes: list[str], metrics: Any) -> None:
    screen, evidence = console(), rule.evidence
    rows, labels = format_count(evidence["rows"], "row"), format_count(evidence["labels"], "label")
    screen.print(text(f"{options.rule} on {rows} of {labels}", "bold green"))
    lines = [("aim", _aim(options.rule, rule)), *set_lines(metrics), ("guarantee", guarantee)]
    found = [(name, text(line)) for name, line in lines]
    screen.print(name_value_grid([*found, *(("note", text(note, "yellow")) for note in notes)]))
    where = f"Rule: {options.output}" if options.output else "The rule was not saved; use --output FILE to save it."
    sys.stdout.write(f"{where}\n")


def _aim(name: str, rule: Any) -> str:
    """Return the requested and the achieved value, in labels or percent."""
    constraint = rule.evidence["constraint"]
    if rule.evidence["wanted"] is None:
        return constraint
    wanted, achieved = (
        f"{rule.evidence[key]:.4g}" if "size" in constraint else format_percent(rule.evidence[key])
        for key in ("wanted", "achieved")
    )
    if name == "per-label" and rule.objective == "f1":
        return f"{constraint}: {achieved} on these rows"
    worst = {"error of each class": "in the worst class of these rows", "error of each group": "in the worst group"}
    where = worst.get(constraint, "on these rows")
    return f"{constraint}: {wanted} wanted, {achieved} {where}"
