"""``python -m shortlist`` and the command ``shortlist``: an interrupt is one line, from first import to exit."""

import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn


def main() -> int:
    """Run the command line and return its exit code."""
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _show_unraisable
    try:
        from shortlist.cli import main as run

        return run()
    except KeyboardInterrupt:
        return _leave()
    finally:
        # What Python does at exit would print a traceback.
        signal.signal(signal.SIGINT, _leave)


def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import, leave at once, because libraries turn it into other errors there."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            _leave()
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave(*_: Any) -> NoReturn:
    os.write(2, b"\nshortlist: interrupted.\n")
    os._exit(130)


def _show_unraisable(error: Any) -> None:
    """Obey an interrupt that Python would drop, because it came within a destructor."""
    if issubclass(error.exc_type, KeyboardInterrupt):
        _leave()
    sys.__unraisablehook__(error)


if __name__ == "__main__":
    raise SystemExit(main())
