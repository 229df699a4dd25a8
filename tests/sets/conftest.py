"""Randomness with a fixed seed, so that tests are deterministic."""

import itertools

import pytest

from shortlist.sets import rule


@pytest.fixture(autouse=True)
def _counted_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = itertools.count(1)
    monkeypatch.setattr(rule, "fresh_seed", lambda: next(counter))
