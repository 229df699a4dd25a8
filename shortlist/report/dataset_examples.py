"""Examples of a dataset: which rows, and how images, texts, features and pairs of objects are shown."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.data import Dataset, Example
from shortlist.data.draws import Draws
from shortlist.extras import require

_INK, _PALE, _MARK = "#264653", "#777777", "#b5651d"
_FRAME = "#cccccc"
_MOST_PIXELS = 400
_MOST_CELLS = 256
# Letters in a row of cells, at sizes that leave room for capitals.
_CAPTION_LETTERS, _TEXT_LETTERS, _TEXT_LINES = 174, 208, 10


class Shown(NamedTuple):
    """A row with its content, or with the reason why it could not be read.

    Args:
        row: its number.
        example: its content; None if it could not be read.
        reason: why not, in one sentence; empty if it could.

    Example:
        >>> Shown(3, None, "`b.jpg` is not there.").reason
        '`b.jpg` is not there.'
    """

    row: int
    example: Example | None
    reason: str = ""


def example_rows(num_rows: int, count: int, *, seed: int = 0) -> list[int]:
    """Choose rows by chance, each at most once, ascending.

    Args:
        num_rows: how many rows there are.
        count: how many are wanted; all rows, if there are fewer.
        seed: the same seed gives the same rows, on any platform.

    Returns:
        Numbers of rows.

    Raises:
        ValueError: if ``count`` is negative, or ``seed`` no whole number from 0.

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
    """Read a row; one that cannot be read, such as a damaged image, is to be shown with the reason.

    Args:
        dataset: where the row is.
        row: its number.

    Returns:
        The row, or the reason: a damaged or missing file, or a library that reading it needs.

    Example:
        >>> from shortlist.data import Dataset, ImageFiles
        >>> read_example(Dataset(ImageFiles(["no.jpg"]), torch.tensor([0]), ("daisy",)), 0).example is None
        True
    """
    try:
        return Shown(row, dataset[row])
    except OSError as error:
        told = error.strerror is not None and error.filename is not None
        return Shown(row, None, f"`{error.filename}`: {error.strerror}." if told else str(error))
    except (ValueError, ImportError) as error:
        return Shown(row, None, str(error))


def one_line(text: str) -> str:
    r"""The text with single spaces for line ends, tabs and whatever else is not printed.

    Args:
        text: any text.

    Returns:
        The same in one line, without spaces at its ends.

    Example:
        >>> one_line(" red\n\trose ")
        'red rose'
    """
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def describe_input(dataset: Dataset, example: Example) -> str:
    """What the input of a row is, in one line.

    Args:
        dataset: where the row is, for the kind of its inputs.
        example: the row.

    Returns:
        The text itself, the sides of an image, the first features, or the classes of a pair of objects.

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
        return f"{int((values != 0).sum()):,} of {content.numel():,} features are not 0"
    if dataset.inputs.kind == "images" and content.dim() == 3:
        return f"{content.shape[2]} × {content.shape[1]} pixels, {'grey' if content.shape[0] == 1 else 'colour'}"
    flat = content.flatten()
    values = ", ".join(map(_feature, flat[:6].tolist()))
    return f"{values}{', …' if len(flat) > 6 else ''}"


def describe_labels(example: Example) -> str:
    """The labels of a row, unknown ones after them with a question mark, in one line.

    Args:
        example: the row.

    Returns:
        Names between commas.

    Example:
        >>> from shortlist.data import Example
        >>> describe_labels(Example("red", labels=("rose", "garden"), unknown=("wild",), split=None))
        'rose, garden, wild?'
    """
    names = [one_line(name) or repr(name) for name in example.labels]
    return ", ".join(names + [f"{one_line(name)}?" for name in example.unknown]) or "(no label)"


def draw_examples(figure: Any, dataset: Dataset, rows: list[int], *, columns: int) -> None:
    """Draw a grid of rows into a figure or subfigure, each with its number, part and labels.

    Args:
        figure: a matplotlib figure or subfigure with room for the grid.
        dataset: where the rows are.
        rows: which rows, from left to right and from top to bottom.
        columns: how many side by side.

    Example:
        >>> from shortlist.data import Dataset, Texts
        >>> from shortlist.report.saving import new_figure
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
    width, text_width = _CAPTION_LETTERS // columns, _TEXT_LETTERS // columns
    for axis, one, heat in zip(axes, shown, cells, strict=False):
        axis.set(xticks=[], yticks=[])
        for spine in axis.spines.values():
            spine.set(color=_FRAME, linewidth=0.6)
        if one.example is None:
            _write(axis, f"cannot be read: {one.reason}", text_width, colour=_MARK)
            axis.set_title(f"row {one.row:,}", fontsize=7, color=_PALE)
            continue
        part = "" if one.example.split is None else f" · {shorten(one.example.split, 20)}"
        axis.set_title(f"row {one.row:,}{part}", fontsize=7, color=_PALE, parse_math=False)
        caption = wrap(describe_labels(one.example), width, 3)
        if dataset.inputs.kind == "object pairs":
            caption = f"{shorten(describe_input(dataset, one.example), width)}\n{caption}"
        axis.set_xlabel(caption, fontsize=7.5, color=_INK, parse_math=False)
        _draw_input(axis, dataset, one.example, heat, span, text_width)


