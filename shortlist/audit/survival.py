"""Whether the signs of a witness are still right when layer and vector are rounded to a shorter type."""

from __future__ import annotations

import numpy as np
import torch

from shortlist.audit.certificates import Theorem, Witness
from shortlist.audit.decide import Decision
from shortlist.audit.system import Indices, System

TYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
_BLOCK = 1 << 24


def measure_survival(system: System, sets: list[Indices], decisions: list[Decision]) -> dict[str, float]:
    """Share of the argmaxable sets whose certificate is a vector that keeps its signs in each type.

    A set whose certificate is the theorem counts as lost: no vector is known that keeps its signs even in float64. The
    shares are what these vectors reach; other vectors of the same regions may do better.
    """
    held = [index for index, decision in enumerate(decisions) if isinstance(decision.certificate, Witness)]
    theory = sum(
        isinstance(decision.certificate, Theorem) and decision.verdict == "argmaxable" for decision in decisions
    )
    total = len(held) + theory
    if total == 0:
        return {}
    rows = max(1, _BLOCK // system.num_labels)
    kept = dict.fromkeys(TYPES, 0)
    for start in range(0, len(held), rows):
        block = held[start : start + rows]
        vectors = np.stack([_vector(decisions[index]) for index in block])
        wanted = np.stack([system.signs(sets[index])[: system.num_labels] > 0 for index in block])
        for name, dtype in TYPES.items():
            logits = _logits(system, vectors, dtype)
            right = torch.where(torch.from_numpy(wanted), logits > 0, logits < 0)
            kept[name] += int(right.all(dim=1).sum())
    return {name: count / total for name, count in kept.items()}


def _vector(decision: Decision) -> np.ndarray:
    return decision.certificate.vector if isinstance(decision.certificate, Witness) else np.empty(0)


def _logits(system: System, vectors: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    matrix = torch.from_numpy(system.features).to(dtype)
    logits = torch.from_numpy(vectors).to(dtype) @ matrix.T
    return logits if system.bias is None else logits + torch.from_numpy(system.bias).to(dtype)
