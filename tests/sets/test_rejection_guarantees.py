"""What abstaining rules promise holds over many draws of held-out rows, and is broken without the correction."""

import math

import pytest
import torch

from shortlist.sets import FeatureDistance, NoneOfThese, SelectiveAnswers, p_values
from tests.sets.worlds import seeded

pytestmark = pytest.mark.slow
DRAWS = 300


def at_most(hits: int, draws: int, rate: float) -> bool:
    """Whether so many hits are within four standard deviations of a rate that is at most this."""
    return hits <= draws * rate + 4 * math.sqrt(draws * rate * (1 - rate))


def answers(rows: int, generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of two labels, where the better one with score p is right with probability p ** 2."""
    best = 0.5 + torch.rand(rows, generator=generator, dtype=torch.float64) / 2
    right = torch.rand(rows, generator=generator, dtype=torch.float64) < best.square()
    return torch.stack([best, 1 - best], dim=-1), (~right).long()


def true_error(threshold: float) -> float:
    """The mean of 1 - p ** 2 for p above a threshold."""
    low = min(max(threshold, 0.5), 1.0)
    return 0.0 if low == 1 else 1 - (1 - low**3) / (3 * (1 - low))


@pytest.mark.parametrize("rows", [400, 1000])
def test_the_error_of_the_answers_given_exceeds_its_bound_at_most_at_rate_delta_and_naively_often(rows):
    failed = naively = given = 0
    wanted, delta = 0.25, 0.1
    for seed in range(DRAWS):
        scores, labels = answers(rows, seeded(seed))
        rule = SelectiveAnswers(wanted, delta=delta).fit(scores, labels, from_logits=False)
        failed += true_error(float(rule.threshold)) > wanted
        given += rule.evidence["answered"] > 0
        # Without the correction: the most answers whose error on these rows is small enough.
        order = scores[:, 0].argsort(descending=True)
        errors = labels[order].cumsum(0) / torch.arange(1, rows + 1)
        last = int((errors <= wanted).nonzero().max()) if bool((errors <= wanted).any()) else -1
        naively += last >= 0 and true_error(float(scores[order[last], 0])) > wanted
    assert at_most(failed, DRAWS, delta)
    assert given > DRAWS * 0.25
    assert not at_most(naively, DRAWS, delta)


@pytest.mark.parametrize("score", ["energy", "max-logit"])
@pytest.mark.parametrize("rows", [19, 29])
def test_the_false_alarm_rate_is_at_most_alpha_and_above_with_a_plain_quantile(score, rows):
    alpha, alarms, naively, new = 0.1, 0, 0, 20
    for seed in range(DRAWS):
        logits = 2 * torch.randn(rows + new, 5, generator=seeded(seed))
        rule = NoneOfThese(alpha, score=score).fit(logits[:rows], from_logits=True)
        alarms += int(rule.predict(logits[rows:]).abstained.sum())
        familiar = logits.logsumexp(-1) if score == "energy" else logits.amax(-1)
        naively += int((familiar[rows:] <= familiar[:rows].quantile(alpha)).sum())
    # Rows of one draw depend on each other: the variance of their mean is that of a beta distribution.
    wanted = math.floor(alpha * (rows + 1) + 1e-9) / (rows + 1)
    deviation = math.sqrt(wanted * (1 - wanted) * (1 / (rows + 2) + 1 / new) / (DRAWS))
    assert alarms / (DRAWS * new) == pytest.approx(wanted, abs=4 * deviation)
    assert naively / (DRAWS * new) > alpha + 2 * deviation


@pytest.mark.parametrize("levels", [1, 3, 1000])
def test_p_values_are_uniform_whatever_the_ties(levels):
    generator, found = seeded(0), []
    for _ in range(10 * DRAWS):
        scores = torch.randint(levels, (10,), generator=generator).double()
        found.append(p_values(scores[1:], scores[:1], generator=generator))
    values = torch.cat(found)
    for level in (0.05, 0.1, 0.5, 0.9):
        spread = math.sqrt(level * (1 - level) / len(values))
        assert float((values <= level).double().mean()) == pytest.approx(level, abs=4 * spread)


def test_features_far_from_all_classes_are_found_at_the_promised_false_alarm_rate():
    alarms = found = 0
    for seed in range(200):
        generator = seeded(seed)
        classes = torch.randint(3, (300,), generator=generator)
        features = torch.randn(300, 4, generator=generator) + 4 * torch.eye(4)[classes]
        distance = FeatureDistance().fit(features[:150], classes[:150])
        held_out = -distance(features[150:250])
        alarms += int((p_values(held_out, -distance(features[250:])) <= 0.05).sum())
        strange = torch.randn(50, 4, generator=generator) + 8 * torch.eye(4)[3]
        found += int((p_values(held_out, -distance(strange)) <= 0.05).sum())
    wanted = 5 / 101
    spread = math.sqrt(wanted * (1 - wanted) * (1 / 102 + 1 / 50) / 200)
    assert alarms / 10_000 == pytest.approx(wanted, abs=4 * spread)
    assert found / 10_000 > 0.9
