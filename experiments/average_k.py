"""Sets of K labels on average: the average-K loss against cross-entropy and others (tables 5.1, 5.2, figure 5.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.average_k_trial import trial
from experiments.candidates import merged
from experiments.long_tail import SHOTS
from experiments.long_tail_runs import Measured, best_of_all, decided, measured_by_k, told_choices
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, alike, all_of, beats, grows
from shortlist.report.chart import Axis, Chart, Series, candidate_style
from shortlist.report.chart_matplotlib import draw_chart, save_figure
from shortlist.train.comparison import Interval

# The least difference that the text takes for one: noised is "even" above cross-entropy by 0.15 points for K = 10.
WORTH = 0.0015
# It calls 0.12 points (assume negative, table 5.1) a good performance beside cross-entropy, and 0.71 (ROLE) a lag.
SIMILAR = 0.005
# Few-shot figures differ by 2 to 29 points.
SHOT_WORTH = 0.01
_CE, _OURS, _NOISED = "cross_entropy", "average_k", "noised_topk"
_AN, _EPR, _ROLE = "assume_negative", "expected_positive", "role"


def measured(lab: Lab, settings: Mapping[str, Any]) -> Measured:
    """Choose options for ``tuning_k`` by average-K accuracy, then train: for every K where the loss depends on it."""
    candidates, ks = settings["candidates"], list(settings["ks"])

    def asked(name: str, options: Mapping[str, Any], seed: int, k: int, part: str) -> dict[str, Any]:
        fit = merged(settings["fit"], candidates[name].get("fit", {}), options, {"k": k})
        about = {key: settings[key] for key in ("data", "tail", "rows", "scores")}
        measured_ks = [k] if candidates[name].get("per_k") or part == "val" else ks
        return {**about, "ks": measured_ks, "fit": fit, "seed": seed, "part": part}

    return measured_by_k(lab, trial, settings, asked, figure="rows")


def balanced_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 5.1: classes of equal size."""
    found, k, over = measured(lab, settings), settings["tuning_k"], settings["population"]
    claims = [
        Claim(
            f"The average-K loss has the best average-{k} accuracy.",
            "97.35 %; cross-entropy, the next, 96.83 %",
            _best(found, over, k),
        ),
        Claim(
            "Assuming that all other labels are negative does about as well as cross-entropy.",
            "96.71 against 96.83 %",
            alike(found.values(_AN, over, k), found.values(_CE, over, k), names=(f"{_AN}@{k}", _CE), within=SIMILAR),
        ),
        Claim(
            "Expected positives and ROLE lag behind cross-entropy.",
            "95.88 and 96.12 % against 96.83 %",
            all_of([_better(found, _CE, other, over, k) for other in (_EPR, _ROLE)]),
        ),
        Claim(
            "The noised top-K loss is below cross-entropy.",
            "96.32 against 96.83 %",
            _better(found, _CE, _NOISED, over, k),
        ),
    ]
    return Outcome(
        setup=setup_words(settings, found),
        claims=claims,
        tables=[_balanced_table(settings, found, published)],
        tried=told_choices(found.choices),
        values={"runs": _without_histograms(found)},
    )


