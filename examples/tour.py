"""A short tour: projections of logits to k labels, label sets that a layer can never output, and set rules.

Run it with ``make tour``; it writes two figures to ``out``.
"""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from shortlist.audit import audit
from shortlist.functional import LMLPotential, constrained_softmax, fenchel_young_loss, lml, lml_dual, sparse_top
from shortlist.nn import BottleneckHead, DFTHead
from shortlist.report import draw_lattice, draw_projections
from shortlist.sets import AverageError, AverageK, TopK

SPECIES = ["marsh orchid", "spotted orchid", "heath orchid", "bee orchid", "wood sage", "red clover", "daisy"]
LOGITS = torch.tensor([3.1, 2.9, 2.2, 1.4, 0.3, -1.0, -2.5])


def compare(console: Console) -> None:
    """Apply each projection to the same logits."""
    columns = {
        "softmax": LOGITS.softmax(-1),
        "lml, k=3": lml(LOGITS, 3),
        "constrained softmax, k=3": constrained_softmax(LOGITS, 3),
        "sparse-top, k=3": sparse_top(LOGITS, 3),
        "lml, k=2.5": lml(LOGITS, 2.5),
    }
    view = Table(title="Which species? Logits turned into probabilities that sum to k", title_justify="left")
    view.add_column("species")
    for name in ("logit", *columns):
        view.add_column(name, justify="right")
    for row, name in enumerate(SPECIES):
        view.add_row(name, f"{LOGITS[row]:.1f}", *(f"{p[row]:.3f}" for p in columns.values()))
    view.add_section()
    view.add_row("sum", "", *(f"{p.sum():.3f}" for p in columns.values()))
    console.print(view)


def stress(console: Console) -> None:
    """Show rows on which bracketing by fixed offsets fails."""
    gap = torch.tensor([1000.0, 999.5, 0.3, -0.2, -1.0]).requires_grad_()
    p = lml(gap, 3)
    (gradient,) = torch.autograd.grad(p[2], gap)
    offset = torch.tensor([1e6 + 1, 1e6, 1e6 - 1])
    console.print("\nHard rows stay exact, in float32:")
    console.print(f"  a gap of 1000:        p = {rounded(p)}, dp[2]/dx = {rounded(gradient)}")
    console.print(
        f"  an offset of 1e6:     p = {rounded(lml(offset, 2))} (without it: {rounded(lml(offset - 1e6, 2))})"
    )
    console.print(
        f"  the price of a label: nu = {lml_dual(LOGITS, 3):.4f} at k = 3, {lml_dual(LOGITS, 4):.4f} at k = 4"
    )


def learn(console: Console) -> None:
    """Fit free logits to two labels; the gradient is prediction minus target."""
    logits = torch.zeros(1, len(SPECIES), requires_grad=True)
    target = torch.tensor([[0, 3]])
    for _ in range(40):
        loss = fenchel_young_loss(logits, target, LMLPotential(2)).sum()
        (gradient,) = torch.autograd.grad(loss, logits)
        with torch.no_grad():
            logits -= 2 * gradient
    p = lml(logits.detach(), 2)[0]
    best = [f"{SPECIES[i]} ({p[i]:.2f})" for i in p.argsort(descending=True)[:2].tolist()]
    console.print(
        f"\nTrained toward two labels, the Fenchel-Young loss is {loss.item():.3f}; best labels: {', '.join(best)}"
    )


def impossible(console: Console) -> None:
    """Two layers of the same width: which pairs of 40 labels can they never output?"""
    torch.manual_seed(0)
    pairs = [[i, j] for i in range(40) for j in range(i)]
    heads = {
        "bottleneck, 5 features": BottleneckHead(16, 40, 5),
        "DFT, k = 2, 5 features": DFTHead(16, 40, 2),
    }
    view = Table(
        title="\nWhich of the 780 pairs of 40 labels can be output? Each verdict is proved", title_justify="left"
    )
    for name in ("layer", "can be output", "never", "smallest radius", "certificates that fail"):
        view.add_column(name, justify="left" if name == "layer" else "right")
    for name, head in heads.items():
        report = audit(head, pairs)
        counts = report.counts()
        radii = report.radii[report.verdicts == "argmaxable"]
        smallest = f"{radii.min():.3g}" if len(radii) else ""
        view.add_row(name, str(counts["argmaxable"]), str(counts["unargmaxable"]), smallest, str(len(report.verify())))
    console.print(view)


def answer(console: Console) -> None:
    """Compare rules on easy and hard examples with known probabilities; they distribute labels differently."""
    generator = torch.Generator().manual_seed(3)
    sharpness = torch.tensor([0.9, 3.0])[torch.arange(4000) % 2]
    probabilities = (torch.randn(4000, 50, generator=generator) * sharpness[:, None] * 2).softmax(-1)
    classes = probabilities.multinomial(1, generator=generator)[:, 0]
    fitted, fresh = slice(0, 2000), slice(2000, 4000)
    rules = {"top-3": TopK(3), "average-3": AverageK(3), "10% average error": AverageError(0.1)}
    view = Table(title="\nSets for 2000 new examples, half of them ambiguous", title_justify="left")
    for name in ("rule", "labels, easy", "labels, ambiguous", "labels, all", "error"):
        view.add_column(name, justify="left" if name == "rule" else "right")
    for name, rule in rules.items():
        rule.fit(probabilities[fitted], classes[fitted], from_logits=False)
        sets = rule.predict(probabilities[fresh])
        sizes, missed = sets.sizes.double(), 1 - sets.contains(classes[fresh]).double().mean()
        view.add_row(
            name,
            f"{sizes[1::2].mean():.2f}",
            f"{sizes[::2].mean():.2f}",
            f"{sizes.mean():.2f}",
            f"{100 * missed:.1f}%",
        )
    console.print(view)


def rounded(values: torch.Tensor) -> str:
    """Format a row of numbers."""
    return "[" + ", ".join(f"{value:.4f}" for value in values.tolist()) + "]"


def main() -> None:
    """The tour."""
    console = Console(width=140, highlight=False)
    compare(console)
    stress(console)
    learn(console)
    impossible(console)
    answer(console)
    out = Path("out")
    weight = DFTHead(4, 6, 1).explicit_weight(torch.float64)
    pictures = [draw_projections(out / "tour.png"), draw_lattice(weight, out / "lattice.png")]
    console.print(f"\nFigures: {', '.join(map(str, pictures))}")


if __name__ == "__main__":
    main()
