"""Level sets of top-K losses of three classes, and properties of these losses (sets, figures 4.1 and 4.4-4.6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.lml_pictures import simplex_mesh
from experiments.presentation import DPI, checked, power, worded
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, alike, all_of
from shortlist.evidence.verdicts import FAILS, HOLDS, OPEN
from shortlist.extras import require
from shortlist.functional import (
    cross_entropy,
    focal,
    kth_largest,
    ldam,
    noised_kth_largest,
    noised_topk,
    smooth_topk_svm,
    topk_hinge,
)
from shortlist.report.chart import INK, candidate_style
from shortlist.report.chart_matplotlib import PALE, new_figure, save_figure
from shortlist.train.comparison import Interval

TRUE = 2
"""The true class: the upper corner."""
ROUNDING = 1e-9
JUDGED = ("cross-entropy", "calibrated hinge", "hinge", "convex hinge")
"""Losses whose calibration is checked: those whose possible minimizers are known."""
SAME = 0.05
"""Means this close, in units of ε, are the same: the smoothing shifts the threshold by about 0.85."""
WITHIN = 0.05
"""Tolerance of a measured exponent: a tenth of the smallest difference between two such laws."""
_PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])
_LEVELS = np.linspace(0, 1, 11)
_NUDGE = 1e-6  # rounding would tear a plateau exactly at a level, or leave it white at the last one
_WIDTH, _HEIGHT = 1.95, 2.0


def draw_triangles(
    rows: Sequence[Sequence[Tensor]], titles: Sequence[str], *, names: Sequence[str] = (), lines: bool = True
) -> Any:
    """Level sets of functions on the triangle, each scaled to [0, 1].

    Args:
        rows: by row and column of the picture, values at the points of `simplex_mesh`.
        titles: of all panels, row by row.
        names: of the rows, on the left; optional.
        lines: draw lines between the levels; not advisable for noisy values.
    """
    tri = require("matplotlib.tri", extra="report")
    columns = max(len(row) for row in rows)
    width = min(_WIDTH, 4 * _WIDTH / columns)
    figure = new_figure(width * columns + 0.9, _HEIGHT * width / _WIDTH * len(rows) + 0.2)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    drawn, titles = None, list(titles)
    for at, row in enumerate(rows):
        for axis, values in zip(axes[at], [*row, *[None] * (columns - len(row))], strict=True):
            axis.axis("off")
            if values is None:
                continue
            points = simplex_mesh(_steps(len(values))) @ _PLACES
            low, high = float(values.min()), float(values.max())
            scaled = ((values - low) / max(high - low, 1e-12) + _NUDGE).clamp(0, 1 - _NUDGE).numpy()
            mesh = tri.Triangulation(*points.T)
            drawn = axis.tricontourf(mesh, scaled, levels=_LEVELS, cmap="viridis")
            if lines:
                axis.tricontour(mesh, scaled, levels=_LEVELS[1:-1], colors="white", linewidths=0.4, alpha=0.6)
            axis.plot(*_PLACES[2], "o", color=candidate_style(1).color, markersize=5, zorder=5, clip_on=False)
            axis.set_title(titles.pop(0), fontsize=9.5, color=INK, pad=6)
            axis.set(aspect="equal", xlim=(-0.04, 1.04), ylim=(-0.03, 0.93))
        if names:
            axes[at, 0].text(-0.06, 0.45, names[at], rotation=90, ha="right", va="center", fontsize=10, color=INK)
    bar = figure.colorbar(drawn, ax=axes, shrink=min(1.0, 1.4 / len(rows) + 0.2), ticks=[0, 0.5, 1], pad=0.02)
    bar.set_label("loss, scaled to [0, 1]", color=INK, fontsize=9)
    bar.ax.tick_params(colors=PALE, labelsize=9)
    return figure


def _steps(points: int) -> int:
    """The number of steps s of a mesh of (s + 1)(s + 2) / 2 points."""
    return (math.isqrt(8 * points + 1) - 3) // 2


def zero_one(scores: Tensor, target: Tensor, k: int) -> Tensor:
    """1 where the true class is not among the k largest."""
    own = scores.gather(-1, target[:, None]).squeeze(-1)
    return (kth_largest(scores, k) > own).to(scores.dtype)


def loss_of(described: Mapping[str, Any], k: int) -> Callable[..., Tensor]:
    """The loss of a panel in the settings, from scores and classes to one value per row."""
    options = {key: value for key, value in described.items() if key not in ("loss", "title")}
    rows = {"reduction": "none", **options}
    losses: dict[str, Callable[..., Tensor]] = {
        "top-k error": partial(zero_one, k=k),
        "cross-entropy": partial(cross_entropy, **rows),
        "ldam": partial(ldam, **rows),
        "focal": partial(focal, **rows),
        "hinge": partial(topk_hinge, k=k, kind="plain", **rows),
        "calibrated hinge": partial(topk_hinge, k=k, kind="calibrated", **rows),
        "convex hinge": partial(topk_hinge, k=k, kind="convex", **rows),
        "smooth svm": partial(smooth_topk_svm, k=k, **rows),
        "noised": partial(noised_topk, k=k, **rows),
    }
    if described["loss"] not in losses:
        raise ValueError(f"`loss` must be one of {', '.join(losses)}; got {described['loss']!r}.")
    return losses[described["loss"]]


def on_triangle(described: Mapping[str, Any], k: int, steps: int, *, total: float, replications: int) -> Tensor:
    """The loss at every point of a mesh of the triangle.

    A noised loss is the mean of several replications, each with the same noise at all points, so that level sets are
    smooth; with one replication, every point has its own noise.
    """
    scores = total * torch.from_numpy(simplex_mesh(steps))
    target, loss = torch.full((len(scores),), TRUE), loss_of(described, k)
    if described["loss"] != "noised":
        return loss(scores, target)
    generator = torch.Generator().manual_seed(0)
    if replications == 1:
        return loss(scores, target, generator=generator)
    shape = (replications, described["samples"], 1, 3)
    noise = torch.randn(shape, dtype=torch.float64, generator=generator)
    return torch.stack([loss(scores, target, noise=z.expand(-1, len(scores), -1)) for z in noise]).mean(0)


def study(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figures 4.1 and 4.6: every loss of table 4.1 on the triangle."""
    k, panels, seeds = settings["k"], settings["panels"], settings["seeds"]
    lab.plan(len(seeds))
    plain = [panel for panel in panels if panel["loss"] != "noised"]
    shared = {
        "k": k,
        "panels": plain,
        **{key: settings[key] for key in ("pairs", "classes", "distributions", "reach", "cells")},
    }
    found = lab.trials(shape_trial, [{**shared, "seed": seed} for seed in seeds])
    drawn = {"total": settings["total"], "replications": settings["replications"]}
    surfaces = [on_triangle(panel, k, settings["steps"], **drawn) for panel in panels]
    titles = [panel["title"] for panel in panels]
    name = f"level-sets-k{k}.png"
    save_figure(
        draw_triangles([surfaces[at : at + 4] for at in range(0, len(surfaces), 4)], titles),
        lab.figures / name,
        dpi=DPI,
    )
    worst = {
        panel["title"]: {
            "bulge": max(each["losses"][panel["title"]]["bulge"] for each in found),
            "below": max(each["losses"][panel["title"]]["below"] for each in found),
        }
        for panel in plain
    }
    missed = {
        kind: {classes: sum(each["missed"][kind][str(classes)] for each in found) for classes in settings["classes"]}
        for kind in JUDGED
    }
    asked = settings["distributions"] * len(found)
    other = [f"L = {classes}" for classes in settings["classes"]]
    return Outcome(
        setup=f"Mathematics, no data: L = 3, K = {k}, scores that sum to {settings['total']}, true class on top, "
        f"noised losses averaged over {settings['replications']} replications. Convexity and order are checked on "
        f"{settings['pairs']} random pairs of scores, calibration on {settings['distributions']} random class "
        f"probabilities against a grid of scores for each of {' and '.join(other)}, with {len(seeds)} seeds.",
        claims=_claims(published, k, plain, worst, found, missed, asked),
        tables=[
            Table(
                f"Properties of the losses, K = {k}",
                ["loss", "largest excess over a chord", "largest gap below the top-K error"],
                [[title, max(row["bulge"], 0.0), max(row["below"], 0.0)] for title, row in worst.items()],
                digits=3,
                note="A positive excess over a chord means that the loss is not convex.",
            ),
            Table(
                f"Class probabilities, of {asked}, for which scores that miss the top {k} are optimal",
                ["loss", *other],
                [[kind, *missed[kind].values()] for kind in JUDGED],
                digits=0,
                note="0 for a top-K calibrated loss.",
            ),
        ],
        figures=[Figure(name, f"Losses scaled to [0, 1]; K = {k}, the true class is the upper corner.")],
        values={"worst": worst, "missed": missed},
    )


