"""A bar for long work on a terminal: what is being done, how much of it, and how long it will take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shortlist.extras import require


@contextmanager
def work_bar(unit: str, *, times: bool = True) -> Iterator[Callable[[float, int, str], None] | None]:
    """Show a bar on standard error until the work ends, and then nothing; None where that is no terminal.

    Args:
        unit: what is counted, in the plural.
        times: whether to tell how long it took, and will take if all of it goes on as the part that is done.

    Returns:
        Takes how much is done, how much there is, and what is going on.
    """
    if not sys.stderr.isatty():
        yield None
        return
    rich = require("rich.progress", extra="report")
    console = require("rich.console", extra="report").Console(stderr=True)
    columns = [
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TextColumn("{task.completed:.1f} of {task.total:.0f} " + unit),
    ]
    if times:
        told = rich.TextColumn("after"), rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn()
        columns.extend(told)
    # Steps are few and of unlike length, so all of them count for what is left.
    with rich.Progress(*columns, console=console, transient=True, speed_estimate_period=1e9) as bar:
        task = bar.add_task("", total=1)

        def tell(done: float, total: int, now: str) -> None:
            bar.update(task, completed=done, total=total, description=now)

        yield tell
