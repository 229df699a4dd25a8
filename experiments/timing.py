"""Time of the losses by k and number of labels, as ratios within one process (LML, figure 3; sets, figure 4.3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.published_losses import (
    bracketing_lml_nll,
    dense_noised_topk,
    log_space_smooth_svm,
    sorted_truncated_entropy,
)
from experiments.presentation import saved
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, all_of, at_least, at_most
from shortlist.evidence.verdicts import HOLDS, OPEN
from shortlist.functional import bce, cross_entropy, lml_nll, noised_topk, smooth_topk_svm, truncated_topk_entropy
from shortlist.report.chart import OPTIMUM, Axis, Chart, Series, candidate_style
from shortlist.train.comparison import Interval
from shortlist.train.model.encoders import DenseNet

Loss = Callable[[Tensor, Tensor], Tensor]
CONSTANT = 1.5  # Of a loss alone: far below the growth that the paper calls expensive, above the noise of timings.
EXPENSIVE = 2.0
CONSTANT_EPOCH = 1.1  # The paper calls 68 s at K = 5 and 60 s at K = 10 constant.
GROWING_EPOCH = 1.05  # Half of the paper's growth for the smooth SVM, 81 s at K = 5 and 90 s at K = 10.
FEW_PERCENT = 1.1  # The paper found 4.6% for the noised loss and 24.6% for the smooth SVM.
_PLAIN = ", plain"
YARDSTICK = "cross-entropy"


def losses(k: int) -> dict[str, Loss]:
    """All timed losses for sets of k labels; "plain" ones are written like the research code."""
    return {
        YARDSTICK: cross_entropy,
        "sigmoid": bce,
        "LML": lambda x, y: lml_nll(x, y, k),
        "LML, plain": lambda x, y: bracketing_lml_nll(x, y, k),
        "smooth SVM": lambda x, y: smooth_topk_svm(x, y, k),
        "smooth SVM, plain": lambda x, y: log_space_smooth_svm(x, y, k),
        "truncated entropy": lambda x, y: truncated_topk_entropy(x, y, k),
        "truncated entropy, plain": lambda x, y: sorted_truncated_entropy(x, y, k),
        **{
            f"noised, M = {samples}": lambda x, y, m=samples: noised_topk(x, y, k, epsilon=0.2, samples=m)
            for samples in (3, 10)
        },
        "noised, M = 3, plain": lambda x, y: dense_noised_topk(x, y, k, samples=3),
    }


def loss_times(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Median milliseconds of each loss at each shape, forward only and with the gradient.

    Args:
        settings: ``rows``; ``shapes``, pairs of labels and k; ``losses``, names; ``turns``, the timings per shape;
            ``seed`` of the logits and of the order of the shapes, so that repetitions differ.
        root: unused.

    Returns:
        ``forward`` and ``both``: by loss, one number per shape.
    """
    device = _device()
    generator = torch.Generator().manual_seed(settings["seed"])
    shapes, names = settings["shapes"], settings["losses"]
    found = {kind: {name: [0.0] * len(shapes) for name in names} for kind in ("forward", "both")}
    for at in torch.randperm(len(shapes), generator=generator).tolist():
        labels, k = shapes[at]
        x = torch.randn(settings["rows"], labels, generator=generator).to(device).requires_grad_()
        y = torch.randint(labels, (settings["rows"],), generator=generator).to(device)
        every = losses(k)
        times = _turns({name: every[name] for name in names}, x, y, settings["turns"])
        for name, (forward, both) in times.items():
            found["forward"][name][at] = round(1000 * median(forward), 5)
            found["both"][name][at] = round(1000 * median(both), 5)
    return found


def _turns(every: Mapping[str, Loss], x: Tensor, y: Tensor, turns: int) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of each loss, forward and with the gradient; the losses take turns, so that drift affects all equally."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in every}
    for turn in range(-1, turns):
        for name, loss in every.items():
            x.grad = None
            begin = _now(x.device)
            value = loss(x, y)
            middle = _now(x.device)
            value.backward()
            end = _now(x.device)
            if turn >= 0:  # The first turn is a warm-up.
                times[name][0].append(middle - begin)
                times[name][1].append(end - begin)
    return times


