"""What tells a run from others: a folder is gone on with only by the run that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import torch

from shortlist.data import Dataset, frozen_encoder
from shortlist.data.target_rows import label_pairs
from shortlist.train.options import FitOptions

_IDENTIFYING = 2048


def run_identity(dataset: Dataset, options: FitOptions) -> dict[str, Any]:
    """What tells a run from others, as plain values: its options, and a digest of labels, parts and inputs.

    Inputs count with up to 2,048 rows, evenly spread, for all of them may be a million files. The number of processes
    is left out: it does not change what a run computes.
    """
    digest = blake2b(repr((dataset.inputs.kind, dataset.label_names)).encode(), digest_size=16)
    if dataset.split is not None:
        digest.update(repr(dataset.split.names).encode() + dataset.split.index.numpy().tobytes())
    for values in label_pairs(dataset.targets, dataset.num_labels):
        digest.update(values.numpy().tobytes())
    spread = torch.linspace(0, len(dataset) - 1, min(len(dataset), _IDENTIFYING), dtype=torch.float64).round().long()
    for content in dataset.inputs.fingerprints(spread):
        digest.update(content)
    plain = {name: value for name, value in options.to_json().items() if name != "processes"}
    identity = {"options": plain, "data": digest.hexdigest(), "rows": len(dataset)}
    # A file of weights may have been written anew under its name.
    frozen = frozen_encoder(options.frozen, options.frozen_options).name if options.frozen else None
    return identity if frozen is None else {**identity, "frozen": frozen}


def difference(before: Any, asked: Mapping[str, Any]) -> str:
    """The first thing in which two identities of runs differ, in words; the one before may be damaged.

    Example:
        >>> difference({"options": {"k": 2}, "data": "a"}, {"options": {"k": 3}, "data": "a"})
        'k was 2 and is 3'
        >>> difference({"options": {"k": 2}, "data": "a"}, {"options": {"k": 2}, "data": "b"})
        'the data differ'
    """
    if not isinstance(before, Mapping) or not isinstance(before.get("options"), Mapping):
        return "nothing is known of it"
    was, now = before["options"], asked["options"]
    for name in now:
        if was.get(name) != now[name]:
            return f"{name} was {was.get(name)!r} and is {now[name]!r}"
    for name in ("part", "audit", "frozen"):
        if before.get(name) != asked.get(name):
            return f"{name} was {before.get(name)!r} and is {asked.get(name)!r}"
    return "the data differ"
