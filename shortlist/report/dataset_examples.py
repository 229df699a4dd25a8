"""Examples from a dataset: sampling rows, and drawing and describing images, texts, features and object pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data import Dataset, Example
from shortlist.data.draws import Draws
from shortlist.extras import require
from shortlist.report.chart_matplotlib import one_line, shorten, wrap

_INK, _PALE, _MARK = "#264653", "#777777", "#b5651d"
_FRAME = "#cccccc"
_MAX_PIXELS = 400
_MAX_CELLS = 256
# Characters across all cells of a row, with room for capitals.
_CAPTION_WIDTH, _TEXT_WIDTH, _TEXT_LINES = 174, 208, 10


class Shown(NamedTuple):
    """A row with its content, or the reason why it cannot be read.

    Args:
        row: its index.
        example: its content; None if it cannot be read.
        reason: why it cannot be read; else empty.

    Example:
        >>> Shown(3, None, "`b.jpg` does not exist.").reason
        '`b.jpg` does not exist.'
    """

    row: int
    example: Example | None
    reason: str = ""


def example_rows(num_rows: int, count: int, *, seed: int = 0) -> list[int]:
    """Sample rows without replacement, in ascending order.

    Args:
        num_rows: the total number of rows.
        count: how many to sample; all rows if there are fewer.
        seed: the same seed gives the same rows on any platform.

    Raises:
        ValueError: if ``count`` or ``seed`` is negative.

    Example:
        >>> example_rows(1000, 3)
        [169, 667, 738]
    """
    if count < 0:
        raise ValueError(f"`count` must be at least 0; got {count}.")
    draws, count = Draws(seed, "examples"), min(count, num_rows)
    if 2 * count > num_rows:
        return sorted(draws.order(num_rows)[:count].tolist())
    rows: dict[int, None] = {}
    while len(rows) < count:
        rows.update(dict.fromkeys(draws.below(np.full(count, num_rows)).tolist()))
    return sorted(list(rows)[:count])


def read_example(dataset: Dataset, row: int) -> Shown:
    """Read a row, or explain why it cannot be read: a damaged or missing file, or a missing library.

    Args:
        dataset: the data.
        row: its index.

    Example:
        >>> from shortlist.data import Dataset, ImageFiles
        >>> read_example(Dataset(ImageFiles(["no.jpg"]), torch.tensor([0]), ("daisy",)), 0).example is None
        True
    """
    try:
        return Shown(row, dataset[row])
    except OSError as error:
        known = error.strerror is not None and error.filename is not None
        return Shown(row, None, f"`{error.filename}`: {error.strerror}." if known else str(error))
    except (ValueError, ImportError) as error:
        return Shown(row, None, str(error))


def describe_input(dataset: Dataset, example: Example) -> str:
    """Describe the input of a row in one line: its text, image size, first features, or pair of object classes.

    Args:
        dataset: the data, for the kind of its inputs.
        example: the row.

    Example:
        >>> from shortlist.data import Dataset, Features
        >>> flowers = Dataset(Features(torch.tensor([[3700.0, 0.25]])), torch.tensor([0]), ("daisy",))
        >>> describe_input(flowers, flowers[0])
        '3700, 0.25'
    """
    content = example.input
    if isinstance(content, str):
        return one_line(content) or "(empty text)"
    if dataset.inputs.kind == "object pairs":
        return " → ".join(_pair_names(dataset, content))
    if not isinstance(content, Tensor):
        return one_line(str(content))
    if content.layout != torch.strided:
        values = content.to_sparse_coo().coalesce().values()
        return f"{int((values != 0).sum()):,} of {content.numel():,} features are nonzero"
    if dataset.inputs.kind == "images" and content.dim() == 3:
        return f"{content.shape[2]} × {content.shape[1]} pixels, {'grayscale' if content.shape[0] == 1 else 'color'}"
    flat = content.flatten()
    values = ", ".join(map(_feature, flat[:6].tolist()))
    return f"{values}{', …' if len(flat) > 6 else ''}"


def describe_labels(example: Example) -> str:
    """List the labels of a row in one line, then the unknown ones with a question mark.

    Example:
        >>> from shortlist.data import Example
        >>> describe_labels(Example("red", labels=("rose", "garden"), unknown=("wild",), split=None))
        'rose, garden, wild?'
    """
    names = [one_line(name) or repr(name) for name in example.labels]
    return ", ".join(names + [f"{one_line(name)}?" for name in example.unknown]) or "(no label)"


def draw_examples(figure: Any, dataset: Dataset, rows: list[int], *, columns: int) -> None:
    """Draw a grid of rows, each with its index, part and labels.

    Args:
        figure: a matplotlib figure or subfigure.
        dataset: the data.
        rows: which rows, in reading order.
        columns: how many per line.

    Example:
        >>> from shortlist.data import Dataset, Texts
        >>> from shortlist.report.chart_matplotlib import new_figure
        >>> figure, flowers = new_figure(6, 2), Dataset(Texts(["red"]), torch.tensor([0]), ("rose",))
        >>> draw_examples(figure, flowers, [0], columns=2)
        >>> figure.axes[0].get_xlabel()
        'rose'
    """
    shown = [read_example(dataset, row) for row in rows]
    cells = [_heat(one.example.input) if one.example is not None else None for one in shown]
    span = _span(cells)
    axes = figure.subplots(-(-len(rows) // columns), columns, squeeze=False).flat
    for axis in axes[len(rows) :]:
        axis.set_axis_off()
    width, text_width = _CAPTION_WIDTH // columns, _TEXT_WIDTH // columns
    for axis, one, heat in zip(axes, shown, cells, strict=False):
        axis.set(xticks=[], yticks=[])
        for spine in axis.spines.values():
            spine.set(color=_FRAME, linewidth=0.6)
        if one.example is None:
            _write(axis, f"cannot be read: {one.reason}", text_width, color=_MARK)
            axis.set_title(f"row {one.row:,}", fontsize=7, color=_PALE)
            continue
        part = "" if one.example.split is None else f" · {shorten(one.example.split, 20)}"
        axis.set_title(f"row {one.row:,}{part}", fontsize=7, color=_PALE, parse_math=False)
        caption = wrap(describe_labels(one.example), width, 3)
        if dataset.inputs.kind == "object pairs":
            caption = f"{shorten(describe_input(dataset, one.example), width)}\n{caption}"
        axis.set_xlabel(caption, fontsize=7.5, color=_INK, parse_math=False)
        _draw_input(axis, dataset, one.example, heat, span, text_width)


def _feature(value: float) -> str:
    """Three significant digits, or all digits before the decimal point; an exponent only to avoid many zeros."""
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def _draw_input(
    axis: Any, dataset: Dataset, example: Example, heat: Any, span: tuple[float, float], width: int
) -> None:
    content = example.input
    if dataset.inputs.kind == "object pairs":
        _draw_pair(axis, content)
    elif isinstance(content, Tensor) and dataset.inputs.kind == "images" and content.dim() == 3:
        step = max(1, -(-max(content.shape[1:]) // _MAX_PIXELS))
        pixels = content[:, ::step, ::step].permute(1, 2, 0).numpy()
        gray = pixels.shape[2] == 1
        axis.imshow(pixels[..., 0] if gray else pixels, cmap="gray" if gray else None, vmin=0, vmax=255)
    elif heat is not None:
        square = heat.shape[0] > 1
        low, high = span
        axis.imshow(heat, aspect="equal" if square else "auto", cmap="viridis", vmin=low, vmax=high)
        axis.set_box_aspect(None if square else 0.4)
    else:
        _write(axis, describe_input(dataset, example), width)


def _write(axis: Any, text: str, width: int, *, color: str = _INK) -> None:
    text = wrap(text, width, _TEXT_LINES)
    look = {"transform": axis.transAxes, "va": "top", "clip_on": True}
    # Keep the text out of the layout, where it would push its neighbors aside; it is clipped to its frame.
    axis.text(0.03, 0.95, text, fontsize=7, color=color, parse_math=False, **look).set_in_layout(False)


def _draw_pair(axis: Any, pair: Any) -> None:
    """Two boxes within their image: the subject dark, the object orange."""
    patches = require("matplotlib.patches", extra="report")
    width, height = (max(1.0, float(side)) for side in pair.image_size)
    for box, color in ((pair.subject_box, _INK), (pair.object_box, _MARK)):
        x1, y1, x2, y2 = (float(side) for side in box)
        axis.add_patch(patches.Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=color, linewidth=1.5))
    axis.set(xlim=(0, width), ylim=(height, 0), aspect="equal")


def _pair_names(dataset: Dataset, pair: Any) -> list[str]:
    names = getattr(dataset.inputs, "object_names", ())
    classes = [int(pair.subject), int(pair.object)]
    return [one_line(names[each]) if each < len(names) else f"class {each}" for each in classes]


def _heat(content: Any) -> np.ndarray | None:
    """Features as an image: a matrix unchanged, anything else as a strip of at most 256 cells; None if empty."""
    if not isinstance(content, Tensor) or not content.numel():
        return None
    if content.layout != torch.strided:
        return _sparse_strip(content)
    values = content.double().numpy()
    values = np.where(np.isfinite(values), values, np.nan)
    if values.ndim == 2 and min(values.shape) > 1:
        step = [max(1, -(-side // _MAX_PIXELS)) for side in values.shape]
        return values[:: step[0], :: step[1]]
    flat = values.reshape(1, -1)
    return flat[:, :: max(1, -(-flat.shape[1] // _MAX_CELLS))]


def _sparse_strip(content: Tensor) -> np.ndarray:
    """The largest magnitude in each of at most 256 ranges of columns."""
    entries = content.to_sparse_coo().coalesce()
    cells = min(_MAX_CELLS, content.numel())
    bins = entries.indices()[-1].numpy() * cells // content.shape[-1]
    strip = np.zeros((1, cells))
    np.maximum.at(strip[0], bins, np.abs(entries.values().double().numpy()))
    return np.where(np.isfinite(strip), strip, np.nan)


def _span(cells: list[np.ndarray | None]) -> tuple[float, float]:
    """One color scale for all examples, robust to outliers."""
    values = np.concatenate([cell.ravel() for cell in cells if cell is not None] or [np.zeros(1)])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = (float(bound) for bound in np.percentile(values, [1, 99]))
    return (low, high) if high > low else (float(values.min()), max(float(values.max()), float(values.min()) + 1e-9))
