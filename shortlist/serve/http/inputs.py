"""The rows of a request: texts, numbers or images, checked and decoded within bounds."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from shortlist.data import ImageArray, Inputs, Texts
from shortlist.data.images import decode_image
from shortlist.errors import InputError
from shortlist.extras import require
from shortlist.serve.models import ServedModel


def read_rows(
    model: ServedModel,
    *,
    texts: Sequence[str] | None = None,
    features: Sequence[Sequence[float]] | None = None,
    images: Sequence[bytes] | None = None,
    most_pixels: int,
) -> Inputs:
    """The rows as inputs of a model.

    Args:
        model: that takes them.
        texts, features, images: one of them.
        most_pixels: of an image, and of all together as the model takes them.

    Raises:
        InputError: if the model takes other inputs, or a row is not what it takes.
    """
    kind = "text" if texts is not None else "features" if features is not None else "images"
    if kind != model.takes:
        raise InputError(f"`{model.name}` takes {model.takes}, not {'texts' if kind == 'text' else kind}.")
    if texts is not None:
        return Texts(list(texts))
    if features is not None:
        return model.read_features(features)
    return _read_images(model, images or (), most_pixels)


def decode_base64(images: Sequence[str]) -> list[bytes]:
    """Images of a JSON request; the ``data:`` address that browsers make of a file is taken, too.

    Raises:
        InputError: names the first that is not base64.
    """
    found = []
    for at, image in enumerate(images):
        content = image.partition(",")[2] if image.startswith("data:") else image
        try:
            found.append(base64.b64decode(content, validate=True))
        except (binascii.Error, ValueError) as error:
            raise InputError(f"`images` must be files in base64; image {at} is not.") from error
    return found


def _read_images(model: ServedModel, images: Sequence[bytes], most_pixels: int) -> Inputs:
    size: Any = model.source.reader.get("size")
    if size is None and model.shape:
        # The model was trained on arrays of one shape, or on files of one size.
        size = tuple(model.shape[1:])
    rows: list[np.ndarray] = []
    for at, content in enumerate(images):
        image = decode_image(io.BytesIO(content), size, name=f"image {at}", most=most_pixels)
        if rows and image.shape[:2] != rows[0].shape[:2]:
            raise InputError(f"`images` must have one size in pixels; image {at} has another than image 0.")
        rows.append(_gray(image) if model.shape[:1] == (1,) else image)
        if len(rows) * image.shape[0] * image.shape[1] > most_pixels:
            raise InputError(f"`images` must have at most {most_pixels} pixels together, as the model takes them.")
    return ImageArray(np.stack(rows))


def _gray(image: np.ndarray) -> np.ndarray:
    pillow: Any = require("PIL.Image", extra="serve")
    return np.asarray(pillow.fromarray(image).convert("L"))[..., None]
