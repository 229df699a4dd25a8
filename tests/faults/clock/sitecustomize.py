"""Imported by Python at its start: after so many seconds, ``time.time`` is a day earlier."""

import os
import time

_real, _jump = time.time, time.monotonic() + float(os.environ.get("CLOCK_JUMPS_AFTER", "inf"))


def _set_back() -> float:
    return _real() - (86_400 if time.monotonic() > _jump else 0)


time.time = _set_back
