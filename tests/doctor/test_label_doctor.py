"""The label doctor against loops over rows, on planted errors, and on input that cannot be."""

import numpy as np
import pytest
import torch

from shortlist.doctor import LabelIssues, find_label_issues, find_wrong_classes, rows_to_label
from shortlist.targets import to_index_lists
from tests.sets.worlds import ambiguous_probs, draw, multilabel, seeded


def wrong_classes_by_loops(probs, classes):
    """Rows with a confident other class, from the definition."""
    n, own = probs.shape[1], {}
    for row, label in enumerate(classes):
        own.setdefault(label, []).append(probs[row][label])
    found = {}
    for row, label in enumerate(classes):
        sure = [j for j in range(n) if j in own and probs[row][j] > 0 and probs[row][j] >= sum(own[j]) / len(own[j])]
        if sure:
            best = max(sure, key=lambda j: probs[row][j])
            if best != label:
                rival = max(p for j, p in enumerate(probs[row]) if j != label)
                found[row] = (label, best, probs[row][label] / (probs[row][label] + rival))
    return found


def label_issues_by_loops(probs, given, prior):
    """(row, label) -> (missing, quality), from the definition; ``given`` is 1, 0 or -1 for unknown."""
    n = len(probs[0])
    sums, counts = np.zeros((2, n)), np.zeros((2, n))
    for p, y in zip(probs, given, strict=True):
        for label in range(n):
            if y[label] >= 0:
                sums[int(y[label]), label] += p[label] if y[label] else 1 - p[label]
                counts[int(y[label]), label] += 1
    pooled = sums.sum(1) / counts.sum(1)
    at = (sums + prior * pooled[:, None]) / (counts + prior)
    found = {}
    for row, (p, y) in enumerate(zip(probs, given, strict=True)):
        for label in range(n):
            present, absent = p[label] >= at[1, label], 1 - p[label] >= at[0, label]
            if present and absent:
                present, absent = p[label] > 1 - p[label], not p[label] > 1 - p[label]
            if y[label] == 0 and present:
                found[row, label] = (True, 1 - p[label])
            if y[label] == 1 and absent:
                found[row, label] = (False, p[label])
    return found


@pytest.mark.parametrize("seed", range(5))
def test_wrong_classes_are_those_of_the_definition(seed):
    probs = ambiguous_probs(80, seeded(seed), groups=2, group_size=3)
    classes = draw(probs, seeded(seed + 100))
    issues = find_wrong_classes(probs, classes, from_logits=False)
    wanted = wrong_classes_by_loops(probs.numpy(), classes.tolist())
    assert len(wanted) > 2
    assert {each["row"]: (each["label"], each["suggested"]) for each in issues.to_list()} == {
        row: found[:2] for row, found in wanted.items()
    }
    assert issues.quality.tolist() == pytest.approx(sorted(quality for *_, quality in wanted.values()))


@pytest.mark.parametrize("prior", [0.0, 5.0])
@pytest.mark.parametrize("seed", range(3))
def test_label_issues_are_those_of_the_definition(seed, prior):
    logits, labels = multilabel(60, 5, seeded(seed), rate=0.4)
    given = labels.float().masked_fill(torch.rand(labels.shape, generator=seeded(seed)) < 0.1, -1.0)
    issues = find_label_issues(logits, given, from_logits=True, prior=prior)
    wanted = label_issues_by_loops(logits.double().sigmoid().tolist(), given.tolist(), prior)
    assert {True, False} == {missing for missing, _ in wanted.values()}
    found = zip(issues.rows.tolist(), issues.labels.tolist(), issues.missing.tolist(), issues.quality, strict=True)
    assert {(row, label): (missing, pytest.approx(float(q))) for row, label, missing, q in found} == wanted
    assert (issues.quality.diff() >= 0).all()


def test_planted_wrong_classes_come_first():
    generator = seeded(0)
    probs = (6 * torch.randn(4000, 12, generator=generator)).softmax(-1)
    classes = draw(probs, generator)
    flipped = torch.randperm(4000, generator=generator)[:200]
    given = classes.clone()
    given[flipped] = (given[flipped] + 7) % probs.shape[1]
    issues = find_wrong_classes(probs, given, from_logits=False)
    assert torch.isin(issues.rows[:100], flipped).double().mean() > 0.95
    assert torch.isin(flipped, issues.rows).double().mean() > 0.6


def test_hidden_labels_are_found_and_expected_in_about_their_number():
    generator = seeded(1)
    probs = torch.rand(5000, 8, generator=generator, dtype=torch.float64).pow(4)
    labels = torch.rand(probs.shape, generator=generator) < probs
    hidden = labels & (torch.rand(probs.shape, generator=generator) < 0.2)
    issues = find_label_issues(probs, labels & ~hidden, from_logits=False)
    first = issues.missing.nonzero()[:200, 0]
    assert hidden[issues.rows[first], issues.labels[first]].double().mean() > 0.8
    assert float(issues.expected_missing.sum()) > 0.5 * float(hidden.sum())


def test_every_form_of_labels_gives_the_same_issues():
    logits, labels = multilabel(50, 4, seeded(0), rate=0.4)
    forms = [labels, labels.float(), labels.float().to_sparse(), to_index_lists(labels, 4), labels.numpy()]
    found = [find_label_issues(logits, form, from_logits=True).to_list() for form in forms]
    assert all(each == found[0] for each in found)
    probs = ambiguous_probs(40, seeded(0), groups=1, group_size=4)
    classes = draw(probs, seeded(1))
    lists = find_wrong_classes(probs.numpy(), classes.unsqueeze(-1), from_logits=False).to_list()
    assert lists == find_wrong_classes(probs, classes, from_logits=False).to_list()


