"""All charts of a comparison, and their files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shortlist.report.chart import Panel
from shortlist.report.chart_matplotlib import draw_chart
from shortlist.report.class_charts import class_panel
from shortlist.report.run_charts import audit_panel, calibration_panel, training_panels
from shortlist.report.saving import save_figure
from shortlist.report.set_charts import error_panel, shot_panel, size_panel

_ENDINGS = (".png", ".svg")


def comparison_panels(document: dict[str, Any]) -> list[Panel]:
    """The panels of a comparison in the order of the report.

    Args:
        document: of `shortlist.report.comparison_document.read_comparison`.

    Returns:
        One panel for each kind of chart; without those for which the document has nothing.
    """
    panels = [
        error_panel(document),
        size_panel(document),
        shot_panel(document),
        class_panel(document),
        calibration_panel(document),
        audit_panel(document),
        *training_panels(document),
    ]
    return [panel for panel in panels if panel is not None and panel.charts]


def draw_figures(
    documents: dict[str, dict[str, Any]], folder: str | Path, *, progress: Callable[[str], object] | None = None
) -> list[Path]:
    """Draw every chart of comparisons at the K that was asked for, as PNG and as SVG.

    Args:
        documents: comparisons by a name for their files.
        folder: where to write; made if it is not there.
        progress: called with the name of each file before it is drawn.

    Returns:
        The files, in the order of the report.
    """
    written: list[Path] = []
    taken: set[str] = set()
    for job, document in documents.items():
        place = document["ks"].index(document["k"])
        for panel in comparison_panels(document):
            for choice in panel.charts:
                parts = [job] if len(documents) > 1 else []
                parts += [panel.name, choice] if len(panel.charts) > 1 else [panel.name]
                name = _free_name("-".join(parts), taken)
                if progress is not None:
                    progress(name)
                figure = draw_chart(panel.at(choice, place))
                written += [save_figure(figure, Path(folder) / f"{name}{ending}") for ending in _ENDINGS]
    return written


def _free_name(words: str, taken: set[str]) -> str:
    """Letters, digits and hyphens that no other file has; names of users may hold anything."""
    base = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:80] or "figure"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    return name
