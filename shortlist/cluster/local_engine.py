"""Tasks in processes of this machine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from shortlist.cluster.engine import Engine
from shortlist.cluster.held import Held
from shortlist.extras import require


@contextmanager
def local_engine(jobs: int) -> Iterator[Engine]:
    """Processes that joblib starts, or what ``joblib.parallel_config`` says instead."""
    # Joblib gives up all processes when one of them is killed, and says nothing about tasks.
    broken = require("joblib.externals.loky.process_executor", extra="audit").BrokenProcessPool
    with warnings.catch_warnings():
        # A process that has grown is ended and another one takes its place, which is no news.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
        yield Engine(jobs, "2*n_jobs", lambda: None, Held, (broken,))
