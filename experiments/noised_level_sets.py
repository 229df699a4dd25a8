"""Level sets of the noised top-K loss: what the number of samples and the scale of the noise change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.exact_claims import checked, power
from experiments.level_set_drawings import draw_triangles
from experiments.lml_entropies import simplex_mesh
from experiments.loss_level_sets import on_triangle
from shortlist.evidence import Claim, Figure, Finding, Lab, Outcome, Table, alike, all_of
from shortlist.evidence.verdicts import FAILS, HOLDS, OPEN
from shortlist.functional import noised_kth_largest, noised_topk, smooth_topk_svm, topk_hinge
from shortlist.report.chart_matplotlib import save_figure
from shortlist.train.comparison import Interval

SAME = 0.05
"""Averages this close, in units of ε, are the same: the smoothing moves the threshold by about 0.85."""
WITHIN = 0.05
"""How far a measured exponent may be from the one of theory: a tenth of the smallest difference of two such laws."""


def samples(settings: Mapping[str, Any], published: Mapping[str, Any], lab: Lab) -> Outcome:
    """Figure 4.4: one draw of the loss for several M; K = 1 above, K = 2 below."""
    counts, seeds, epsilon = settings["samples"], settings["seeds"], settings["epsilon"]
    lab.plan(len(seeds) * len(settings["ks"]))
    shared = {key: settings[key] for key in ("samples", "epsilon", "total", "points", "replications")}
    order = [(k, seed) for k in settings["ks"] for seed in seeds]
    found = lab.trials(samples_trial, [{**shared, "k": k, "seed": seed} for k, seed in order])
    by_k = {k: [values for (at, _), values in zip(order, found, strict=True) if at == k] for k in settings["ks"]}
    _draw(settings, [{"samples": count, "epsilon": epsilon} for count in counts], [f"M = {m}" for m in counts], 1, lab)
    return Outcome(
        setup=f"Mathematics, no data: L = 3, scores that sum to {settings['total']}, ε = {epsilon}. One draw per point "
        f"in the picture. The spread over {settings['replications']} draws is measured at {settings['points']} random "
        f"points, with {len(seeds)} seeds.",
        claims=[
            Claim(
                "More samples only make the loss less random: its threshold spreads as 1/√M.",
                published["spread"],
                exponent({f"K = {k}": [power(counts, each["spread"]) for each in by_k[k]] for k in by_k}, -0.5),
            ),
            Claim(
                "The number of samples does not change the smoothing itself: the average threshold is the same.",
                published["same"],
                all_of(
                    [
                        alike(
                            [each["means"][0] / epsilon for each in by_k[k]],
                            [each["means"][-1] / epsilon for each in by_k[k]],
                            names=(f"average at M = {counts[0]}", f"at M = {counts[-1]}, K = {k},"),
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
                "Standard deviation of the threshold τ̂ over draws",
                ["", *(f"M = {count}" for count in counts)],
                [
                    [f"K = {k}", *(Interval.of([each["spread"][at] for each in by_k[k]]) for at in range(len(counts)))]
                    for k in by_k
                ],
                digits=3,
            )
        ],
        figures=[Figure("samples.png", "One draw of the loss at every point; the true class is the upper corner.")],
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
        f"averaged over {settings['replications']} draws in the picture. The distance from the calibrated hinge is "
        f"the largest on a mesh, with {settings['noise']} samples, for ε from {rates[0]:g} to {rates[-1]:g}; "
        f"{len(seeds)} seeds.",
        claims=[
            Claim(
                "As ε tends to 0 the noised loss tends to the calibrated hinge, no slower than in proportion to ε.",
                published["limit"],
                exponent({f"K = {k}": [power(rates, each["farthest"]) for each in by_k[k]] for k in by_k}, 1.0),
            ),
            Claim(
                "The noise moves gradient mostly to classes whose scores are close to the threshold, the smooth SVM to "
                "all classes.",
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
                note="Where scores tie: the average (K+1)-th largest of as many normal numbers.",
            )
        ],
        figures=[Figure("scales.png", "The loss for growing noise; the true class is the upper corner.")],
        values={"seeds": {str(k): by_k[k] for k in by_k}},
    )


def exponent(found: Mapping[str, Sequence[float]], theory: float) -> Finding:
    """Whether measured exponents, one per seed, are that of theory; the whole interval must lie within `WITHIN`."""
    intervals = {name: Interval.of(list(values)) for name, values in found.items()}
    farthest = max(abs(each.mean - theory) + each.half_width for each in intervals.values())
    nearest = max(abs(each.mean - theory) - each.half_width for each in intervals.values())
    told = ", ".join(f"{each.mean:.3f} ± {each.half_width:.3f} ({name})" for name, each in intervals.items())
    verdict = HOLDS if farthest <= WITHIN else FAILS if nearest > WITHIN else OPEN
    return Finding(verdict, f"exponent {told}; theory {theory:g} (alike: within {WITHIN:g})")


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
    save_figure(figure, lab.figures / name, dpi=110)


def samples_trial(settings: dict[str, Any], root: Path) -> dict[str, Any]:
    """Spread and average of the noisy threshold for each M."""
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
    """Distance from the calibrated hinge for each ε, and where gradients go when scores are apart."""
    generator = torch.Generator().manual_seed(settings["seed"])
    k, scores = settings["k"], settings["total"] * torch.from_numpy(simplex_mesh(settings["mesh"]))
    hard = scores.topk(k + 1).values[:, -1]
    # With the noise and its negative the average noise is 0, which halves the error of the estimate for nothing.
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
