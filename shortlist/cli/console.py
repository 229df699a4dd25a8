"""What commands print: JSON, text, tables and bars, through rich, and how to go on after an interruption."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from shortlist.extras import require
from shortlist.progress import progress_bar


def print_json(content: Any) -> None:
    """Print plain values as JSON."""
    sys.stdout.write(json.dumps(content, indent=1) + "\n")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, with columns of equal width.

    Example:
        >>> aligned([("name", "use"), ("a", "none")])
        ['name  use', 'a     none']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def note(sentence: str) -> None:
    """Print a remark on standard error, so that it is not taken for the result."""
    sys.stderr.write(sentence + "\n")


def loading() -> AbstractContextManager[object]:
    """Say on a terminal that libraries are being imported, which takes seconds."""
    return progress_bar("loading", delay=0, shown=sys.stderr.isatty())


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Turn the SystemError that compiled code makes of an interrupt back into a KeyboardInterrupt."""
    try:
        yield
    except SystemError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        raise KeyboardInterrupt from error


@contextmanager
def resumable(options: argparse.Namespace, *, kept: bool | None = True) -> Iterator[None]:
    """Add the command that goes on to an interruption, if anything is kept; None if the interruption says so itself."""
    try:
        with plain_interrupts():
            yield
    except KeyboardInterrupt as error:
        if not (str(error) if kept is None else kept):
            raise
        about = f"{error}; " if str(error) else ""
        command = shlex.join(["shortlist", *options.command_line])
        raise KeyboardInterrupt(f"{about}to go on: {command}") from error


def console(*, wrap: bool = True) -> Any:
    """Return a console without automatic highlighting; without ``wrap``, the terminal wraps long lines."""
    return require("rich.console", extra="report").Console(highlight=False, soft_wrap=not wrap)


def text(content: str, style: str = "", **options: Any) -> Any:
    """Return text without markup, because label names may contain brackets."""
    return require("rich.text", extra="report").Text(content, style=style, **options)


def table(**options: Any) -> Any:
    """Return a table with lines."""
    return require("rich.table", extra="report").Table(**options)


def grid(*, padding: int = 2) -> Any:
    """Return a table without lines."""
    return require("rich.table", extra="report").Table.grid(padding=(0, padding))


def name_value_grid(rows: Iterable[tuple[str, Any]]) -> Any:
    """Return a table of names and values, which may take several lines."""
    found = grid()
    found.add_column(no_wrap=True)
    found.add_column(overflow="fold")
    for name, value in rows:
        found.add_row(text(name, "bold"), value)
    return found


def bars(counts: Iterable[tuple[str, int]], *, encoding: str, width: int = 30, padding: int = 2) -> Any:
    """Return horizontal bars, each with a name before it and a count after it.

    Args:
        counts: names and counts.
        encoding: encoding of the console, which may lack block characters.
        width: width of the longest bar.
        padding: space between the columns.
    """
    counts = list(counts)
    block = "█" if encoding.lower().startswith("utf") else "#"
    found = grid(padding=padding)
    found.add_column(justify="right", no_wrap=True)
    found.add_column(no_wrap=True)
    most = max((count for _, count in counts), default=0)
    for name, count in counts:
        # Show at least one block for any nonzero count.
        length = max(1, round(width * count / most)) if count else 0
        found.add_row(text(name), text(f"{block * length} {count:,}"))
    return found