def _claims(
    published: Mapping[str, Any],
    k: int,
    panels: Sequence[Mapping[str, Any]],
    worst: Mapping[str, Mapping[str, float]],
    found: Sequence[Mapping[str, Any]],
    missed: Mapping[str, Mapping[int, int]],
    asked: int,
) -> list[Claim]:
    of = {panel["loss"]: worst[panel["title"]] for panel in panels}
    convex = {kind: of[kind]["bulge"] <= ROUNDING for kind in of}
    error = max(each["error_differs"] for each in found)
    bound = max(each["convex_below_hinge"] for each in found)
    total = {kind: sum(missed[kind].values()) for kind in JUDGED}
    counts = "; ".join(
        f"{kind} " + ", ".join(f"{count} at L = {classes}" for classes, count in missed[kind].items())
        for kind in JUDGED
    )
    claims = [
        Claim(
            "The top-K error is 0 where fewer than K scores exceed that of the true class, and 1 elsewhere; no hinge "
            "loss is below it.",
            published["error"],
            checked(
                error == 0 and all(of[kind]["below"] <= ROUNDING for kind in of if "hinge" in kind),
                f"{error} points differ from the definition; hinges below the error by at most "
                f"{worded(max(0.0, *(of[kind]['below'] for kind in of if 'hinge' in kind)))}",
            ),
        ),
        Claim(
            "Cross-entropy and the convex hinge are convex, and the convex hinge bounds the top-K hinge from above.",
            published["convex"],
            checked(
                convex["cross-entropy"] and convex["convex hinge"] and bound <= ROUNDING,
                f"convex among all: {', '.join(kind for kind in convex if convex[kind])}; the convex hinge is below "
                f"the hinge by at most {worded(max(bound, 0.0))}",
            ),
        ),
        Claim(
            "Cross-entropy and the calibrated hinge are top-K calibrated, the hinge and the convex hinge are not.",
            published["calibrated"],
            checked(
                total["cross-entropy"] + total["calibrated hinge"] == 0
                and min(total["hinge"], total["convex hinge"]) > 0,
                f"class probabilities, of {asked} each, whose optimal scores may miss the top {k}: {counts}",
            ),
        ),
    ]
    if k == 1:
        same = max(each["convex_from_hinge"] for each in found)
        smooth = max(each["smooth_from_ldam"] for each in found)
        claims.append(
            Claim(
                "At K = 1 the losses meet: the convex hinge is the hinge, and the smooth SVM at τ = 1 is cross-entropy "
                "with a margin (LDAM).",
                published["meet"],
                all_of(
                    [
                        checked(same <= ROUNDING, f"|convex hinge − hinge| ≤ {worded(same)}"),
                        checked(smooth <= ROUNDING, f"|smooth SVM − LDAM| ≤ {worded(smooth)}"),
                    ]
                ),
            )
        )
    return claims


