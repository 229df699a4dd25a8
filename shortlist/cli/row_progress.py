"""A bar for work on blocks of rows, which appears when the work turns out to be long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from shortlist.cli.scores_file import ScoreBlock, Scores
from shortlist.extras import require

_LONG_SECONDS = 1.0


@contextmanager
def watched_blocks(scores: Scores, about: str, *, shown: bool = True) -> Iterator[Iterator[ScoreBlock]]:
    """The blocks of ``scores``, with a bar on a terminal's standard error that leaves nothing behind.

    Args:
        scores: what is read.
        about: what is done with it.
        shown: False where something else is written to the terminal meanwhile.
    """
    if not shown or not sys.stderr.isatty():
        yield scores.blocks()
        return
    rich = require("rich.progress", extra="report")
    console = require("rich.console", extra="report").Console(stderr=True)
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
    )
    bar, began = rich.Progress(*columns, console=console, transient=True), time.monotonic()
    task = bar.add_task(f"{about}, rows", total=scores.num_rows)

    def advancing() -> Iterator[ScoreBlock]:
        for block in scores.blocks():
            yield block
            if time.monotonic() - began > _LONG_SECONDS:
                bar.start()
            bar.update(task, completed=block.rows.stop)

    try:
        yield advancing()
    finally:
        # Before any sentence about a mistake is written, which the bar would paint over.
        bar.stop()
