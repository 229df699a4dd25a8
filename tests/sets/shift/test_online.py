"""Rules that follow a stream keep their bounds for every sequence, also an adversary's, and resume from a file."""

import json
import math

import pytest
import torch
from torch import Tensor

from shortlist.errors import InputError
from shortlist.sets import APS, AdaptiveConformal, Margin, OnlineAverageK, OnlineConformal, SplitConformal, load_rule
from tests.sets.worlds import classified, overconfident, seeded

ALPHA, ROWS = 0.2, 400


def spiteful(rule: AdaptiveConformal | OnlineConformal, rows: int) -> tuple[int, list[Tensor]]:
    """An adversary who sees the rule: errors as long as it can cause any, and then none for as long."""
    errors, history = 0, []
    for row in range(rows):
        scores = torch.rand(1, 4, generator=seeded(row)).softmax(-1)
        mask = rule(scores)[0]
        outside, within = (~mask).nonzero()[:, 0], mask.nonzero()[:, 0]
        want_error = (row // 100) % 2 == 0
        label = outside[:1] if (want_error and len(outside)) or not len(within) else within[:1]
        history.append(rule.predict(scores).to_mask()[0])
        missed = rule.update(scores, label)
        assert bool(missed) == (not bool(mask[label])), "errors are those of the sets that were returned"
        errors += int(missed)
    return errors, history


@pytest.mark.parametrize("step", [0.005, 0.05, 0.5])
@pytest.mark.parametrize("alpha", [0.1, 0.7])
def test_the_error_of_an_adaptive_level_is_bounded_against_an_adversary(step, alpha):
    probs, classes = classified("good", 50, 4, seeded(0))
    rule = AdaptiveConformal(alpha, step=step).fit(probs, classes, from_logits=False)
    errors, _ = spiteful(rule, ROWS)
    bound = (max(alpha, 1 - alpha) + step) / (step * ROWS)
    assert abs(errors / ROWS - alpha) <= bound + 1e-12
    assert rule.error == errors / ROWS
    assert -step <= float(rule.level) <= 1 + step


@pytest.mark.parametrize(("step", "decay"), [(0.05, 0.0), (0.5, 0.0), (0.5, 0.6), (2.0, 0.3)])
def test_the_error_of_decaying_steps_is_bounded_against_an_adversary(step, decay):
    probs, classes = classified("good", 50, 4, seeded(0))
    rule = OnlineConformal(ALPHA, step=step, decay=decay).fit(probs, classes, from_logits=False)
    errors, _ = spiteful(rule, ROWS)
    assert abs(errors / ROWS - ALPHA) <= (1 + step) / (step * ROWS**-decay * ROWS) + 1e-12


@pytest.mark.parametrize(("step", "decay"), [(0.002, 0.0), (0.1, 0.0), (0.05, 0.5)])
@pytest.mark.parametrize("k", [0.5, 2.0, 5.0])
def test_the_average_size_is_bounded_for_streams_that_swing(step, decay, k):
    rule = OnlineAverageK(k, step=step, decay=decay).fit(torch.rand(50, 5, generator=seeded(0)), from_logits=False)
    sizes = []
    for row in range(ROWS):
        # Every hundred rows all scores are suddenly high, or suddenly low.
        scores = (row // 100 % 2) * 0.5 + 0.5 * torch.rand(1, 5, generator=seeded(row))
        predicted = rule.predict(scores).sizes
        sizes.append(int(rule.update(scores)))
        assert sizes[-1] == int(predicted)
    assert abs(sum(sizes) / ROWS - k) <= (1 + 5 * step) / (step * ROWS**-decay * ROWS) + 1e-12
    assert rule.average_size == sum(sizes) / ROWS


@pytest.mark.slow
def test_a_stream_that_becomes_hard_is_covered_online_and_not_by_a_fixed_threshold():
    """Over 200 streams: half of the rows are as in calibration, then signal fades."""
    repetitions, rows = 200, 600
    errors = {"adaptive": 0.0, "online": 0.0, "fixed": 0.0}
    for repetition in range(repetitions):
        generator = seeded(repetition)
        known = overconfident(torch.full((200,), 3.0), 5, generator)
        signal = torch.cat([torch.full((rows // 2,), 3.0), torch.full((rows // 2,), 1.0)])
        probs, classes = overconfident(signal, 5, generator)
        for name, rule in (
            ("adaptive", AdaptiveConformal(ALPHA, step=0.05)),
            ("online", OnlineConformal(ALPHA, step=0.05, decay=0.0)),
        ):
            missed = rule.fit(*known, from_logits=False).update(probs, classes)
            errors[name] += float(missed.double().mean())
        fixed = SplitConformal(ALPHA, score=Margin()).fit(*known, from_logits=False)
        errors["fixed"] += 1 - float(fixed.predict(probs, generator=generator).contains(classes).double().mean())
    rates = {name: total / repetitions for name, total in errors.items()}
    # The bounds are 0.85 and 1.05 over 0.05 * 600.
    assert abs(rates["adaptive"] - ALPHA) < 0.85 / 30, rates
    assert abs(rates["online"] - ALPHA) < 1.05 / 30, rates
    assert rates["fixed"] > ALPHA + 0.1, rates


MAKERS = {
    "adaptive": lambda: AdaptiveConformal(ALPHA, step=0.03, score=APS()),
    "online": lambda: OnlineConformal(ALPHA, step=0.03, score=Margin()),
    "average-k": lambda: OnlineAverageK(1.7, step=0.01, decay=0.2),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("from_logits", [True, False])
def test_a_stream_that_is_saved_and_resumed_goes_on_as_if_nothing_had_happened(kind, from_logits, tmp_path):
    probs, classes = classified("good", 300, 5, seeded(0))
    scores = probs.log() if from_logits else probs
    labels = () if kind == "average-k" else (classes,)
    whole, parts = (
        MAKERS[kind]().fit(scores[:100], *(part[:100] for part in labels), from_logits=from_logits) for _ in range(2)
    )
    expected = whole.update(scores[100:], *(part[100:] for part in labels))
    found = []
    for rows in torch.arange(100, 300).split(33):
        found.append(parts.update(scores[rows].numpy(), *(part[rows].numpy() for part in labels)))
        parts.save(tmp_path / "rule.json")
        parts = load_rule(tmp_path / "rule.json")
    assert torch.equal(torch.cat(found), expected)
    assert all(torch.equal(a, b) for a, b in zip(whole.buffers(), parts.buffers(), strict=True))
    assert whole.predict(scores) == parts.predict(scores)


def test_too_few_calibration_rows_or_extreme_levels_give_all_labels_or_none():
    probs = torch.tensor([[0.7, 0.3]])
    rule = AdaptiveConformal(0.1, step=0.95).fit(probs, torch.tensor([0]), from_logits=False)
    assert rule(probs).all()
    for _ in range(11):  # no errors with all labels, so the level rises to 1
        rule.update(probs, torch.tensor([0]))
    assert float(rule.level) >= 1 or int(rule.missed) > 0
    assert rule.error <= 1


def test_an_absent_true_label_is_an_error_and_an_empty_batch_is_none():
    logits = torch.tensor([[0.0, -math.inf, 1.0]])
    rule = OnlineConformal(0.2).fit(logits, torch.tensor([0]), from_logits=True)
    assert rule.update(logits, torch.tensor([1])).tolist() == [True]
    assert rule.update(logits[:0], torch.zeros(0, dtype=torch.int64)).tolist() == []
    assert int(rule.steps) == 1
    with pytest.raises(ValueError, match="`labels` must have a true label that is not absent"):
        OnlineConformal(0.2).fit(logits, torch.tensor([1]), from_logits=True)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: AdaptiveConformal(0.1, step=0), "`step` must be above 0"),
        (lambda: OnlineConformal(0.1, step=-1), "`step`"),
        (lambda: OnlineConformal(0.1, decay=1.0), r"`decay` must lie in \[0, 1\)"),
        (lambda: OnlineAverageK(-1), "`k`"),
        (lambda: OnlineAverageK(1, step=math.inf), "`step`"),
        (lambda: AdaptiveConformal(1.0), "`alpha`"),
        (lambda: AdaptiveConformal(0.1).update(torch.rand(1, 2), torch.tensor([0])), "must be fitted"),
        (lambda: OnlineAverageK(1).update(torch.rand(1, 2)), "must be fitted"),
    ],
)
def test_options_outside_their_range_are_named(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"missed": [7]}, "`missed` must lie between 0 and `steps`"),
        ({"level": [3.0]}, "`level` must lie within one step"),
        ({"calibration": [1.0, 0.0]}, "`calibration` must be ascending"),
    ],
)
def test_hostile_states_are_refused(change, match, tmp_path):

    probs, classes = classified("good", 2, 4, seeded(0))
    AdaptiveConformal(0.2).fit(probs, classes, from_logits=False).save(tmp_path / "rule.json")
    content = json.loads((tmp_path / "rule.json").read_text())
    for name, values in change.items():
        content["fitted"][name]["values"] = values
    (tmp_path / "rule.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=match):
        load_rule(tmp_path / "rule.json")
