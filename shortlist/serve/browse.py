"""Held-out rows and labels to look at: filters, a page of rows with every model's answers, and figures of a label."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shortlist.data import Inputs
from shortlist.errors import InputError
from shortlist.extras import require
from shortlist.serve.answers import answer_scores
from shortlist.serve.curves import recall
from shortlist.serve.held_out import HeldOut, Measured
from shortlist.sets import SetRule

# Longer inputs are cut in a page of rows.
_CHARACTERS, _VALUES, _CONFUSED, _EXAMPLES = 4000, 256, 10, 12
# A set is huge from this many times the average size; a label rare up to this quantile of the supports.
_HUGE, _RARE = 2.0, 0.25


def find_rows(held_out: HeldOut, show: str, peers: Mapping[HeldOut, SetRule], *, label: str | None = None) -> Tensor:
    """The places of the shown rows that pass a filter.

    Args:
        held_out: the rows.
        show: ``all``, ``missed``, ``disagree``, ``empty``, ``huge``, ``rare`` or ``label``.
        peers: the models to compare, this one first, and the rule that each answers with.
        label: for ``label``, its name or number.

    Raises:
        InputError: if the filter is unknown or the label does not exist.
    """
    part = held_out.shown
    found = held_out.measure(peers[held_out])
    if show == "missed":
        return (found.missed > 0).nonzero()[:, 0]
    if show == "empty":
        return (found.sizes == 0).nonzero()[:, 0]
    if show == "huge":
        large = (found.sizes.double() > max(_HUGE * found.size, 1)).nonzero()[:, 0]
        return large[found.sizes[large].argsort(descending=True, stable=True)]
    if show == "disagree":
        others = [other.measure(rule).signature for other, rule in peers.items() if other is not held_out]
        differ = torch.zeros(len(part), dtype=torch.bool)
        for signature in others:
            differ |= signature != found.signature
        return differ.nonzero()[:, 0]
    if show == "rare":
        support = part.support if held_out.train_counts is None else held_out.train_counts
        occurring = support[part.labels]
        if not len(occurring):
            return torch.zeros(0, dtype=torch.int64)
        bound = support[part.support > 0].double().quantile(_RARE)
        return part.at[occurring <= bound].unique()
    if show == "label":
        return part.at[part.labels == label_number(held_out.model.labels, label)].unique()
    return torch.arange(len(part))


def rows_page(
    held_out: HeldOut, places: Tensor, peers: Mapping[HeldOut, SetRule], *, offset: int, limit: int
) -> dict[str, Any]:
    """Some of the rows: inputs, true labels, and the sets of all models."""
    some, names = places[offset : offset + limit], held_out.model.labels
    numbers = held_out.shown.rows[some]
    answers: list[dict[str, Any]] = [{} for _ in some]
    true = [[names[label] for label in held_out.shown.labels_of(place)] for place in some.tolist()]
    for other, rule in peers.items():
        model = other.model
        if len(some):
            found = answer_scores(other.scores(some), rule, seed=0, top=0, link=model.link)
            for at, each in enumerate(found):
                missed = [label for label in true[at] if label not in each["labels"]]
                answers[at][model.name] = {"labels": each["labels"], "scores": each["scores"], "missed": missed}
    inputs = show_inputs(held_out.dataset.inputs.take(numbers))
    rows = [
        {"row": number, "input": shown, "true": labels, "answers": given}
        for number, shown, labels, given in zip(numbers.tolist(), inputs, true, answers, strict=True)
    ]
    return {"total": len(places), "rows": rows}


def show_inputs(inputs: Inputs) -> list[dict[str, Any]]:
    """Rows as a page can show them: text, an image as PNG in base64, or numbers."""
    if not len(inputs):
        return []
    rows = inputs.batch(torch.arange(len(inputs)))
    if inputs.kind == "text":
        return [{"kind": "text", "text": text[:_CHARACTERS], "cut": len(text) > _CHARACTERS} for text in rows]
    if inputs.kind == "images":
        return [{"kind": "image", "png": _png(image)} for image in rows]
    if not isinstance(rows, Tensor):
        return [{"kind": inputs.kind} for _ in range(len(inputs))]
    dense = rows.to_dense() if rows.layout == torch.sparse_csr else rows
    return [
        {"kind": "features", "values": row[:_VALUES].tolist(), "cut": len(row) > _VALUES}
        for row in dense.flatten(1).double()
    ]


def labels_page(
    held_out: HeldOut, rule: SetRule, *, search: str, sort: str, descending: bool, offset: int, limit: int
) -> dict[str, Any]:
    """Labels whose name holds ``search``, with their figures, in order; labels without a figure come last."""
    names, figures = held_out.model.labels, _label_figures(held_out, held_out.measure(rule))
    wanted = search.casefold()
    chosen = [at for at, name in enumerate(names) if wanted in name.casefold()]
    if sort == "name":
        chosen.sort(key=lambda at: names[at].casefold(), reverse=descending)
    else:
        values = figures[sort].tolist()
        sign = -1 if descending else 1
        chosen.sort(key=lambda at: (values[at] != values[at], sign * values[at] if values[at] == values[at] else 0, at))
    rows = [_label_row(names, figures, at) for at in chosen[offset : offset + limit]]
    return {"total": len(chosen), "labels": rows}


def label_page(held_out: HeldOut, rule: SetRule, label: str) -> dict[str, Any]:
    """One label: how often it occurs and is found, the sets that hold it, what comes instead, and rows that have it."""
    at, part, names = label_number(held_out.model.labels, label), held_out.shown, held_out.model.labels
    found = held_out.measure(rule)
    places = part.at[part.labels == at].unique()
    confused: list[dict[str, Any]] = []
    if len(places):
        true = {place: set(part.labels_of(place)) for place in places.tolist()}
        answers = answer_scores(held_out.scores(places), rule, seed=0, top=0, link=held_out.model.link)
        number = {name: place for place, name in enumerate(names)}
        times: dict[str, int] = {}
        for place, each in zip(places.tolist(), answers, strict=True):
            for other in each["labels"]:
                if number.get(other) not in true[place]:
                    times[other] = times.get(other, 0) + 1
        order = sorted(times.items(), key=lambda item: (-item[1], item[0]))
        confused = [{"label": other, "share": count / len(places)} for other, count in order[:_CONFUSED]]
    # Rows whose set lacks the label come first.
    hit = torch.zeros(len(part), dtype=torch.bool)
    hit[part.at[(part.labels == at) & found.hits]] = True
    first = torch.cat([places[~hit[places]], places[hit[places]]])[:_EXAMPLES]
    counts = held_out.train_counts
    return {
        **_label_row(names, _label_figures(held_out, found), at),
        "index": at,
        "train_support": None if counts is None else int(counts[at]),
        "sets": int(found.holding[at]),
        "confused": confused,
        "examples": part.rows[first].tolist(),
        "rows": len(part),
    }


def label_number(names: Sequence[str], label: str | None) -> int:
    """The number of a label that is given by name, or by number where no label has that name.

    Raises:
        InputError: if there is none.
    """
    if label is None:
        raise InputError("`label` must name a label.")
    if label in names:
        return list(names).index(label)
    if label.isascii() and label.isdigit() and len(label) < 10 and int(label) < len(names):
        return int(label)
    raise InputError(f"`label` must be one of the model's {len(names)} labels; got {label[:100]!r}.")


def place_of(held_out: HeldOut, row: int) -> int:
    """The place of a row, by its number in the dataset.

    Raises:
        InputError: if it is not among the shown rows.
    """
    rows = held_out.shown.rows
    at = int(torch.searchsorted(rows, row))
    if at >= len(rows) or int(rows[at]) != row:
        raise InputError(f"`row` must be the number of a held-out row of `{held_out.model.name}`; got {row}.")
    return at


def _label_figures(held_out: HeldOut, found: Measured) -> dict[str, Tensor]:
    return {"support": held_out.shown.support, "recall": recall(held_out.shown, found), "size": found.held_size}


def _label_row(names: Sequence[str], figures: Mapping[str, Tensor], at: int) -> dict[str, Any]:
    values = {name: float(figure[at]) for name, figure in figures.items()}
    known = {name: None if value != value else value for name, value in values.items()}
    return {"label": names[at], **known, "support": int(values["support"])}


def _png(image: Tensor) -> str:
    pixels = image.numpy().transpose(1, 2, 0)
    pillow = require("PIL.Image", extra="serve")
    file = io.BytesIO()
    pillow.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
