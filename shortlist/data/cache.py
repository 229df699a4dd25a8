"""Where what was computed once is kept: parsed texts, frozen features."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder of the environment variable ``SHORTLIST_CACHE``, else ``shortlist`` among the user's caches."""
    chosen = os.environ.get("SHORTLIST_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "shortlist"
