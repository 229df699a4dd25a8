"""A bar for work on blocks of rows, which appears when the work turns out to be long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shortlist.cli.scores_file import ScoreBlock, Scores
from shortlist.extras import require

_LONG_SECONDS = 1.0


@contextmanager
def watched_blocks(scores: Scores, about: str, *, shown: bool = True, start: int = 0) -> Iterator[Iterator[ScoreBlock]]:
    """The blocks of ``scores``, with a bar on a terminal's standard error that leaves nothing behind.

    The bar tells how many rows are done of how many, how many a second, and how long the others will take.

    Args:
        scores: what is read.
        about: what is done with it.
        shown: False where something else is written to the terminal meanwhile.
        start: the row to begin with; those before it are done.
    """
    if not shown or not sys.stderr.isatty():
        yield scores.blocks(start)
        return
    rich = require("rich.progress", extra="report")
    console = require("rich.console", extra="report").Console(stderr=True)
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[rate]}"),
        rich.TimeRemainingColumn(),
    )
    bar, began = rich.Progress(*columns, console=console, transient=True), time.monotonic()
    task = bar.add_task(f"{about}, rows", total=scores.num_rows, completed=start, rate="")

    def advancing() -> Iterator[ScoreBlock]:
        for block in scores.blocks(start):
            yield block
            if time.monotonic() - began > _LONG_SECONDS:
                bar.start()
            bar.update(task, completed=block.rows.stop, rate=_rate(bar.tasks[task]))

    try:
        yield advancing()
    finally:
        # Before any sentence about a mistake is written, which the bar would paint over.
        bar.stop()


def _rate(task: Any) -> str:
    return "" if task.speed is None else f"{task.speed:,.0f} a second"