def tail_study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Table 5.2: a long tail, and K from small to large."""
    found, ks, over = measured(lab, settings), settings["ks"], settings["population"]
    high, low = [k for k in ks if k > min(ks)], min(ks)
    large = [k for k in ks if k >= settings["large_k"]]
    claims = [
        Claim(
            "The average-K loss has a higher average-K accuracy than cross-entropy for every K.",
            "90.34, 93.81, 96.42, 98.23 % against 89.63, 92.64, 95.11, 97.11 % for K = 2, 3, 5, 10",
            all_of([_better(found, _OURS, _CE, over, k) for k in ks]),
        ),
        Claim(
            f"It is the best of all losses for K above {low}, and about as good as the noised loss for K = {low}.",
            "the next are noised with 93.60, 95.75, 97.26 % for K = 3, 5, 10; for K = 2 noised has 90.48 %",
            all_of(
                [
                    *(_best(found, over, k) for k in high),
                    _close(found, _OURS, _NOISED, over, low),
                ]
            ),
        ),
        Claim(
            "On few-shot classes its gain over cross-entropy grows with K, and is large for large K.",
            "−3.3, +2.0, +20.4, +29.2 points for K = 2, 3, 5, 10",
            _few_shot_gain(found, ks, large),
        ),
        Claim(
            "Assume-negative and expected-positive losses are below cross-entropy for every K.",
            "85.41, 90.15, 93.88, 96.86 % and 86.30, 90.49, 93.63, 95.99 %",
            all_of([_better(found, _CE, other, over, k) for other in (_AN, _EPR) for k in ks]),
        ),
        Claim(
            "The noised top-K loss is above cross-entropy for every K.",
            "90.48, 93.60, 95.75, 97.26 % against 89.63, 92.64, 95.11, 97.11 %",
            all_of([_better(found, _NOISED, _CE, over, k) for k in ks]),
        ),
    ]
    save_figure(draw_chart(_gain_chart(found, ks, over)), lab.figures / "gains.png", dpi=110)
    caption = "Average-K accuracy of each loss minus that of cross-entropy; means over seeds."
    return Outcome(
        setup=setup_words(settings, found),
        claims=claims,
        tables=[_tail_table(settings, found, published, k) for k in ks],
        figures=[Figure("gains.png", caption)],
        tried=told_choices(found.choices),
        values={"runs": _without_histograms(found)},
    )


def _best(found: Measured, figure: str, k: int) -> Finding:
    return best_of_all([_better(found, _OURS, other, figure, k) for other in found.rivals(_OURS, figure, k)])


def _better(found: Measured, ours: str, other: str, figure: str, k: int, *, worth: float = WORTH) -> Finding:
    groups = [found.values(name, figure, k) for name in (ours, other)]
    what = figure if figure in SHOTS else "average"
    names = (f"{what}-{k}: {ours}" if what == "average" else f"{what}@{k}: {ours}", other)
    return decided(groups, lambda: beats(groups[0], groups[1], names=names, worth=worth), f"{figure}-shot")


def _close(found: Measured, ours: str, other: str, figure: str, k: int) -> Finding:
    groups = [found.values(name, figure, k) for name in (ours, other)]
    return alike(groups[0], groups[1], names=(f"average-{k}: {ours}", other), within=SIMILAR)


def _few_shot_gain(found: Measured, ks: Sequence[int], large: Sequence[int]) -> Finding:
    groups = [found.values(name, "few", k) for name in (_OURS, _CE) for k in ks]

    def decide() -> Finding:
        pairs = zip(ks, groups[: len(ks)], groups[len(ks) :], strict=True)
        gaps = {float(k): [a - b for a, b in zip(ours, other, strict=True)] for k, ours, other in pairs}
        growth = grows(gaps, name="few-shot gain", along="K =", worth=SHOT_WORTH)
        return all_of([growth, *(_better(found, _OURS, _CE, "few", k, worth=SHOT_WORTH) for k in large)])

    return decided(groups, decide, "few-shot")


def _gain_chart(found: Measured, ks: Sequence[int], over: str) -> Chart:
    series = []
    for place, name in enumerate(name for name in found.found if name != _CE):
        pairs = [(found.values(name, over, k), found.values(_CE, over, k)) for k in ks]
        gains = [Interval.of([a - b for a, b in zip(*pair, strict=True)]) for pair in pairs]
        style, x = candidate_style(place), tuple(map(float, ks))
        low = tuple(100 * (gain.mean - gain.half_width) for gain in gains)
        high = tuple(100 * (gain.mean + gain.half_width) for gain in gains)
        series.append(Series(name, "band", x, low, style, high, in_legend=False))
        means = tuple(100 * gain.mean for gain in gains)
        series.append(Series(name.replace("_", " "), "line", x, means, style, marked=True))
    x, y = Axis("K, labels per set on average", whole=True), Axis("accuracy minus that of cross-entropy, points")
    return Chart("Average-K accuracy against cross-entropy", x, y, tuple(series))


def _balanced_table(settings: Mapping[str, Any], found: Measured, published: Mapping[str, Any]) -> Table:
    k, over = settings["tuning_k"], settings["population"]
    rows = [
        [
            name,
            Interval.of(found.values(name, over, k)),
            Interval.of(found.values(name, f"own_{over}", k)),
            f"{found.found[name][k][0][f'size{k}']:.2f}",
            Interval(published[name][0] / 100, published[name][1] / 100),
        ]
        for name in found.found
    ]
    note = (
        "Scores of its own are sigmoids for losses that ask of each label for itself, softmax for the others. "
        "The size of sets is that on the test rows of the first seed."
    )
    columns = ["loss", f"average-{k} accuracy", "with scores of its own", "labels per set", "text"]
    return Table(f"Average-{k} accuracy, %", columns, rows, percent=True, digits=2, note=note)


def _tail_table(settings: Mapping[str, Any], found: Measured, published: Mapping[str, Any], k: int) -> Table:
    rows = []
    for name in found.found:
        over = settings["population"]
        groups = [found.values(name, figure, k) for figure in (over, *SHOTS, f"own_{over}")]
        text = published.get(name, {}).get(k)
        rows.append(
            [
                name,
                *(Interval.of(values) if values else None for values in groups),
                Interval(text[0] / 100, text[1] / 100) if text else None,
                " / ".join(f"{value:.2f}" for value in text[2:]) if text else None,
            ]
        )
    columns = ["loss", "all", *SHOTS, "all, with scores of its own", "text: all", "text: few / medium / many"]
    return Table(f"Average-{k} accuracy, %", columns, rows, percent=True, digits=2)


def _without_histograms(found: Measured) -> dict[str, Any]:
    def kept(run: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in run.items() if not key.startswith("histogram")}

    return {name: {k: [kept(run) for run in runs] for k, runs in by_k.items()} for name, by_k in found.found.items()}


def setup_words(settings: Mapping[str, Any], found: Measured) -> str:
    """Data, model, budget and choice of options in a paragraph."""
    data, tail, fit = settings["data"], settings["tail"], settings["fit"]
    words = [f"Data {data.get('loader', data.get('open'))}"]
    if tail:
        run = next(iter(found.found.values()))[settings["ks"][0]][0]
        classes = ", ".join(f"{run[shot]} {shot}-shot" for shot in SHOTS)
        words.append(
            f", training and validation rows thinned to a tail of imbalance {tail['imbalance']:g} whose order is drawn "
            f"with the seed (first seed: {classes} classes)"
        )
    words.append(
        f". Encoder {fit['encoder']}, {fit['epochs']} epochs of {fit['optimizer']}, batches of {fit['batch_size']}; "
        f"{len(settings['seeds'])} seeds. Thresholds come from validation scores"
        f"{', the softmax of logits for all losses, as in the text. ' if settings['scores'] == 'softmax' else '. '}"
    )
    points = len(next(iter(found.choices.values())).tried)
    figure = f"average-{settings['tuning_k']} accuracy"
    words.append(
        f"Each loss had a grid of {points} points, chosen by {figure} on validation rows."
        if points
        else "Options are those of the text."
    )
    if settings["population"] == "training":
        words.append(
            " All test rows are measured; accuracy over all, as on test rows with the tail of training, is the mean "
            "over classes weighted by their training rows."
        )
    return "".join(words)