def shape_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Properties of the losses at random scores and for random class probabilities."""
    k, pairs = settings["k"], settings["pairs"]
    generator = torch.Generator().manual_seed(settings["seed"])
    first, second = (3 * torch.randn(pairs, 3, dtype=torch.float64, generator=generator) for _ in range(2))
    target = torch.randint(3, (pairs,), generator=generator)
    error = zero_one(first, target, k)
    above = (first > first.gather(-1, target[:, None])).sum(-1)
    losses = {}
    for panel in settings["panels"]:
        loss = loss_of(panel, k)
        chord = (loss(first, target) + loss(second, target)) / 2
        losses[panel["title"]] = {
            "bulge": float((loss((first + second) / 2, target) - chord).max()),
            "below": float((error - loss(first, target)).max()),
        }
    grid = {"reach": settings["reach"], "cells": settings["cells"]}
    missed: dict[str, dict[str, int]] = {kind: {} for kind in JUDGED}
    for classes in settings["classes"]:
        drawn = torch.rand(settings["distributions"], classes, dtype=torch.float64, generator=generator)
        for kind in JUDGED:
            loss = loss_of({"loss": kind}, k)
            missed[kind][str(classes)] = misses(loss, drawn / drawn.sum(-1, keepdim=True), k, **grid)
    hinge, convex = (topk_hinge(first, target, k, kind=kind, reduction="none") for kind in ("plain", "convex"))
    smooth = smooth_topk_svm(first, target, k, reduction="none")
    margin = ldam(first, target, margin=1.0, scale=1.0, reduction="none")
    return {
        "losses": losses,
        "missed": missed,
        "error_differs": int((error != (above >= k)).sum()),
        "convex_below_hinge": float((hinge - convex).max()),
        "convex_from_hinge": float((hinge - convex).abs().max()),
        "smooth_from_ldam": float((smooth - margin).abs().max()),
    }


def misses(loss: Callable[..., Tensor], probabilities: Tensor, k: int, *, reach: float, cells: int) -> int:
    """For how many class probabilities scores that miss the top K are optimal.

    Scores hit if the K most probable classes have strictly larger scores than all others. Candidates are a grid that
    contains the kinks of the hinges (losses are invariant to shifts, so the last score is 0), and ``log p``, with and
    without a tie of the two classes at the boundary of the top K, where cross-entropy has its minima.
    """
    classes = probabilities.shape[-1]
    line = torch.linspace(-reach, reach, cells + 1, dtype=torch.float64)
    grid = torch.cartesian_prod(*[line] * (classes - 1), torch.zeros(1, dtype=torch.float64))
    by_class = risks(loss, grid)
    count = 0
    for row in probabilities:
        order = row.argsort(descending=True)
        tied = row.clone()
        tied[order[k - 1 : k + 1]] = tied[order[k - 1 : k + 1]].mean()
        own = torch.stack([row.log(), tied.log()])
        risk = torch.cat([by_class, risks(loss, own)]) @ row
        scores = torch.cat([grid, own])
        hits = scores[:, order[:k]].min(-1).values > scores[:, order[k:]].max(-1).values
        count += int(risk[~hits].min() <= risk[hits].min() + ROUNDING)
    return count


def risks(loss: Callable[..., Tensor], scores: Tensor) -> Tensor:
    """``(points, classes)``: the loss of every score for every true class."""
    return torch.stack([loss(scores, torch.full((len(scores),), label)) for label in range(scores.shape[-1])], -1)


def samples(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 4.4: one realization of the loss for several M; K = 1 above, K = 2 below."""
    counts, seeds, epsilon = settings["samples"], settings["seeds"], settings["epsilon"]
    lab.plan(len(seeds) * len(settings["ks"]))
    shared = {key: settings[key] for key in ("samples", "epsilon", "total", "points", "replications")}
    order = [(k, seed) for k in settings["ks"] for seed in seeds]
    found = lab.trials(samples_trial, [{**shared, "k": k, "seed": seed} for k, seed in order])
    by_k = {k: [values for (at, _), values in zip(order, found, strict=True) if at == k] for k in settings["ks"]}
    _draw(settings, [{"samples": count, "epsilon": epsilon} for count in counts], [f"M = {m}" for m in counts], 1, lab)
    return Outcome(
        setup=f"Mathematics, no data: L = 3, scores that sum to {settings['total']}, ε = {epsilon}. One realization "
        f"per point in the picture. The spread over {settings['replications']} realizations is measured at "
        f"{settings['points']} random points, with {len(seeds)} seeds.",
        claims=[
            Claim(
                "More samples only reduce the variance of the loss: its threshold has a standard deviation "
                "proportional to 1/√M.",
                published["spread"],
                exponent({f"K = {k}": [power(counts, each["spread"]) for each in by_k[k]] for k in by_k}, -0.5),
            ),
            Claim(
                "The number of samples does not change the smoothing itself: the mean threshold is the same.",
                published["same"],
                all_of(
                    [
                        alike(
                            [each["means"][0] / epsilon for each in by_k[k]],
                            [each["means"][-1] / epsilon for each in by_k[k]],
                            names=(f"mean at M = {counts[0]}", f"at M = {counts[-1]}, K = {k},"),
                            within=SAME,
                            unit="ε",
                        )
                        for k in by_k
                    ]
                ),
            ),
        ],
        tables=[
            Table(
                "Standard deviation of the threshold τ̂ over realizations",
                ["", *(f"M = {count}" for count in counts)],
                [
                    [f"K = {k}", *(Interval.of([each["spread"][at] for each in by_k[k]]) for at in range(len(counts)))]
                    for k in by_k
                ],
                digits=3,
            )
        ],
        figures=[
            Figure("samples.png", "One realization of the loss at every point; the true class is the upper corner.")
        ],
        values={"seeds": {str(k): by_k[k] for k in by_k}},
    )