def epoch_times(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Seconds per epoch with each loss and K, on random images and labels.

    The losses take turns at each step; an epoch is its number of steps times the median time.

    Args:
        settings: ``network``, ``{depth, growth}`` of a DenseNet or ``{width}`` of one hidden layer; ``rows``,
            ``batch_size``, ``labels``; ``ks``; ``losses``, names; ``seed``.
        root: unused.

    Returns:
        By loss, one number per K.
    """
    device = _device()
    torch.manual_seed(settings["seed"])
    model = _network(settings["network"], settings["labels"]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, nesterov=True)
    images = torch.randint(256, (settings["rows"], 3, 32, 32), dtype=torch.uint8).to(device)
    labels = torch.randint(settings["labels"], (settings["rows"],)).to(device)
    batches = list(zip(images.split(settings["batch_size"]), labels.split(settings["batch_size"]), strict=True))

    def seconds(loss: Loss, x: Tensor, y: Tensor) -> float:
        begin = _now(device)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        return _now(device) - begin

    names, ks = settings["losses"], settings["ks"]
    found = {name: [0.0] * len(ks) for name in names}
    for at in torch.randperm(len(ks)).tolist():
        every = losses(ks[at])
        for name in names:  # The first step is a warm-up.
            seconds(every[name], *batches[0])
        steps = [[seconds(every[name], x, y) for name in names] for x, y in batches]
        for name, values in zip(names, zip(*steps, strict=True), strict=True):
            found[name][at] = round(len(batches) * median(values), 6)
    return found


class _Pixels(nn.Module):
    """Bytes of an image as one vector in [0, 1]."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).float() / 255


def _network(options: Mapping[str, int], labels: int) -> nn.Module:
    if "width" in options:
        width = options["width"]
        return nn.Sequential(_Pixels(), nn.Linear(3 * 32 * 32, width), nn.ReLU(), nn.Linear(width, labels))
    encoder = DenseNet(**options)
    return nn.Sequential(encoder, nn.Linear(encoder.out_features, labels))


def _device() -> torch.device:
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def _now(device: torch.device) -> float:
    """The time in seconds, after all queued work of the device is done."""
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter()


def time_by_k(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """LML, figure 3: time of each loss by k and by the number of labels."""
    shapes = [[settings["labels"], k] for k in settings["ks"]]
    shapes += [[n, settings["k"]] for n in settings["sizes"] if [n, settings["k"]] not in shapes]
    lab.plan(len(settings["seeds"]))
    asked = {"rows": settings["rows"], "shapes": shapes, "losses": settings["losses"], "turns": settings["turns"]}
    found = lab.trials(loss_times, [{**asked, "seed": seed} for seed in settings["seeds"]], alone=True)
    times = {kind: _by_shape(found, kind, shapes) for kind in ("forward", "both")}
    low, high = ((settings["labels"], k) for k in (settings["k"], max(settings["ks"])))
    claims = [
        *_growth_claims(times, low, high, _PLAIN, published),
        *_growth_claims(times, low, high, "", published),
    ]
    n, usual = settings["labels"], settings["k"]
    by_k, by_size = [(n, k) for k in settings["ks"]], [(size, usual) for size in settings["sizes"]]
    tables = [
        _table(f"Forward, {n:,} labels: time relative to cross-entropy", times["forward"], by_k, "k = {k}"),
        _table(f"Forward and backward, {n:,} labels: time relative to cross-entropy", times["both"], by_k, "k = {k}"),
        _table(
            f"Forward and backward, k = {usual}: time relative to cross-entropy",
            times["both"],
            by_size,
            "{labels} labels",
        ),
    ]
    figures = [
        _drawn(lab, "against-k.png", times["forward"], low[0], "k, forward"),
        _drawn(lab, "against-k-with-gradient.png", times["both"], low[0], "k, forward and backward"),
    ]
    return Outcome(
        f"Normal logits of {settings['rows']} rows, one true class each; median of {settings['turns']} "
        f"turns, {len(settings['seeds'])} repetitions. {_WORDS} General convex solvers are not included.",
        claims,
        tables,
        figures,
        values={kind: {name: _listed(shape) for name, shape in every.items()} for kind, every in times.items()},
    )


_WORDS = (
    'Losses called "plain" are our own short versions in the style of the research code; the others are those of the '
    "library. All take turns in one process, and ratios are taken within a repetition."
)

Times = Mapping[str, Mapping[tuple[int, int], list[float]]]


def _growth_claims(
    times: Mapping[str, Times], low: tuple[int, int], high: tuple[int, int], ending: str, published: Mapping[str, Any]
) -> list[Claim]:
    """The three claims of figure 3, for one set of implementations."""
    forward, both = times["forward"], times["both"]
    whose = "plain implementations" if ending else "the implementations of the library"
    svm, lml, entropy = (f"{name}{ending}" for name in ("smooth SVM", "LML", "truncated entropy"))
    span = f"time at k = {high[1]} / k = {low[1]}"
    grown = {name: ratios(forward[name][high], forward[name][low]) for name in (svm, lml, entropy)}
    faster = [
        at_least(ratios(both[name][at], both[entropy][at]), 1.0, name=f"k = {at[1]}: {name} / {entropy}", unit="")
        for name in (lml, svm)
        for at in (low, high)
    ]
    return [
        Claim(
            f"With {whose}, the forward pass of the smooth SVM becomes expensive as k grows.",
            published["smooth SVM"],
            at_least(grown[svm], EXPENSIVE, name=f"{svm}: {span}", unit=""),
            ours=not ending,
        ),
        Claim(
            f"With {whose}, the time of LML and of the truncated entropy does not depend on k.",
            published["constant"],
            all_of([at_most(grown[name], CONSTANT, name=f"{name}: {span}", unit="") for name in (lml, entropy)]),
            ours=not ending,
        ),
        Claim(
            f"With {whose}, the truncated entropy is faster than LML and the smooth SVM.",
            published["truncated entropy"],
            all_of(faster),
            ours=not ending,
        ),
    ]


def epoch_by_k(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Sets, figure 4.3: time of an epoch by K, and of the loss alone."""
    lab.plan(2 * len(settings["seeds"]))
    ks, names, labels = settings["ks"], settings["losses"], settings["labels"]
    fit = {key: settings[key] for key in ("network", "rows", "batch_size", "labels", "ks", "losses")}
    shapes = [[labels, k] for k in ks]
    alone = {"rows": settings["batch_size"], "shapes": shapes, "losses": names, "turns": settings["turns"]}
    epochs = lab.trials(epoch_times, [{**fit, "seed": seed} for seed in settings["seeds"]], alone=True)
    steps = lab.trials(loss_times, [{**alone, "seed": seed} for seed in settings["seeds"]], alone=True)
    epoch = _by_shape([{"epoch": each} for each in epochs], "epoch", shapes)
    step = _by_shape(steps, "both", shapes)
    by_k = [(labels, k) for k in ks]
    tables = [
        _table("An epoch: time relative to cross-entropy", epoch, by_k, "K = {k}"),
        _table("The loss and its gradient alone: time relative to cross-entropy", step, by_k, "K = {k}"),
    ]
    figures = [
        _drawn(lab, "epoch.png", epoch, labels, "K, an epoch"),
        _drawn(lab, "loss-alone.png", step, labels, "K, the loss and its gradient"),
    ]
    return Outcome(
        f"{settings['rows']} random images of the shape of CIFAR-100, {labels} classes, batches of "
        f"{settings['batch_size']}, network {_network_words(settings['network'])}, SGD; {len(settings['seeds'])} "
        f"repetitions. {_WORDS}",
        _epoch_claims(settings, epoch, published),
        tables,
        figures,
        values={"epoch": {k: _listed(v) for k, v in epoch.items()}, "loss": {k: _listed(v) for k, v in step.items()}},
    )


def _epoch_claims(settings: Mapping[str, Any], epoch: Times, published: Mapping[str, Any]) -> list[Claim]:
    first, usual, last = ((settings["labels"], k) for k in settings["published_ks"])
    svm, noised = "smooth SVM", "noised, M = 3"

    def grown(name: str, since: tuple[int, int]) -> list[float]:
        """The growth relative to cross-entropy, which does not depend on K: this cancels drift."""
        late, early = (ratios(epoch[name][at], epoch[YARDSTICK][at]) for at in (last, since))
        return ratios(late, early)

    def words(name: str, since: tuple[int, int]) -> str:
        return f"{name}: epoch at K = {last[1]} / K = {since[1]}"

    cost = at_most(
        ratios(epoch[noised][usual], epoch[YARDSTICK][usual]), FEW_PERCENT, name=f"{noised} / {YARDSTICK}", unit=""
    )
    return [
        Claim(
            "The smooth SVM makes an epoch longer as K grows (plain implementation).",
            published["smooth SVM"],
            at_least(grown(svm + _PLAIN, usual), GROWING_EPOCH, name=words(svm + _PLAIN, usual), unit=""),
        ),
        Claim(
            "The smooth SVM makes an epoch longer as K grows (product tree of the library).",
            published["smooth SVM"],
            at_least(grown(svm, usual), GROWING_EPOCH, name=words(svm, usual), unit=""),
            ours=True,
        ),
        Claim(
            "The time of an epoch with the noised loss does not grow with K (plain and ours).",
            published["noised"],
            all_of(
                [
                    at_most(grown(name, first), CONSTANT_EPOCH, name=words(name, first), unit="")
                    for name in (noised, noised + _PLAIN)
                ]
            ),
        ),
        Claim(
            "At K = 5, an epoch with the noised loss of M = 3 is shorter than one with the smooth SVM (plain).",
            published["usual"],
            at_least(
                ratios(epoch[svm + _PLAIN][usual], epoch[noised + _PLAIN][usual]),
                1.0,
                name=f"{svm + _PLAIN} / {noised + _PLAIN}",
                unit="",
            ),
        ),
        Claim(
            "At K = 5, the noised loss of M = 3 makes an epoch longer by a few percent only.",
            published["usual"],
            bounded(cost, small_network="width" in settings["network"]),
        ),
    ]


def bounded(finding: Finding, *, small_network: bool) -> Finding:
    """With a cheap network, the share of an epoch's time is an upper bound: too large a share decides nothing.

    Example:
        >>> bounded(Finding("does not hold", "a by b = 1.3"), small_network=True).verdict
        'not decidable'
    """
    if not small_network or finding.verdict == HOLDS:
        return finding
    return Finding(
        OPEN, f"{finding.why}; the network is far cheaper than a DenseNet 40-40, which makes the share larger"
    )


def ratios(ours: Sequence[float], other: Sequence[float]) -> list[float]:
    """Ratios, paired by repetition.

    Example:
        >>> ratios([2.0, 3.0], [1.0, 2.0])
        [2.0, 1.5]
    """
    return [a / b for a, b in zip(ours, other, strict=True)]


def _by_shape(found: Sequence[Mapping[str, Any]], kind: str, shapes: Sequence[Sequence[int]]) -> Times:
    """By loss and shape, one time per repetition."""
    return {
        name: {(n, k): [each[kind][name][at] for each in found] for at, (n, k) in enumerate(shapes)}
        for name in found[0][kind]
    }


def _table(title: str, times: Times, shapes: Sequence[tuple[int, int]], heading: str) -> Table:
    """Ratios to cross-entropy, a column per shape; ``heading`` takes ``{k}`` and ``{labels}``."""
    columns = ["loss", *(heading.format(labels=f"{n:,}", k=k) for n, k in shapes)]
    rows = [
        [name, *(Interval.of(ratios(found[at], times[YARDSTICK][at])) for at in shapes)]
        for name, found in times.items()
        if name != YARDSTICK
    ]
    return Table(title, columns, rows, digits=2, note="Means with 95% intervals over repetitions.")


def _drawn(lab: Lab, file: str, times: Times, labels: int, what: str) -> Figure:
    series = []
    for index, (name, shapes) in enumerate(times.items()):
        at = sorted(shape for shape in shapes if shape[0] == labels)
        if name == YARDSTICK:
            ends = (float(at[0][1]), float(at[-1][1]))
            series.append(Series(name, "line", ends, (1.0, 1.0), OPTIMUM))
            continue
        found = [ratios(shapes[shape], times[YARDSTICK][shape]) for shape in at]
        x = tuple(float(k) for _, k in at)
        style = candidate_style(index - 1)
        series.append(Series(name, "line", x, tuple(median(each) for each in found), style, marked=True))
        low, high = (tuple(edge(each) for each in found) for edge in (min, max))
        series.append(Series(name, "band", x, low, style, high=high, in_legend=False))
    along, _, which = what.partition(", ")
    chart = Chart(
        f"Time by {along}: {which}, {labels:,} labels",
        Axis(f"{along}, labels per answer", scale="log", whole=True),
        Axis("time relative to cross-entropy", scale="log"),
        tuple(series),
        note="Medians of the repetitions; bands span them.",
    )
    caption = f"Time by {along} ({which}) relative to cross-entropy; both axes are logarithmic."
    return saved(chart, lab, file, caption)


def _listed(shapes: Mapping[tuple[int, int], list[float]]) -> dict[str, list[float]]:
    return {f"{n} labels, k = {k}": values for (n, k), values in shapes.items()}


def _network_words(options: Mapping[str, int]) -> str:
    if "width" in options:
        return f"with one hidden layer of {options['width']} units"
    return f"DenseNet {options['depth']}-{options['growth']}"
