"""Thresholds per group of rows: each is that of its own rows, every group is covered, unseen groups are refused."""

import json
import math

import numpy as np
import pytest
import torch

from shortlist.errors import InputError
from shortlist.sets import APS, AverageError, GroupConditional, Margin, SelectiveAnswers, SplitConformal, load_rule
from tests.nn.test_onnx import export_all
from tests.nn.test_onnx import pytestmark as exporter_warnings
from tests.sets.worlds import TIE_KINDS, ambiguous_probs, draw, overconfident, seeded, tied_scores

pytestmark = exporter_warnings
IDS = torch.tensor([-3, 10**12, 7])


@pytest.mark.parametrize("kind", TIE_KINDS)
@pytest.mark.parametrize("score", [Margin(), APS()], ids=str)
def test_each_group_has_the_sets_of_a_rule_fitted_on_it_alone(kind, score):
    scores, fresh = (tied_scores(kind, count, 4, seeded(count)) for count in (90, 60))
    classes, groups, asked = torch.arange(90) % 4, IDS[torch.arange(90) % 3], IDS[torch.arange(60) % 3]
    rule = GroupConditional(0.2, score=score).fit(scores, classes, from_logits=False, groups=groups)
    for group in IDS.tolist():
        own, mine = groups == group, asked == group
        alone = SplitConformal(0.2, score=score).fit(scores[own], classes[own], from_logits=False)
        assert torch.equal(rule(fresh, asked)[mine], alone(fresh[mine]))
        sets = rule.predict(fresh[mine], groups=asked[mine], generator=seeded(0))
        assert sets == alone.predict(fresh[mine], generator=seeded(0))


def test_without_groups_it_is_average_error():
    probs = ambiguous_probs(300, seeded(0))
    classes = draw(probs, seeded(1))
    mine, theirs = (make(0.1).fit(probs, classes, from_logits=False) for make in (GroupConditional, AverageError))
    assert torch.equal(mine(probs), theirs(probs))


@pytest.mark.slow
def test_every_group_is_covered_and_one_threshold_for_all_does_not_cover_the_hard_one():
    alpha, repetitions = 0.2, 300
    missed, plain, rows = torch.zeros(3), torch.zeros(3), torch.zeros(3)
    for repetition in range(repetitions):
        groups = torch.arange(300) % 3
        signal = torch.tensor([0.5, 2.0, 4.0])[groups]
        probs, classes = overconfident(signal, 5, seeded(repetition))
        args = (probs[:100], classes[:100])
        rule = GroupConditional(alpha).fit(*args, from_logits=False, groups=groups[:100])
        naive = AverageError(alpha).fit(*args, from_logits=False)
        sets = rule.predict(probs[100:], groups=groups[100:], generator=seeded(repetition))
        for found, errors in ((sets, missed), (naive.predict(probs[100:], generator=seeded(repetition)), plain)):
            wrong = ~found.contains(classes[100:])
            errors += torch.bincount(groups[100:][wrong], minlength=3)
        rows += torch.bincount(groups[100:], minlength=3)
    spread = 4 * math.sqrt(0.16 * (1 / 33 + 1 / 66) / repetitions)
    assert (missed / rows < alpha + spread).all(), missed / rows
    assert float((plain / rows).max()) > alpha + 2 * spread, plain / rows


def test_a_group_without_calibration_rows_is_one_sentence_and_gets_all_labels_in_the_module():
    scores = torch.rand(6, 3, generator=seeded(0))
    fit = {"from_logits": False, "groups": np.array([1, 1, 2, 2, 2, 2])}
    rule = GroupConditional(0.5).fit(scores, torch.arange(6) % 3, **fit)
    with pytest.raises(
        ValueError, match="`groups` must be among those of the fit; row 2 has 5, which had no calibration row"
    ):
        rule.predict(scores[:3], groups=np.array([1, 2, 5]))
    assert rule(scores[:3], torch.tensor([1, 2, 5])).sum(-1)[2] == 3


def test_a_rule_of_several_groups_does_not_take_every_row_for_one_of_group_0():
    scores = torch.rand(6, 3, generator=seeded(0))
    rule = GroupConditional(0.5).fit(scores, torch.arange(6) % 3, from_logits=False, groups=torch.arange(6) % 2)
    for answer in (rule, rule.predict):
        with pytest.raises(ValueError, match="`groups` must be given, as in `fit`"):
            answer(scores)
    with pytest.raises(ValueError, match="`groups` must be given"):
        SelectiveAnswers(0.5, rule=rule).fit(scores, torch.arange(6) % 3, from_logits=False)


@pytest.mark.parametrize(
    "groups", [torch.ones(6), torch.ones(5, dtype=torch.int64), torch.ones(6, 1, dtype=torch.int64)]
)
def test_groups_are_one_integer_per_row(groups):
    with pytest.raises(ValueError, match="`groups` must have one integer or name per row of scores, 6"):
        GroupConditional(0.5).fit(torch.rand(6, 3), torch.arange(6) % 3, from_logits=False, groups=groups)


def test_groups_come_in_batches_and_back_from_a_file_that_is_checked(tmp_path):
    probs = ambiguous_probs(200, seeded(0))
    classes, groups = draw(probs, seeded(1)), IDS[torch.arange(200) % 3]
    whole = GroupConditional(0.1).fit(probs, classes, from_logits=False, groups=groups)
    parts = GroupConditional(0.1)
    for rows in torch.arange(200).split(41):
        parts.partial_fit(probs[rows], classes[rows], from_logits=False, groups=groups[rows].tolist())
    parts.finish().save(tmp_path / "rule.json")
    loaded = load_rule(tmp_path / "rule.json")
    assert torch.equal(loaded(probs, groups), whole(probs, groups))
    content = json.loads((tmp_path / "rule.json").read_text())
    for name, values in (("group_ids", [3, 2, 1]), ("thresholds", [0.1]), ("tie_shares", [0.5, 0.5, 2.0])):
        bad = json.loads(json.dumps(content))
        bad["fitted"][name] |= {"values": values, "shape": [len(values)]}
        (tmp_path / "bad.json").write_text(json.dumps(bad))
        with pytest.raises(InputError, match=r"bad\.json"):
            load_rule(tmp_path / "bad.json")


def test_an_exported_rule_takes_the_groups_as_its_second_input():
    probs = ambiguous_probs(200, seeded(0)).float()
    classes, groups = draw(probs, seeded(1)), torch.arange(200) % 3
    rule = GroupConditional(0.2).fit(probs, classes, from_logits=False, groups=groups)
    run = export_all(rule.eval(), probs[:64], groups[:64])
    for rows in (64, 9, 1):
        (found,) = run(probs[:rows], groups[:rows])
        assert torch.equal(torch.from_numpy(found), rule(probs[:rows], groups[:rows]))
