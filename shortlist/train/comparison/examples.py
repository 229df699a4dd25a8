"""The rows that a report shows as examples: some at random, and some of every kind that is worth a look."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO

import torch
from torch import Tensor

from shortlist.comparison_document import Answer, Example, ExampleInput, FeatureInput, ImageInput, TextInput
from shortlist.data import Dataset
from shortlist.data.draws import Draws
from shortlist.extras import require
from shortlist.metrics.accuracy import FEW
from shortlist.train.comparison.findings import positive_pairs, rounded

# Runs keep the answers for this many rows, of which the document shows some.
_KEPT = 200
_AT_RANDOM, _OF_EACH_KIND = 6, 4
_MOST_CHARACTERS = 4000
_MOST_FEATURES = 256
_THUMBNAIL = 144


def example_rows(num_rows: int) -> Tensor:
    """Return the rows of which a report can show some, in random order: the same for all runs on as many rows."""
    return torch.from_numpy(Draws(0, "examples of a comparison").order(num_rows))[:_KEPT]


def picked_examples(
    answers: Mapping[str, Sequence[Answer]], dataset: Dataset, part: str, *, at_k: int
) -> list[Example]:
    """Pick examples for a report.

    Args:
        answers: of each candidate, for the rows of `example_rows`.
        dataset: the data.
        part: the evaluated part.
        at_k: the position of the requested K among the sizes of the answers.

    Returns:
        Six rows at random; and up to four rows of each kind: some candidate misses a true label, candidates disagree
        about that, some set is empty, some set is the largest, a true label is rare in training.
    """
    rows, counts = dataset.part(part), dataset.label_counts("train")
    at, labels = positive_pairs(rows)
    positions = example_rows(len(rows)).tolist()
    true = [labels[at == row].tolist() for row in positions]
    truth = [[str(rows.label_names[label]) for label in some] for some in true]
    rarest = [min((int(counts[label]) for label in some), default=None) for some in true]
    everyone = range(len(positions))
    missed = [[_misses(truth[i], each[i], each[i].sizes[at_k]) for each in answers.values()] for i in everyone]
    sizes = [[each[i].sizes[at_k] for each in answers.values()] for i in everyone]
    kinds = [
        [i for i in everyone if any(missed[i])],
        [i for i in everyone if any(missed[i]) and not all(missed[i])],
        [i for i in everyone if min(sizes[i]) == 0],
        sorted(everyone, key=lambda i: -max(sizes[i])),
        [i for i, count in enumerate(rarest) if count is not None and count < FEW],
    ]
    picked = list(everyone[:_AT_RANDOM])
    for kind in kinds:
        picked += [i for i in kind if i not in picked][:_OF_EACH_KIND]
    return [
        Example(
            row=positions[i],
            input=shown_input(rows, positions[i]),
            truth=truth[i],
            answers={name: each[i] for name, each in answers.items()},
            rarest=rarest[i],
        )
        for i in sorted(picked, key=lambda i: positions[i])
    ]


def _misses(truth: Sequence[str], answer: Answer, size: int) -> bool:
    """Whether a set is known to miss a true label: labels beyond the listed ones are not known."""
    return size <= len(answer.labels) and not set(truth) <= set(answer.labels[:size])


def shown_input(dataset: Dataset, row: int) -> ExampleInput:
    """Return the input of a row as a page can show it: text, an image as PNG, or numbers."""
    kind = dataset.inputs.kind
    content = dataset.inputs.batch(torch.tensor([row]))[0]
    if kind == "text":
        return TextInput(content[:_MOST_CHARACTERS])
    if kind == "images":
        return ImageInput(_png(content))
    dense = content.to_dense() if kind == "sparse features" else content
    return FeatureInput(rounded(dense.flatten()[:_MOST_FEATURES].double()))


def _png(image: Tensor) -> str:
    pixels = image if image.dtype == torch.uint8 else (image.float().clamp(0, 1) * 255).round().to(torch.uint8)
    # Three channels are colors; of any other number the first is shown, in gray.
    array = pixels.permute(1, 2, 0).numpy() if len(pixels) == 3 else pixels[0].numpy()
    picture = require("PIL.Image", extra="data").fromarray(array)
    if max(picture.size) > _THUMBNAIL:
        # A page shows dozens: about 10 kB each instead of 100.
        picture.thumbnail((_THUMBNAIL, _THUMBNAIL))
        picture = picture.quantize(64)
    file = BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return b64encode(file.getvalue()).decode()
