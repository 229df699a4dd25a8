"""Progress of long work on standard error: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shortlist.formatting import format_duration, format_percent

_DELAY = 1.0
_SECONDS_BETWEEN_LINES = 30.0
# Work that will take this long says so as soon as its pace has been seen for a few seconds.
_LONG, _PACE_SEEN = 60.0, 3.0
# The first moments, in which kernels compile and caches fill, say nothing about the rest: until this share of the work
# is done, or for so many seconds, the time left is unknown.
_FIRST_SHARE, _FIRST_SECONDS = 0.01, 20.0
# A step of this share of the work, in less than this many seconds, was done by an earlier command that is resumed.
_LARGE_STEP, _AT_ONCE = 0.01, 0.2


class ProgressBar:
    """The progress of one task; created by `progress_bar`.

    Args:
        description: what is being done.
        total: the total amount of work; None if not known yet.
        completed: how much is already done.
        unit: plural noun for what is counted; without it, a percentage is shown.
    """

    def __init__(self, description: str, total: float | None, completed: float, unit: str) -> None:
        self.description, self.total, self.completed, self.unit = description, total, completed, unit
        self._before, self._began = completed, time.monotonic()
        self._working_since = self._began
        self._left: float | None = None
        self._updated = self._began

    def update(
        self,
        completed: float,
        total: float | None = None,
        description: str | None = None,
        *,
        seconds_left: float | None = None,
    ) -> None:
        """Report how much is done; before any progress, that the work begins now and what came before was preparation.

        Args:
            completed: how much of the total is done.
            total: the total, if it changed.
            description: the description, if it changed.
            seconds_left: an estimate that replaces extrapolation from the pace so far.
        """
        self.total = self.total if total is None else total
        now, step = time.monotonic(), completed - self.completed
        if self.total and step >= _LARGE_STEP * self.total and now - self._updated < _AT_ONCE:
            self._before += step
        if completed == self._before:
            self._working_since = now
        self.completed, self._updated = completed, now
        self.description = self.description if description is None else description
        self._left = seconds_left
        self._show()

    def advance(self, amount: float = 1) -> None:
        """Report that more is done."""
        self.update(self.completed + amount)

    def message(self, line: str) -> None:
        """Write a permanent line."""
        sys.stderr.write(f"{line}\n")

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds left; None while unknown."""
        fresh = self.completed - self._before
        if self._left is not None or self.total is None or fresh <= 0:
            return self._left
        if fresh < _FIRST_SHARE * self.total and self._working_time < _FIRST_SECONDS:
            return None
        return self._working_time * max(0.0, self.total - self.completed) / fresh

    @property
    def elapsed(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self._began

    @property
    def _working_time(self) -> float:
        return time.monotonic() - self._working_since

    def _amount(self) -> str:
        if self.total is None:
            return f"{self.completed:,.0f} {self.unit}" if self.unit else ""
        if not self.unit:
            return format_percent(self.completed / self.total if self.total else 1.0, decimals=0)
        done = f"{self.completed:,.0f}" if self.completed == int(self.completed) else f"{self.completed:,.1f}"
        return f"{done} of {self.total:,.0f} {self.unit}"

    def _pace(self) -> str:
        """The rate and the time left, if known."""
        words = []
        rate = (self.completed - self._before) / max(self._working_time, 1e-9)
        if self.unit and rate >= 10:
            words.append(f"{rate:,.0f} per second")
        left = self.seconds_left
        if left is not None and self.total is not None and self.completed < self.total:
            words.append(f"about {format_duration(round(left))} left")
        return ", ".join(words)

    def _show(self) -> None:
        """Shows nothing."""


class _Lines(ProgressBar):
    """Writes a line every half minute; the first one early if the work will be long. Short work prints nothing."""

    _last = 0.0

    def _show(self) -> None:
        long = not self._last and self.elapsed >= _PACE_SEEN and (self.seconds_left or 0) >= _LONG
        if long or self.elapsed - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = self.elapsed
            pace = self._pace()
            self.message(f"{self.description}: {self._amount()}{pace and ', ' + pace}")


class _RichBar(ProgressBar):
    """A bar that appears only if the work takes long, and disappears at the end."""

    def __init__(
        self, description: str, total: float | None, completed: float, unit: str, *, delay: float, rich: Any
    ) -> None:
        super().__init__(description, total, completed, unit)
        text = [rich.TextColumn("{task.fields[" + name + "]}", markup=False) for name in ("about", "amount", "pace")]
        columns = (text[0], rich.BarColumn(), text[1], rich.TimeElapsedColumn(), text[2])
        console = _import("rich.console").Console(stderr=True)
        self._bar, self._delay = rich.Progress(*columns, console=console, transient=True), delay
        self._task = self._bar.add_task("", total=total, completed=completed, **self._fields())
        if delay <= 0:
            self._bar.start()

    def message(self, line: str) -> None:
        if self._bar.live.is_started:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            super().message(line)

    def stop(self) -> None:
        self._bar.stop()

    def _fields(self) -> dict[str, str]:
        return {"about": self.description, "amount": self._amount(), "pace": self._pace()}

    def _show(self) -> None:
        self._bar.update(self._task, completed=self.completed, total=self.total, **self._fields())
        if self.elapsed >= self._delay:
            self._bar.start()


@contextmanager
def progress_bar(
    description: str,
    total: float | None = None,
    *,
    completed: float = 0,
    unit: str = "",
    shown: bool = True,
    delay: float = _DELAY,
) -> Iterator[ProgressBar]:
    """Show the progress of the work in the block on standard error.

    On a terminal this is a bar that disappears when the block ends, elsewhere (or without the package rich) a line
    every half minute, and a first one with the time left as soon as it is known to be a minute or more. Work that takes
    less than ``delay`` shows nothing.

    Args:
        description: what is being done.
        total: the total amount of work; None if `ProgressBar.update` will set it.
        completed: how much is already done.
        unit: plural noun for what is counted; without it, a percentage is shown.
        shown: False to show nothing, so that callers need no case distinction.
        delay: seconds until a bar appears.

    Example:
        >>> with progress_bar("reading", 3, unit="rows") as bar:
        ...     for row in range(3):
        ...         bar.advance()
        >>> bar.completed
        3
    """
    if not shown:
        yield ProgressBar(description, total, completed, unit)
        return
    rich = _import("rich.progress") if sys.stderr.isatty() else None
    if rich is None:
        yield _Lines(description, total, completed, unit)
        return
    bar = _RichBar(description, total, completed, unit, delay=delay, rich=rich)
    try:
        yield bar
    finally:
        bar.stop()  # Stop before an error message is written, which the bar would overwrite.


def _import(name: str) -> Any:
    """Return a module of rich, or None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None
