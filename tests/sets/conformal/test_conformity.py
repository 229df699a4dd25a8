"""Conformity scores against their definitions, label by label; rules that use them cover and are saved with them."""

import json
import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from shortlist.errors import InputError
from shortlist.sets import APS, LAC, SAPS, ConformityScore, Entropy, Margin, SplitConformal, load_rule
from shortlist.sets.conformal.row_uniforms import row_uniforms
from shortlist.sets.scores import Block
from tests import reference_sets as reference
from tests.sets.worlds import TIE_KINDS, classified, seeded, tied_scores


def saps(row: list[float], uniform: float, weight: float) -> list[float]:
    order = reference.ranking(row)
    best = row[order[0]]
    found = [0.0] * len(row)
    for rank, label in enumerate(order, start=1):
        found[label] = -uniform * best if rank == 1 else -(best + (rank - 2 + uniform) * weight)
    return found


def aps(row: list[float], uniform: float, penalty: float, free: int) -> list[float]:
    order, mass = reference.ranking(row), 0.0
    found = [0.0] * len(row)
    for rank, label in enumerate(order, start=1):
        found[label] = -(mass + uniform * row[label] + penalty * max(0, rank - free))
        mass += row[label]
    return found


def margin(row: list[float]) -> list[float]:
    return [p - max((other for j, other in enumerate(row) if j != label), default=0.0) for label, p in enumerate(row)]


def entropy(row: list[float]) -> list[float]:
    doubt = -sum(p * math.log(p) for p in row if p > 0)
    return [math.log(max(p, 1e-37)) + doubt for p in row]


DEFINITIONS = {
    "LAC": (LAC(), lambda row, uniform: row),
    "APS": (APS(), lambda row, uniform: aps(row, uniform, 0.0, 0)),
    "RAPS": (APS(0.1, 2, False), lambda row, uniform: aps(row, 1.0, 0.1, 2)),
    "SAPS": (SAPS(0.15), lambda row, uniform: saps(row, uniform, 0.15)),
    "plain SAPS": (SAPS(0.15, randomized=False), lambda row, uniform: saps(row, 1.0, 0.15)),
    "margin": (Margin(), lambda row, uniform: margin(row)),
    "entropy": (Entropy(), lambda row, uniform: entropy(row)),
}
each_score = pytest.mark.parametrize("name", DEFINITIONS)


@each_score
@pytest.mark.parametrize("kind", TIE_KINDS)
@pytest.mark.parametrize("labels", [1, 2, 7])
def test_a_score_is_what_it_is_defined_to_be_in_every_label(name, kind, labels):
    score, definition = DEFINITIONS[name]
    probs = tied_scores(kind, 30, labels, seeded(labels), torch.float64)
    probs = probs / probs.sum(-1, keepdim=True).clamp(min=1e-9)
    found = score(Block(probs, probs)).double()
    uniforms = row_uniforms(probs).tolist()
    expected = [definition(row, uniform) for row, uniform in zip(probs.tolist(), uniforms, strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)


@each_score
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_absent_labels_leave_the_others_as_without_them(name, dtype):
    score, _ = DEFINITIONS[name]
    logits = torch.randn(50, 6, generator=seeded(0)).to(dtype)
    few = SplitConformal(0.3, score=score).fit(logits[:, :4], torch.arange(50) % 4, from_logits=True)
    masked = logits.clone()
    masked[:, 4:] = -math.inf
    many = SplitConformal(0.3, score=score).fit(masked, torch.arange(50) % 4, from_logits=True)
    if not getattr(score, "randomized", False):  # the random numbers are a hash of all scores
        torch.testing.assert_close(many.threshold, few.threshold, rtol=1e-6, atol=1e-6)
    assert not many(masked)[:, 4:].any()
    assert many.true_conformity(masked, torch.full((50,), 5)).eq(-math.inf).all()


@each_score
def test_covering_is_as_promised_whatever_the_score(name):
    score, _ = DEFINITIONS[name]
    covered = []
    for repetition in range(60):
        probs, classes = classified("good", 140, 5, seeded(repetition))
        rule = SplitConformal(0.2, score=score).fit(probs[:39], classes[:39], from_logits=False)
        covered.append(rule.predict(probs[39:], generator=seeded(0)).contains(classes[39:]).double().mean())
    assert abs(float(torch.stack(covered).mean()) - 0.8) < 4 * math.sqrt(0.16 * (1 / 41 + 1 / 101) / 60)


@dataclass(frozen=True)
class Offset(ConformityScore):
    """A score of a user: the value minus something."""

    by: float

    def __call__(self, block: Block) -> Tensor:
        return block.values - self.by


@pytest.mark.parametrize("score", [APS(0.1, 2), SAPS(0.3), Margin(), Entropy(), LAC(), Offset(0.25)], ids=str)
def test_a_rule_is_saved_with_its_score(score, tmp_path):
    probs, classes = classified("good", 50, 5, seeded(0))
    rule = SplitConformal(0.2, score=score).fit(probs, classes, from_logits=False)
    rule.save(tmp_path / "rule.json")
    loaded = load_rule(tmp_path / "rule.json")
    assert isinstance(loaded, SplitConformal)
    assert loaded.score == score
    assert torch.equal(loaded(probs), rule(probs))


@pytest.mark.parametrize("score", [{"kind": "Oracle"}, {}, {"kind": "SAPS"}, {"kind": "SAPS", "weight": -1}, 3, "LAC"])
def test_a_file_with_another_score_is_one_sentence(score, tmp_path):
    probs, classes = classified("good", 50, 5, seeded(0))
    SplitConformal(0.2, score=SAPS(0.2)).fit(probs, classes, from_logits=False).save(tmp_path / "rule.json")
    content = json.loads((tmp_path / "rule.json").read_text())
    content["options"]["score"] = score
    (tmp_path / "rule.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"rule\.json"):
        load_rule(tmp_path / "rule.json")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: SAPS(0), "`weight` must be above 0"),
        (lambda: SAPS(math.inf), "`weight`"),
        (lambda: APS(-1), "`penalty`"),
        (lambda: APS(free=1.5), "`free`"),
    ],
)
def test_options_outside_their_range_are_named(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_a_score_must_be_one_and_probabilities_not_negative():
    with pytest.raises(TypeError, match="`score` must be a ConformityScore such as APS"):
        SplitConformal(0.1, score="SAPS")
    with pytest.raises(ValueError, match="`scores` must be probabilities, not negative; row 1"):
        SplitConformal(0.1, score=Margin()).fit(
            torch.tensor([[0.5, 0.1], [-0.1, 0.2]]), torch.tensor([0, 0]), from_logits=False
        )
