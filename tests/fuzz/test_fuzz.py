"""Past failures of fuzzing stay mended, and a short run with fixed seeds finds no new ones."""

import random
import re
from pathlib import Path

import pytest

from tests.fuzz import operators
from tests.fuzz.__main__ import audit_failure
from tests.fuzz.documents import document_failure, json_targets, restructured
from tests.fuzz.metrics_and_rules import metric_failure, rule_failure
from tests.fuzz.parsers import Target, make_targets, mutated

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())

pytestmark = pytest.mark.cpu_only


@pytest.fixture(scope="module")
def targets(tmp_path_factory) -> list[Target]:
    with pytest.MonkeyPatch.context() as patch:
        yield make_targets(tmp_path_factory.mktemp("fuzz") / "samples", patch)


def test_samples_themselves_are_read(targets):
    assert len({target.slug for target in targets}) == len(targets)
    for target in targets:
        target.read()


def test_past_failures_stay_mended(targets):
    by_slug = {target.slug: target for target in targets}
    assert CORPUS
    for path in CORPUS:
        slug, _, _ = path.name.rpartition("--")
        assert by_slug[slug].failure(path.read_bytes()) == "", path.name


def test_numbers_of_thousands_of_digits_are_refused_in_a_sentence(targets):
    """Python refuses to convert them, by an error that is no error of JSON or YAML."""
    for target in targets:
        content = target.file.read_bytes()
        for found in [*re.finditer(rb"(?<![\w.])\d+(?![\w.])", content)][:3]:
            changed = content[: found.start()] + b"9" * 5000 + content[found.end() :]
            assert target.failure(changed) == "", (target.name, found)


def test_a_parser_that_raises_something_else_is_found(targets):
    broken = targets[0]._replace(read=lambda: {}["key"])
    assert "KeyError: 'key'" in broken.failure(b"")


@pytest.mark.slow
def test_mutated_files_are_read_or_refused_in_a_sentence(targets):
    draw = random.Random(0)
    for target in targets:
        for _ in range(40):
            content = mutated(draw, target.file.read_bytes())
            assert target.failure(content) == "", (target.name, content[:2000])


def test_documents_with_other_values_are_used_or_refused_in_a_sentence(targets):
    draw = random.Random(0)
    for target in json_targets(targets):
        for _ in range(6):
            content = restructured(draw, target.file.read_bytes())
            assert target.failure(content) == "", (target.name, content[:2000])


@pytest.mark.slow
def test_operators_survive_hostile_numbers():
    for seed in range(3000):
        assert operators.failure(seed) == "", seed


@pytest.mark.slow
@pytest.mark.parametrize("failure", [document_failure, metric_failure, rule_failure])
def test_documents_metrics_and_rules_survive_hostile_values(failure):
    for seed in range(1000):
        assert failure(seed) == "", seed


@pytest.mark.slow
def test_adversarial_layers_are_decided_and_every_proof_is_true():
    for seed in range(1000, 1600):
        assert audit_failure(seed) == "", seed
