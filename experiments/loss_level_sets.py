"""Level sets of top-K losses of three classes over the scores that sum to 2, and what tells these losses apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.exact_claims import checked, worded
from experiments.level_set_drawings import draw_triangles
from experiments.lml_entropies import simplex_mesh
from shortlist.evidence import Claim, Figure, Lab, Outcome, Table, all_of
from shortlist.functional import cross_entropy, focal, kth_largest, ldam, noised_topk, smooth_topk_svm, topk_hinge
from shortlist.report.chart_matplotlib import save_figure

TRUE = 2
"""The true class: the upper corner."""
ROUNDING = 1e-9
JUDGED = ("cross-entropy", "calibrated hinge", "hinge", "convex hinge")
"""Losses whose calibration is checked: those of which we know where minima can lie."""


def zero_one(scores: Tensor, target: Tensor, k: int) -> Tensor:
    """1 where the true class is not among the k largest."""
    own = scores.gather(-1, target[:, None]).squeeze(-1)
    return (kth_largest(scores, k) > own).to(scores.dtype)


def loss_of(described: Mapping[str, Any], k: int) -> Callable[..., Tensor]:
    """From scores and classes to one loss per row, as a panel of the configuration describes it."""
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

    A noisy loss is the average of several replications, each with the same noise at all points so that level sets are
    smooth; with one replication every point has its own noise.
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
        dpi=110,
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
        setup=f"Mathematics, no data: L = 3, K = {k}, scores that sum to {settings['total']}, true class on top, noisy "
        f"losses averaged over {settings['replications']} draws. Convexity and order are checked on "
        f"{settings['pairs']} random pairs of scores, calibration on {settings['distributions']} random class "
        f"probabilities against a grid of scores for each of {' and '.join(other)}, with {len(seeds)} seeds.",
        claims=_claims(published, k, plain, worst, found, missed, asked),
        tables=[
            Table(
                f"Properties of the losses, K = {k}",
                ["loss", "most above a chord", "most below the top-K error"],
                [[title, max(row["bulge"], 0.0), max(row["below"], 0.0)] for title, row in worst.items()],
                digits=3,
                note="Above a chord by more than 0: not convex.",
            ),
            Table(
                f"Class probabilities, of {asked}, for which scores that miss the top {k} are as good as any",
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
    told = "; ".join(
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
                f"class probabilities, of {asked} each, whose best scores may miss the top {k}: {told}",
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
    """What tells the losses apart, at random scores and for random class probabilities."""
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
    """For how many class probabilities a score that misses the top K is as good as the best one.

    A score hits if the K most probable classes have strictly larger scores than all others. The best is looked for on a
    grid, which holds the kinks of the hinges (no loss changes when all scores move by as much, so the last score is 0),
    and at ``log p``, with and without a tie of the two classes at the edge of the top K, where cross-entropy has its
    minima.
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
