"""Processes that end when they should not, or go on when they should end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import cache
from threading import Thread
from typing import TypeVar

from shortlist.extras import require

_SECONDS_BETWEEN_LOOKS = 1.0
Result = TypeVar("Result")


@cache  # A process does many runs.
def end_with(caller: int) -> None:
    """End this process soon after its caller was killed: started again, that one does the same work in its place."""

    def watch() -> None:
        while os.getppid() == caller:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def unless_ended(results: Iterator[Result], advice: str) -> Iterator[Result]:
    """What processes of joblib give; ChildProcessError with some advice if one of them was ended from outside."""
    broken = require("joblib.externals.loky.process_executor", extra="train").BrokenProcessPool
    try:
        yield from results
    except broken as error:
        raise ChildProcessError(f"a process was ended from outside, perhaps for want of memory; {advice}.") from error
