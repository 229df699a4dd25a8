"""Fuzz parsers, guided by coverage: ``python -m tests.fuzz.guided FOLDER SECONDS SEED``, run by `tests.fuzz`."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

try:
    import atheris
except ImportError:  # The extra ``fuzz`` has it; without it, mutations are blind.
    atheris = None

with contextlib.nullcontext() if atheris is None else atheris.instrument_imports(include=["shortlist"]):
    from tests.fuzz.parsers import Target, file_name, make_targets, mutated, where

from tests.fuzz.record import Record


def fuzz_parsers(record: Record, folder: Path, seconds: float, seed: int) -> None:
    """Mutate files, guided by coverage if atheris is installed; the first byte of an input chooses the target."""
    patch = pytest.MonkeyPatch()
    with tempfile.TemporaryDirectory() as samples:
        targets = make_targets(Path(samples) / "samples", patch)
        end = time.monotonic() + seconds

        def try_input(data: bytes) -> None:
            if len(data) < 2:
                return
            target = targets[int.from_bytes(data[:2], "big") % len(targets)]
            problem = target.failure(data[2:])
            record.calls += 1
            if problem and where(problem) not in record.failures:
                record.failures[where(problem)] = f"{target.name}\n{problem}"[-2000:]
                (folder / "failures").mkdir(exist_ok=True)
                (folder / "failures" / file_name(target, data[2:])).write_bytes(data[2:])
                record.save()
            if time.monotonic() > end:
                record.save()
                record.show("parsers")
                os._exit(0)

        if atheris is None:
            _without_coverage(targets, try_input, seed + record.calls)
        corpus = folder / "corpus"
        corpus.mkdir(exist_ok=True)
        for number, target in enumerate(targets):
            (corpus / f"{target.slug}-sample").write_bytes(number.to_bytes(2, "big") + target.file.read_bytes())
        options = [f"-max_total_time={int(seconds) + 60}", f"-seed={seed + record.calls + 1}", "-max_len=200000"]
        atheris.Setup([sys.argv[0], str(corpus), *options, "-rss_limit_mb=8000", "-verbosity=0"], try_input)
        atheris.Fuzz()


def _without_coverage(targets: list[Target], try_input: Callable[[bytes], None], seed: int) -> None:
    draw = random.Random(seed)
    while True:
        number = draw.randrange(len(targets))
        try_input(number.to_bytes(2, "big") + mutated(draw, targets[number].file.read_bytes()))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    fuzz_parsers(Record(place / "parsers.json"), place, float(sys.argv[2]), int(sys.argv[3]))