def wrap(text: str, width: int, lines: int) -> str:
    """The text in lines; what is too much ends in an ellipsis. Only drawable letters.

    Args:
        text: any text.
        width: how many letters a line may have.
        lines: how many lines there may be.

    Returns:
        Lines with ends between them.

    Example:
        >>> wrap("a red rose in the garden", 10, 2).splitlines()
        ['a red rose', 'in the …']
    """
    text = drawable(text)[: 2 * width * lines]  # Wrapping a whole book to show its first page takes long.
    return "\n".join(textwrap.wrap(text, width, max_lines=lines, placeholder=" …", break_on_hyphens=False))


def shorten(text: str, width: int) -> str:
    """The text in one line. Only drawable letters.

    Args:
        text: any text.
        width: how many letters the line may have.

    Returns:
        The text, or its beginning with an ellipsis.

    Example:
        >>> shorten("a red rose", 6)
        'a red…'
    """
    text = drawable(text)
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def drawable(text: str) -> str:
    r"""The text in one line, with a box for each letter that the font lacks (matplotlib would warn of each).

    Args:
        text: any text.

    Returns:
        As many letters as `one_line` leaves.

    Raises:
        ImportError: if matplotlib is not installed.

    Example:
        >>> drawable("rose\t花")
        'rose ▯'
    """
    fonts = require("matplotlib.font_manager", extra="report")
    known = fonts.get_font(fonts.findfont(fonts.FontProperties())).get_charmap()
    return "".join(letter if ord(letter) in known else "▯" for letter in one_line(text))


def _feature(value: float) -> str:
    """Three digits, and all that stand before the point; exponents only where there would be many zeros."""
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"


def _draw_input(
    axis: Any, dataset: Dataset, example: Example, heat: Any, span: tuple[float, float], width: int
) -> None:
    content = example.input
    if dataset.inputs.kind == "object pairs":
        _draw_pair(axis, content)
    elif isinstance(content, Tensor) and dataset.inputs.kind == "images" and content.dim() == 3:
        step = max(1, -(-max(content.shape[1:]) // _MOST_PIXELS))
        pixels = content[:, ::step, ::step].permute(1, 2, 0).numpy()
        grey = pixels.shape[2] == 1
        axis.imshow(pixels[..., 0] if grey else pixels, cmap="gray" if grey else None, vmin=0, vmax=255)
    elif heat is not None:
        square = heat.shape[0] > 1
        low, high = span
        axis.imshow(heat, aspect="equal" if square else "auto", cmap="viridis", vmin=low, vmax=high)
        axis.set_box_aspect(None if square else 0.4)
    else:
        _write(axis, describe_input(dataset, example), width)


def _write(axis: Any, text: str, width: int, *, colour: str = _INK) -> None:
    text = wrap(text, width, _TEXT_LINES)
    place = {"transform": axis.transAxes, "va": "top", "clip_on": True}
    # A text in the layout could push its neighbours aside; it has its own frame and is clipped to it.
    axis.text(0.03, 0.95, text, fontsize=7, color=colour, parse_math=False, **place).set_in_layout(False)


def _draw_pair(axis: Any, pair: Any) -> None:
    """Two boxes in the frame of their image; the subject dark, the object orange."""
    patches = require("matplotlib.patches", extra="report")
    width, height = (max(1.0, float(side)) for side in pair.image_size)
    for box, colour in ((pair.subject_box, _INK), (pair.object_box, _MARK)):
        x1, y1, x2, y2 = (float(side) for side in box)
        axis.add_patch(patches.Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colour, linewidth=1.5))
    axis.set(xlim=(0, width), ylim=(height, 0), aspect="equal")


def _pair_names(dataset: Dataset, pair: Any) -> list[str]:
    names = getattr(dataset.inputs, "object_names", ())
    places = [int(pair.subject), int(pair.object)]
    return [one_line(names[place]) if place < len(names) else f"class {place}" for place in places]


def _heat(content: Any) -> np.ndarray | None:
    """Features as a picture: a matrix as it is, anything else as a strip of at most 256 cells; None for no features."""
    if not isinstance(content, Tensor) or not content.numel():
        return None
    if content.layout != torch.strided:
        return _sparse_strip(content)
    values = content.double().numpy()
    values = np.where(np.isfinite(values), values, np.nan)
    if values.ndim == 2 and min(values.shape) > 1:
        step = [max(1, -(-side // _MOST_PIXELS)) for side in values.shape]
        return values[:: step[0], :: step[1]]
    flat = values.reshape(1, -1)
    return flat[:, :: max(1, -(-flat.shape[1] // _MOST_CELLS))]


def _sparse_strip(content: Tensor) -> np.ndarray:
    """The largest absolute value in each of at most 256 stretches of the columns."""
    entries = content.to_sparse_coo().coalesce()
    cells = min(_MOST_CELLS, content.numel())
    places = entries.indices()[-1].numpy() * cells // content.shape[-1]
    strip = np.zeros((1, cells))
    np.maximum.at(strip[0], places, np.abs(entries.values().double().numpy()))
    return np.where(np.isfinite(strip), strip, np.nan)


def _span(cells: list[np.ndarray | None]) -> tuple[float, float]:
    """One scale of colours for all examples; outliers do not stretch it."""
    values = np.concatenate([cell.ravel() for cell in cells if cell is not None] or [np.zeros(1)])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = (float(bound) for bound in np.percentile(values, [1, 99]))
    return (low, high) if high > low else (float(values.min()), max(float(values.max()), float(values.min()) + 1e-9))
