"""Scores of six labels with classes and sets of labels that they know much of, and the files of these."""

from pathlib import Path

import numpy as np
import torch

ROWS, BLOCK = 400, 150
GENERATOR = torch.Generator().manual_seed(0)
LOGITS = 2 * torch.randn(ROWS, 6, generator=GENERATOR)
PROBS = LOGITS.softmax(-1)
CLASSES = torch.multinomial(PROBS, 1, generator=GENERATOR)[:, 0]
HOT = torch.rand(ROWS, 6, generator=GENERATOR) < (LOGITS - 1).sigmoid()
PARENTS = {"0": "a", "1": "a", "2": "a", "a": "c", "3": "b", "4": "b", "b": "root", "5": "c", "c": "root"}
SCORES = {"logits": LOGITS, "probabilities": PROBS}


def write_score_files() -> None:
    """Scores of both kinds, classes and sets, in the current folder."""
    for name, scores in SCORES.items():
        np.save(f"{name}.npy", scores.numpy())
    np.savez("both.npz", logits=LOGITS.numpy(), y=CLASSES.numpy())
    np.save("hot.npy", HOT.numpy())
    Path("tree.csv").write_text("child,parent\n" + "".join(f"{child},{above}\n" for child, above in PARENTS.items()))
    Path("y.txt").write_text("\n".join(map(str, CLASSES.tolist())) + "\n")
