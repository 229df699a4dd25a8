"""What tells one question of a command from another, so that the work on one is never taken for that on the other."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from shortlist import __version__


def file_identity(path: str | Path | None, *, besides: Sequence[Path] = ()) -> dict[str, Any] | None:
    """Where a file or folder is, how large and how old: for data too large to be read for that.

    A folder counts with all files inside, but for those ``besides``, which the work itself writes. Of what is no path,
    such as a dataset inside a package, the name counts.
    """
    if path is None:
        return None
    path = Path(path)
    if path.is_dir():
        return {"path": os.path.abspath(path), "files": _folder_digest(path, {os.path.abspath(own) for own in besides})}
    if not path.exists():
        return {"name": str(path)}
    state = path.stat()
    return {"path": os.path.abspath(path), "size": state.st_size, "changed": state.st_mtime_ns}


def content_identity(path: str | Path | None) -> str | None:
    """The digest of a small file."""
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()


def versions() -> dict[str, str]:
    """Of the software that gives the answers; another one may round differently."""
    return {"shortlist": __version__, "torch": str(torch.__version__)}


def _folder_digest(folder: Path, besides: set[str]) -> str:
    digest = hashlib.sha256()
    for place, inner, files in os.walk(os.path.abspath(folder)):
        inner[:] = sorted(name for name in inner if os.path.join(place, name) not in besides)
        for name in sorted(files):
            file = os.path.join(place, name)
            if file not in besides:
                state = os.stat(file) if os.path.exists(file) else os.lstat(file)
                digest.update(os.fsencode(file) + f"\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()
