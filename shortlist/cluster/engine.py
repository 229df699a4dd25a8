"""What the three places where tasks run have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shortlist import __version__
from shortlist.cluster.address import Address


class Lost:
    """Stands where the result of a task would, if the worker that had it is gone."""


@dataclass(frozen=True)
class Engine:
    """Where one call of `run_tasks` sends its tasks.

    Args:
        jobs: how many at a time, as joblib takes it.
        pre_dispatch: how many to hand out before results come, as joblib takes it.
        backend: makes a backend of joblib for one round of tasks, or None for joblib's own.
        send: from what all tasks share to what each of them takes along.
        broken: exceptions that say that workers are gone, and end a round.
    """

    jobs: int
    pre_dispatch: int | str
    backend: Callable[[], Any]
    send: Callable[[Any], Any]
    broken: tuple[type[BaseException], ...] = ()


# For joblib, one worker means to do the work in the calling process.
FEWEST_JOBS = 2


def refuse_other_versions(address: Address, found: Mapping[str, object]) -> None:
    """Refuse workers that have no shortlist or another one; they would fail in the middle, or compute other things.

    Args:
        address: of the cluster.
        found: by worker, its version or what was raised when it was asked for. A worker that is gone says nothing.

    Raises:
        ImportError: in one sentence, with the name of a worker.
    """
    for worker, version in found.items():
        if isinstance(version, ImportError):
            reason = " ".join(str(version).split()).rstrip(".")
            raise ImportError(f"worker {worker} of `{address.text}` cannot import shortlist: {reason}.")
        if isinstance(version, str) and version != __version__:
            raise ImportError(
                f"worker {worker} of `{address.text}` has shortlist {version} and this process {__version__}; install "
                "the same release on both."
            )