def scales(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 4.5: the loss for several ε; K = 1 above, K = 2 below."""
    epsilons, seeds = settings["epsilons"], settings["seeds"]
    lab.plan(len(seeds) * len(settings["ks"]))
    shared = {key: settings[key] for key in ("rates", "total", "mesh", "noise", "gap", "near")}
    order = [(k, seed) for k in settings["ks"] for seed in seeds]
    found = lab.trials(scales_trial, [{**shared, "k": k, "seed": seed} for k, seed in order])
    by_k = {k: [values for (at, _), values in zip(order, found, strict=True) if at == k] for k in settings["ks"]}
    panels = [{"samples": settings["samples"], "epsilon": epsilon} for epsilon in epsilons]
    _draw(settings, panels, [f"ε = {epsilon:g}" for epsilon in epsilons], settings["replications"], lab)
    rates = settings["rates"]
    others = max(each["noised_others"] for each in found)
    smooth = min(each["smooth_nonzero"] for each in found)
    return Outcome(
        setup=f"Mathematics, no data: L = 3, scores that sum to {settings['total']}, M = {settings['samples']}, "
        f"averaged over {settings['replications']} replications in the picture. The distance from the calibrated hinge "
        f"is the largest on a mesh, with {settings['noise']} samples, for ε from {rates[0]:g} to {rates[-1]:g}; "
        f"{len(seeds)} seeds.",
        claims=[
            Claim(
                "As ε → 0, the noised loss converges to the calibrated hinge at least linearly in ε.",
                published["limit"],
                exponent({f"K = {k}": [power(rates, each["farthest"]) for each in by_k[k]] for k in by_k}, 1.0),
            ),
            Claim(
                "The noise spreads the gradient mostly to classes with scores close to the threshold; the smooth SVM "
                "spreads it to all classes.",
                published["local"],
                checked(
                    others == 0 and smooth == 1,
                    f"scores at least {settings['gap']:g} apart, ε = τ = {settings['near']:g}: the noised gradient "
                    f"differs from that of the calibrated hinge in {100 * others:.1f}% of the rows, that of the smooth "
                    f"SVM has no zero in {100 * smooth:.1f}%",
                ),
            ),
        ],
        tables=[
            Table(
                "Largest distance from the calibrated hinge, divided by ε",
                ["", *(f"ε = {rate:g}" for rate in rates)],
                [
                    [
                        f"K = {k}",
                        *(
                            Interval.of([each["farthest"][at] / rate for each in by_k[k]])
                            for at, rate in enumerate(rates)
                        ),
                    ]
                    for k in by_k
                ],
                digits=3,
                note="Where scores tie, it is the mean (K+1)-th largest of normal variables.",
            )
        ],
        figures=[Figure("scales.png", "The loss for increasing noise; the true class is the upper corner.")],
        values={"seeds": {str(k): by_k[k] for k in by_k}},
    )


def exponent(found: Mapping[str, Sequence[float]], theory: float) -> Finding:
    """Whether measured exponents, one per seed, match the theory; the whole interval must lie within `WITHIN`."""
    intervals = {name: Interval.of(list(values)) for name, values in found.items()}
    farthest = max(abs(each.mean - theory) + each.half_width for each in intervals.values())
    nearest = max(abs(each.mean - theory) - each.half_width for each in intervals.values())
    measured = ", ".join(f"{each.mean:.3f} ± {each.half_width:.3f} ({name})" for name, each in intervals.items())
    verdict = HOLDS if farthest <= WITHIN else FAILS if nearest > WITHIN else OPEN
    return Finding(verdict, f"exponent {measured}; theory {theory:g} (alike: within {WITHIN:g})")


def _draw(
    settings: Mapping[str, Any], panels: list[dict[str, Any]], titles: list[str], replications: int, lab: Lab
) -> None:
    drawn = {"total": settings["total"], "replications": replications}
    rows = [
        [on_triangle({"loss": "noised", **panel}, k, settings["steps"], **drawn) for panel in panels]
        for k in settings["ks"]
    ]
    name = "samples.png" if replications == 1 else "scales.png"
    rows_named = [f"K = {k}" for k in settings["ks"]]
    figure = draw_triangles(rows, titles * len(rows), names=rows_named, lines=replications > 1)
    save_figure(figure, lab.figures / name, dpi=DPI)


def samples_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Standard deviation and mean of the noised threshold for each M."""
    generator = torch.Generator().manual_seed(settings["seed"])
    points = torch.rand(settings["points"], 3, dtype=torch.float64, generator=generator)
    points = settings["total"] * points / points.sum(-1, keepdim=True)
    spread, means = [], []
    for count in settings["samples"]:
        options = {"epsilon": settings["epsilon"], "samples": count, "generator": generator}
        drawn = noised_kth_largest(points.repeat(settings["replications"], 1), settings["k"] + 1, **options)
        drawn = drawn.reshape(settings["replications"], -1)
        spread.append(math.sqrt(float(drawn.var(0).mean())))
        means.append(float(drawn.mean()))
    return {"spread": spread, "means": means}


def scales_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Distance from the calibrated hinge for each ε, and the gradients at well-separated scores."""
    generator = torch.Generator().manual_seed(settings["seed"])
    k, scores = settings["k"], settings["total"] * torch.from_numpy(simplex_mesh(settings["mesh"]))
    hard = scores.topk(k + 1).values[:, -1]
    # Antithetic samples have mean 0, which reduces the error of the estimate at no cost.
    half = torch.randn(settings["noise"] // 2, 1, 3, dtype=torch.float64, generator=generator)
    noise = torch.cat([half, -half]).expand(-1, len(scores), -1)
    farthest = [
        float((noised_kth_largest(scores, k + 1, epsilon=rate, noise=noise) - hard).abs().max())
        for rate in settings["rates"]
    ]
    apart = settings["gap"] * torch.rand(1000, 3, dtype=torch.float64, generator=generator).argsort(-1).double()
    target = torch.randint(3, (1000,), generator=generator)
    options = {"epsilon": settings["near"], "samples": 10, "generator": generator}
    noised = _gradient(apart, lambda x: noised_topk(x, target, k, margin=4.0, reduction="sum", **options))
    hinge = _gradient(apart, lambda x: topk_hinge(x, target, k, margin=4.0, reduction="sum"))
    smooth = _gradient(apart, lambda x: smooth_topk_svm(x, target, k, temperature=settings["near"], reduction="sum"))
    return {
        "farthest": farthest,
        "noised_others": float(((noised - hinge).abs() > 1e-9).any(-1).double().mean()),
        "smooth_nonzero": float((smooth != 0).all(-1).double().mean()),
    }


def _gradient(scores: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    x = scores.clone().requires_grad_()
    return torch.autograd.grad(loss(x), x)[0]
