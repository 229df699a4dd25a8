"""A short tour of the projections: from logits to "k labels", with a picture.

Run by ``make run``; writes ``out/tour.png``.
"""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from shortlist.functional import LMLPotential, constrained_softmax, fenchel_young_loss, lml, lml_dual, sparse_top
from shortlist.report.projections import draw_projections

SPECIES = ["marsh orchid", "spotted orchid", "heath orchid", "bee orchid", "wood sage", "red clover", "daisy"]
LOGITS = torch.tensor([3.1, 2.9, 2.2, 1.4, 0.3, -1.0, -2.5])


def compare(console: Console) -> None:
    """The same logits under each projection."""
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
    """Rows on which bracketing by fixed offsets fails."""
    gap = torch.tensor([1000.0, 999.5, 0.3, -0.2, -1.0]).requires_grad_()
    p = lml(gap, 3)
    (gradient,) = torch.autograd.grad(p[2], gap)
    offset = torch.tensor([1e6 + 1, 1e6, 1e6 - 1])
    console.print("\nHard rows stay exact, in float32:")
    console.print(f"  a gap of 1000:        p = {rounded(p)}, dp[2]/dx = {rounded(gradient)}")
    console.print(
        f"  an offset of 1e6:     p = {rounded(lml(offset, 2))} (as without it: {rounded(lml(offset - 1e6, 2))})"
    )
    console.print(
        f"  the price of a label: nu = {lml_dual(LOGITS, 3):.4f} at k = 3, {lml_dual(LOGITS, 4):.4f} at k = 4"
    )


def learn(console: Console) -> None:
    """Train two labels into free logits: the gradient is prediction minus target."""
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
        f"\nTrained towards two labels, the Fenchel-Young loss is {loss.item():.3f} and says: {', '.join(best)}"
    )


def rounded(values: torch.Tensor) -> str:
    """A row of numbers."""
    return "[" + ", ".join(f"{value:.4f}" for value in values.tolist()) + "]"


def main() -> None:
    """The tour."""
    console = Console(width=140, highlight=False)
    compare(console)
    stress(console)
    learn(console)
    path = draw_projections(Path("out") / "tour.png")
    console.print(f"\nThe picture: {path}")


if __name__ == "__main__":
    main()
