"""Run kernels on several threads. Short ones use torch's own threads, because starting new ones would cost more."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist.kernels import projection_code

_GRAIN = 1 << 14
"""Minimum number of entries per thread."""

_SHARES = 4
"""How often a thread fetches rows, because rows differ in cost."""


class _Job(ctypes.Structure):
    _fields_ = (*((name, ctypes.c_int64) for name in projection_code.JOB), ("temperature", ctypes.c_double))


def run(kernel: str, x: Tensor, temperature: float, **others: Tensor) -> int:
    """Run a kernel of ``projection_code`` over the rows of ``x``; return how many rows did not converge.

    All tensors are float32 and contiguous.
    """
    entries, labels = x.numel(), x.shape[-1]
    rows = entries // labels
    threads, at_once = _shares(rows, entries)
    job = _Job(at_once=at_once, rows=rows, labels=labels, x=x.data_ptr(), temperature=temperature)
    for name, tensor in others.items():
        setattr(job, name, tensor.data_ptr())
    if "k" in others:
        job.k_step = others["k"].numel() > 1
    if "per_row" in others:
        job.columns = others["per_row"].shape[-1]
    code, address = getattr(projection_code, kernel)(), ctypes.addressof(job)
    if threads == 1:
        code.ctypes(address)
    elif (team := _openmp()) is not None:
        team(code.address, address, threads, 0)
    else:
        for part in [_pool(threads).submit(code.ctypes, address) for _ in range(threads)]:
            part.result()
    return job.unsettled


def run_parts(work: Callable[[int, int], object], rows: int, entries: int) -> None:
    """Call ``work(start, stop)``, long-running compiled code that releases the GIL, for ranges of rows."""
    threads, at_once = _shares(rows, entries)
    if threads == 1:
        work(0, rows)
    else:
        starts = range(0, rows, at_once)
        for part in [_pool(threads).submit(work, start, min(start + at_once, rows)) for start in starts]:
            part.result()


def _shares(rows: int, entries: int) -> tuple[int, int]:
    """How many threads to use, and how many rows each fetches at a time."""
    threads = max(1, min(torch.get_num_threads(), rows, entries // _GRAIN))
    return threads, -(-rows // (_SHARES * threads))


@functools.cache
def _openmp() -> Any:
    """OpenMP's function to start a team of threads, from torch's own library; None if torch does not use libgomp."""
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib"):
        try:
            call = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / name)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        call.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        call.restype = None
        return call
    return None


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="shortlist")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
