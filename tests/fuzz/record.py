"""Calls and failures of fuzzing, which add up over runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_MOST_SHOWN = 10


class Record:
    """Calls and failures of one kind, which add up over runs.

    Args:
        path: a JSON file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        content = json.loads(path.read_text()) if path.is_file() else {}
        self.calls: int = content.get("calls", 0)
        self.next_seed: int | None = content.get("next_seed")
        self.failures: dict[str, str] = content.get("failures", {})

    def save(self) -> None:
        """Write atomically."""
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(vars(self) | {"_path": None}, indent=1))
        partial.replace(self._path)

    def show(self, kind: str) -> None:
        """Print calls and the first failures."""
        sys.stdout.write(f"{kind}: {self.calls} calls, {len(self.failures)} failures\n")
        for name, problem in list(self.failures.items())[:_MOST_SHOWN]:
            sys.stdout.write(f"  {name}: {problem.strip().splitlines()[-1][:300]}\n")
        sys.stdout.flush()
