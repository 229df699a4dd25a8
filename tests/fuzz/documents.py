"""Structured fuzzing of JSON documents: values and parts of a valid one are replaced by hostile ones, or left out.

Rules, calibrators, alarms, audits, comparisons, models and data in JSON are read and used, or refused in a sentence.
"""

from __future__ import annotations

import copy
import functools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.fuzz.parsers import Target, make_targets

_VALUES = (None, True, False, -1, 0, 1, 2, 3, 7, 0.5, -0.0, 5e-324, 1e300, -1e300, 2**31, 2**63, 10**30, 10**400)
_VALUES += (math.nan, math.inf, "nan", "-inf", "1e400", "", "a\nb", "\x00", "LAC", "../../etc/passwd", "x" * 3000)
_VALUES += ([], [None], [[1, 2], [3]], [0] * 1000, {}, {"kind": "LAC"})


def document_failure(seed: int) -> str:
    """Change the document whose turn it is; a description of what is wrong, or nothing."""
    _, targets = _make_documents()
    target, draw = targets[seed % len(targets)], random.Random(seed)
    content = restructured(draw, target.file.read_bytes())
    problem = target.failure(content)
    return f"{target.name}: {problem}{content[:1500]!r}" if problem else ""


def json_targets(targets: list[Target]) -> list[Target]:
    """Those whose file is one JSON object or array."""
    return [target for target in targets if target.file.suffix == ".json"]


def restructured(draw: random.Random, content: bytes) -> bytes:
    """The document with one or two of its values, or whole parts, replaced or left out."""
    document = json.loads(content)
    for _ in range(draw.randint(1, 2)):
        places = [*_places(document)]
        if places:
            place, key = draw.choice(places)
            if draw.random() < 0.1:
                del place[key]
            else:
                place[key] = copy.deepcopy(draw.choice(_VALUES))
    return json.dumps(document).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value inside of another, as its container and its key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


@functools.cache
def _make_documents() -> tuple[TemporaryDirectory[str], list[Target]]:
    """All JSON targets, and the folder that holds them until Python ends."""
    folder = TemporaryDirectory()
    return folder, json_targets(make_targets(Path(folder.name) / "samples", pytest.MonkeyPatch()))
