"""A run of a comparison on a worker that may not see the folder of the comparison: its files travel back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import torch

from shortlist.cluster.tasks import worker_threads
from shortlist.comparison_document import RunDetails
from shortlist.data import Dataset
from shortlist.files import cache_folder, replacing
from shortlist.train.compared_run import RESULT_FILE, Asked, compared_run, identity_of

Files = dict[str, bytes]


def distant_run(dataset: Dataset, asked: Asked) -> tuple[RunDetails, Files]:
    """Train and evaluate, and give what belongs into the folder of the run; nothing is written there.

    Args:
        dataset: of the comparison.
        asked: which run; one without a place gives no files.

    Returns:
        The figures and details of the run, and the content of its files by name.
    """
    threads = worker_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    with _folder_of(identity_of(dataset, asked)) as folder:
        details = compared_run(dataset, replace(asked, place=folder))
        named = () if asked.place is None else folder.iterdir()
        return details, {path.name: path.read_bytes() for path in named if path.is_file()}


def keep_files(place: Path, files: Files) -> None:
    """Write the files of a distant run, that of the result last: where it is, the others are."""
    for name in sorted(files, key=lambda name: name == RESULT_FILE):
        with replacing(place / name) as partial:
            partial.write_bytes(files[name])
    # Of the same run, begun here and finished elsewhere.
    shutil.rmtree(place / "checkpoints", ignore_errors=True)


@contextmanager
def _folder_of(identity: dict[str, Any]) -> Iterator[Path]:
    """A folder among the caches of the worker, where a run goes on that was killed there, or a new one."""
    name = blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16).hexdigest()
    folder = cache_folder() / "runs" / name
    lock = _taken(folder.with_suffix(".lock"))
    if lock is None:
        with TemporaryDirectory() as another:
            yield Path(another)
        return
    stopped = True  # Whatever stops the process leaves the folder to the next one.
    try:
        yield folder
        stopped = False
    except Exception:
        stopped = False
        raise
    finally:
        if not stopped:
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_suffix(".lock").unlink(missing_ok=True)
        lock.close()


def _taken(path: Path) -> IO[str] | None:
    """A lock that ends with this process; None where there are no locks, or another process has it.

    That one may be at the same run: the scheduler takes it for lost, or its caller was killed.
    """
    try:
        import fcntl

        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
