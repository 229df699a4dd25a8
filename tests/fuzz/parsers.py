"""Every file that the package reads, as a target for fuzzing: a valid sample with one file replaced by other bytes.

A target may read the bytes, or refuse them by an `InputError`. Any other exception, a warning, or a long wait is a
failure.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from shortlist.audit import AuditReport, audit
from shortlist.audit.layer import read_array
from shortlist.calibration import load_calibrator
from shortlist.calibration.calibrator import concrete_calibrators
from shortlist.comparison_document import read_comparison
from shortlist.data import open_dataset
from shortlist.errors import InputError
from shortlist.predict import open_scores, read_label_sets, read_names
from shortlist.sets import ShiftAlarm, load_rule
from shortlist.taxonomy import taxonomy_from_csv
from shortlist.train import FitOptions, evaluate, fit, load_model, save_model
from shortlist.train.checkpoints import read_checkpoint
from shortlist.typed_values import read_yaml
from tests.data.formats.samples import OUTSIDE, SAMPLES, place
from tests.report.comparisons import comparison
from tests.sets.rules import REJECTING, RULES
from tests.sets.worlds import seeded
from tests.train.small_data import classes

SECONDS = 10
_LONGEST_SENTENCE = 1000
_CHECKED_ROWS = 3
# A warning that the file deserves.
_MEANT = "`.*` line .* Each is a row of both parts"


class Target(NamedTuple):
    """A file within a sample, and what reads it."""

    name: str
    file: Path
    read: Callable[[], object]

    @property
    def slug(self) -> str:
        """The name, as a part of a file name."""
        return re.sub(r"\W+", "-", self.name)

    def failure(self, content: bytes) -> str:
        """Write other bytes to the file and read the sample; a traceback if it fails, or nothing."""
        whole = self.file.read_bytes()
        self.file.write_bytes(content)
        try:
            with _patience(), warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", message=_MEANT)
                self.read()
        except InputError as error:
            text = str(error)
            fine = len(text.splitlines()) == 1 and len(text) <= _LONGEST_SENTENCE
            return "" if fine else f"InputError is not one sentence: {text[:2000]!r}"
        except Exception:
            return traceback.format_exc()
        finally:
            self.file.write_bytes(whole)
        return ""


@contextmanager
def _patience() -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise TimeoutError(f"reading takes more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _read_dataset(path: Any, format: str) -> None:
    dataset = open_dataset(path, format=format)
    if len(dataset):
        dataset.inputs.batch(torch.arange(min(_CHECKED_ROWS, len(dataset))))
        dataset.label_counts()


def make_targets(folder: Path, patch: pytest.MonkeyPatch) -> list[Target]:
    """Write all samples below a folder and return their files as targets."""
    found = []
    for name in OUTSIDE:
        place_at = folder / re.sub(r"\W+", "-", name)
        place_at.mkdir(parents=True)
        path, format = place(name, place_at, patch), SAMPLES[name].format
        files = sorted(file for file in place_at.rglob("*") if file.is_file())
        for file in files:
            read = _reader(_read_dataset, path, format)
            found.append(Target(f"{name}: {file.relative_to(place_at)}", file, read))
    return [*found, *_documents(folder / "documents")]


def _reader(function: Callable[..., object], *arguments: Any) -> Callable[[], object]:
    return lambda: function(*arguments)


def _documents(folder: Path) -> Iterator[Target]:
    """Files of the package itself, and what commands read besides data."""
    folder.mkdir(parents=True)

    def target(name: str, read: Callable[[Path], object], content: bytes | None = None) -> Target:
        if content is not None:
            (folder / name).write_bytes(content)
        return Target(name, folder / name, _reader(read, folder / name))

    weight = np.random.default_rng(0).standard_normal((6, 3))
    for rule in [*RULES, *REJECTING]:
        rule.fitted().save(folder / f"{rule.name}.rule.json")
        yield target(f"{rule.name}.rule.json", _use_rule)
    for kind in concrete_calibrators():
        kind(link="sigmoid").fit(*RULES[-1].data()).save(folder / f"{kind.name}.calibrator.json")
        yield target(f"{kind.name}.calibrator.json", _use_calibrator)
    ShiftAlarm().fit(torch.rand(20, generator=seeded(0))).save(folder / "alarm.json")
    yield target("alarm.json", lambda path: ShiftAlarm.load(path).update(torch.rand(3, generator=seeded(1))))
    yield target("taxonomy.csv", taxonomy_from_csv, b"child,parent\nrobur,Quercus\nilex,Quercus\nQuercus,oaks\n")
    audit(weight, [[0], [1, 2], []], jobs=1).save(folder / "audit.json")
    yield target("audit.json", lambda path: AuditReport.load(path).verify())
    audit(weight, [[0], [1, 2], []], jobs=1, resume=folder / "audit.progress")
    yield target("audit.progress", lambda path: audit(weight, [[0], [1, 2], []], jobs=1, resume=path))
    (folder / "comparison.json").write_text(json.dumps(comparison().to_json()))
    yield target("comparison.json", read_comparison)
    np.savez(folder / "layer.npz", weight=weight)
    np.savez_compressed(folder / "packed.npz", weight=weight)
    np.save(folder / "layer.npy", weight)
    for name in ("layer.npz", "packed.npz", "layer.npy"):
        yield target(name, lambda path: read_array(path, None))
    np.save(folder / "scores.npy", weight.astype(np.float32))
    yield target("scores.npy", _read_scores)
    yield target("scores.csv", _read_scores, b"oak,elm\n0.5,0.5\n0.1,0.9\n")
    yield target("labels.json", lambda path: read_label_sets(path, 6), b"[[0, 1], [], [5]]")
    yield target("labels.txt", lambda path: read_label_sets(path, 6), b"0 1\n\n5\n")
    yield target("names.txt", read_names, "oak\nelm\nPl\u00e4tane\n".encode())
    yield target(
        "run.yaml", lambda path: read_yaml(path.read_text("utf-8", "replace"), "`run.yaml`"), b"k: [1, &a 2]\nb: *a\n"
    )
    data, model = classes(), folder / "model"
    fitted = fit(data, FitOptions(epochs=1, encoder_options={"hidden": [4]}), folder=model)
    save_model(fitted, model, rule=evaluate(fitted, data).rule)
    for file in ("model.json", "model.safetensors", "rule.json", "checkpoints/last.ckpt"):
        read = _reader(read_checkpoint, model / file) if "ckpt" in file else _reader(load_model, model)
        yield Target(f"model: {file}", model / file, read)


def _use_rule(path: Path) -> None:
    """Read a rule, which may be one for other scores."""
    rule, logits = load_rule(path), RULES[0].data(5)[0]
    with suppress(ValueError):
        rule.predict(logits, generator=seeded(0)).to_mask()
        rule(logits)


def _use_calibrator(path: Path) -> None:
    """Read a calibrator, which may be one for other logits; what it makes of any are probabilities."""
    calibrator, logits = load_calibrator(path), RULES[0].data(5)[0]
    if calibrator.num_labels == logits.shape[-1]:
        probs = calibrator.predict(logits)
        if not ((probs >= 0) & (probs <= 1)).all():
            raise AssertionError(f"{probs.tolist()} are no probabilities")


def _read_scores(path: Path) -> None:
    for block in open_scores(path, from_logits=True).blocks():
        block.scores.sum()


def mutated(draw: random.Random, content: bytes) -> bytes:
    """A few random edits: without coverage, the kind that a mutation fuzzer begins with."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at, size = draw.randrange(len(data) + 1), draw.choice([1, 1, 2, 4, 8, 64])
        edit = draw.randrange(6)
        if edit == 0:
            data[at : at + size] = b""
        elif edit == 1:
            data[at : at + size] = draw.randbytes(size)
        elif edit == 2:
            data[at:at] = data[at : at + size] * draw.choice([1, 2, 100])
        elif edit == 3:
            data[at:at] = draw.choice(_TOKENS)
        elif edit == 4:
            data[at : at + size] = draw.choice(_TOKENS)
        elif at < len(data):
            data[at] ^= 1 << draw.randrange(8)
    return bytes(data)


_TOKENS = (
    b"-1",
    b"0",
    b"1e999",
    b"nan",
    b"NaN",
    b"-Infinity",
    b"9" * 30,
    b"9" * 5000,
    b"[" * 2000,
    b'"',
    b"\n",
    b",",
    b"\x00",
    b"null",
)
_TOKENS += (
    b"{}",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80",
    b"../",
    "\u2028".encode(),
    b"true",
    b"1e-400",
    b"''",
)


def where(failure: str) -> str:
    """What tells failures apart: the exception and the last line of the package in its traceback."""
    places = re.findall(r'/(shortlist/\S+)", line (\d+)', failure) or [("", "")]
    return f"{failure.strip().splitlines()[-1][:60]} at {':'.join(places[-1])}"


def file_name(target: Target, content: bytes) -> str:
    """Under which a failure is kept in ``tests/fuzz/corpus``."""
    return f"{target.slug}--{hashlib.sha256(content).hexdigest()[:10]}"