def test_many_rows_are_read_in_blocks_with_the_same_result(monkeypatch):
    logits, labels = multilabel(300, 6, seeded(0), rate=0.3)
    classes = logits.argmax(-1)
    whole = find_label_issues(logits, labels, from_logits=True).to_list()
    wrong = find_wrong_classes(logits.flip(0), classes, from_logits=True).to_list()
    uncertain = rows_to_label(logits, from_logits=True, one_class=False)
    monkeypatch.setattr("shortlist.sets.scores.BLOCK", 60)
    assert find_label_issues(logits, labels, from_logits=True).to_list() == whole
    assert find_wrong_classes(logits.flip(0), classes, from_logits=True).to_list() == wrong
    assert torch.equal(rows_to_label(logits, from_logits=True, one_class=False).rows, uncertain.rows)


def test_unknown_and_absent_labels_are_never_issues():
    scores = torch.tensor([[0.9, 0.9, -torch.inf], [0.1, 0.9, 0.9], [0.9, 0.1, 0.1]])
    labels = torch.tensor([[-1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    issues = find_label_issues(scores, labels, from_logits=False, prior=0.0)
    assert (0, 0) not in zip(issues.rows.tolist(), issues.labels.tolist(), strict=True)
    assert (0, 2) not in zip(issues.rows.tolist(), issues.labels.tolist(), strict=True)
    masked = torch.tensor([[-torch.inf, 0.0], [3.0, -3.0]])
    found = find_wrong_classes(masked, torch.tensor([0, 0]), from_logits=True)
    assert torch.isfinite(found.quality).all()


def test_rows_without_a_class_are_no_issues_and_are_worth_labeling():
    probs = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    labels = torch.tensor([[-1, -1, -1], [-1, -1, -1], [0, -1, -1], [1, -1, -1]])
    assert 0 not in find_wrong_classes(probs, labels, from_logits=False).rows
    found = rows_to_label(probs, labels, from_logits=False, one_class=True)
    assert found.rows.tolist() == [0, 1]
    assert found.bits.tolist() == pytest.approx([1.0, 0.4689956], abs=1e-6)


def test_unknown_labels_are_ranked_by_their_entropy_in_bits():
    probs = torch.tensor([[0.5, 0.5, 0.01], [0.5, 0.97, 0.5], [0.5, 0.5, 0.5]])
    labels = torch.tensor([[-1.0, 1.0, 0.0], [-1.0, 0.0, -1.0], [1.0, 1.0, 0.0]])
    found = rows_to_label(probs, labels, from_logits=False, one_class=False)
    assert (found.rows.tolist(), found.unknown.tolist()) == ([1, 0], [2, 1])
    assert found.bits.tolist() == pytest.approx([2.0, 1.0])
    assert rows_to_label(probs, from_logits=False, one_class=False).rows.tolist() == [2, 1, 0]


def test_issues_name_labels_and_become_a_table():
    probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]])
    issues = find_wrong_classes(probs, torch.tensor([0, 0, 1, 1, 0]), from_logits=False, names=["cat", "dog"])
    assert issues.to_list() == [
        {"row": 4, "label": "cat", "issue": "wrong", "suggested": "dog", "quality": pytest.approx(0.1)}
    ]
    frame = issues.to_pandas()
    assert list(frame.columns) == ["row", "label", "issue", "suggested", "quality"]
    assert repr(issues) == "<LabelIssues: 1 probably wrong, 0 probably missing>"
    empty = find_wrong_classes(probs[:4], torch.tensor([0, 0, 1, 1]), from_logits=False)
    assert isinstance(empty, LabelIssues)
    assert (len(empty), list(empty.to_pandas().columns)) == (0, list(frame.columns))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, y: find_wrong_classes(s, y[:3], from_logits=False), "one row per row of scores, 5; got 3"),
        (
            lambda s, y: find_wrong_classes(s, y.repeat(2, 1).T, from_logits=False),
            "one class per row|occurs twice|twice",
        ),
        (lambda s, y: find_wrong_classes(s * torch.nan, y, from_logits=False), "`scores` must not be NaN"),
        (lambda s, y: find_wrong_classes(s[0], y, from_logits=False), r"`scores` must have shape \(rows, labels\)"),
        (lambda s, y: find_wrong_classes(s, torch.full((5, 4), -1), from_logits=False), "at least one class"),
        (
            lambda s, y: find_wrong_classes(s, y, from_logits=False, names=["a"]),
            "`names` must have one entry per label",
        ),
        (lambda s, y: find_label_issues(s, torch.zeros(5, 3), from_logits=False), "at least one true label"),
        (lambda s, y: find_label_issues(s, y, from_logits=False, prior=-1.0), "`prior` must be finite and at least"),
        (lambda s, y: rows_to_label(s, y[:2], from_logits=False, one_class=True), "one row per row of scores"),
    ],
)
def test_bad_input_is_one_sentence(call, message):
    scores = torch.rand(5, 3, generator=seeded(0))
    with pytest.raises(ValueError, match=message):
        call(scores, torch.tensor([0, 1, 2, 0, 1]))
