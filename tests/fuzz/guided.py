"""Fuzz parsers, guided by coverage: ``python -m tests.fuzz.guided FOLDER SECONDS SEED``, run by `tests.fuzz`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.record import Record


def fuzz_parsers(record: Record, folder: Path, seconds: float, seed: int) -> None:
    """Mutate files until the time is up, then leave; the first two bytes of an input choose the target.

    Without atheris, which the extra ``fuzz`` has, mutations are blind.
    """
    atheris: Any = importlib.import_module("atheris") if importlib.util.find_spec("atheris") else None
    # Only here: instrumented modules are slow, and numba cannot compile them.
    with contextlib.nullcontext() if atheris is None else atheris.instrument_imports(include=["shortlist"]):
        parsers: Any = importlib.import_module("tests.fuzz.parsers")
    with tempfile.TemporaryDirectory() as samples:
        targets = parsers.make_targets(Path(samples) / "samples", pytest.MonkeyPatch())
        end = time.monotonic() + seconds

        def try_input(data: bytes) -> None:
            if len(data) < 2:
                return
            target = targets[int.from_bytes(data[:2], "big") % len(targets)]
            problem = target.failure(data[2:])
            record.calls += 1
            if problem and parsers.where(problem) not in record.failures:
                record.failures[parsers.where(problem)] = f"{target.name}\n{problem}"[-2000:]
                (folder / "failures").mkdir(exist_ok=True)
                (folder / "failures" / parsers.file_name(target, data[2:])).write_bytes(data[2:])
                record.save()
            if time.monotonic() > end:
                record.save()
                record.show("parsers")
                os._exit(0)

        if atheris is None:
            _mutate_blindly(parsers, targets, try_input, seed + record.calls)
        corpus = folder / "corpus"
        corpus.mkdir(exist_ok=True)
        for number, target in enumerate(targets):
            (corpus / f"{target.slug}-sample").write_bytes(number.to_bytes(2, "big") + target.file.read_bytes())
        options = [f"-max_total_time={int(seconds) + 60}", f"-seed={seed + record.calls + 1}", "-max_len=200000"]
        atheris.Setup([sys.argv[0], str(corpus), *options, "-rss_limit_mb=8000", "-verbosity=0"], try_input)
        atheris.Fuzz()


def _mutate_blindly(parsers: Any, targets: list[Any], try_input: Callable[[bytes], None], seed: int) -> None:
    draw = random.Random(seed)
    while True:
        number = draw.randrange(len(targets))
        try_input(number.to_bytes(2, "big") + parsers.mutated(draw, targets[number].file.read_bytes()))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    fuzz_parsers(Record(place / "parsers.json"), place, float(sys.argv[2]), int(sys.argv[3]))
