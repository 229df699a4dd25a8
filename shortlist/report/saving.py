"""Figures without global state, written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shortlist.extras import require
from shortlist.files import replacing


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure of that size in inches.

    It belongs to nobody but the caller: no window, no change of the chosen backend, nothing to close.
    """
    return require("matplotlib.figure", extra="report").Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: str | Path, *, dpi: int = 150) -> Path:
    """Write ``figure`` as a whole.

    Args:
        figure: a matplotlib figure.
        path: where to write; the ending chooses the format (``.png``, ``.svg``, ``.pdf``). Missing folders are made.
        dpi: dots per inch of a bitmap.

    Returns:
        ``path``, once the file is complete. If writing fails, what stood there before still does.
    """
    path = Path(path)
    with replacing(path) as partial:
        figure.savefig(partial, format=path.suffix.lstrip(".") or "png", dpi=dpi)
    return path
