"""What holds for every random procedure: the seed alone decides, arguments are checked, the rest stays as it was."""

import inspect
from dataclasses import replace

import pytest
import torch

import shortlist.data
from shortlist.data import (
    Dataset,
    Features,
    Groups,
    hide_labels,
    incomplete_labels,
    label_noise,
    long_tail,
    sample_groups,
    single_positive,
    split_at_random,
    split_by_group,
    split_covering_labels,
    split_off_validation,
    split_per_class,
)
from shortlist.targets import to_multi_hot

PROCEDURES = {
    "hide_labels": lambda data, **options: hide_labels(data, **{"rate": 0.5, **options}),
    "incomplete_labels": incomplete_labels,
    "label_noise": lambda data, **options: label_noise(data, **{"rate": 0.5, **options}),
    "long_tail": lambda data, **options: long_tail(data, **{"imbalance": 4, **options}),
    "sample_groups": lambda data, **options: sample_groups(
        data, **{"share": 0.5, "groups": "superclass", "min_count": 1, **options}
    ),
    "single_positive": single_positive,
    "split_at_random": split_at_random,
    "split_by_group": lambda data, **options: split_by_group(data, "source", **options),
    "split_covering_labels": split_covering_labels,
    "split_off_validation": split_off_validation,
    "split_per_class": split_per_class,
}
ONE_CLASS = ("label_noise", "long_tail", "split_per_class")
SETS = ("incomplete_labels", "single_positive", "hide_labels")
every_procedure = pytest.mark.parametrize("name", PROCEDURES)


def make(name: str, rows: int = 240) -> Dataset:
    """Rows with labels that the procedure takes, in a split of two parts, with groups of labels and of rows."""
    targets = torch.arange(rows) % 8
    if name in SETS:
        targets = ((torch.arange(rows)[:, None] * 3 + torch.arange(8)) % 5 < 2).float()
    return Dataset(
        Features(torch.arange(rows)[:, None]),
        targets,
        tuple("abcdefgh"),
        label_groups={"superclass": Groups(torch.arange(8) // 2, tuple("wxyz"))},
        row_groups={"source": Groups.of(row // 3 for row in range(rows))},
        split=Groups(torch.arange(rows) % 4 // 3, ("train", "test")),
    )


def state(data: Dataset) -> list:
    assert data.split is not None
    rows = data.inputs.batch(torch.arange(len(data))).flatten().tolist()
    return [rows, data.split.index.tolist(), to_multi_hot(data.targets, data.num_labels).tolist(), data.label_names]


def test_no_random_procedure_is_missing_here():
    functions = {name: getattr(shortlist.data, name) for name in shortlist.data.__all__}
    seeded = {
        name
        for name, function in functions.items()
        if inspect.isfunction(function) and "seed" in inspect.signature(function).parameters
    }
    assert seeded - {"digits"} == set(PROCEDURES)


@every_procedure
def test_the_seed_decides_and_nothing_else(name):
    run = PROCEDURES[name]
    data = make(name)
    before = state(data)
    assert state(run(data, seed=1)) == state(run(data, seed=1)) != state(run(data, seed=2))
    assert state(data) == before
    assert data.clean_targets is None


@every_procedure
def test_rows_outside_the_training_part_stay(name):
    data = make(name)
    result = PROCEDURES[name](data)
    if not name.startswith(("split", "sample")):
        assert state(result.part("test"))[0] == state(data.part("test"))[0]
        hot = [to_multi_hot(part.targets, 8) for part in (result.part("test"), data.part("test"))]
        assert torch.equal(*hot)
    if result.clean_targets is not None:
        assert torch.equal(to_multi_hot(result.clean_targets, 8), to_multi_hot(data.targets, 8))


@pytest.mark.parametrize("name", ["hide_labels", "incomplete_labels", "label_noise", "single_positive"])
def test_clean_targets_survive_a_second_procedure(name):
    data = make(name)
    once = PROCEDURES[name](data)
    twice = PROCEDURES[name](once, seed=8)
    for result in (once, twice, hide_labels(once, 0.5, mark="unknown", seed=8)):
        assert torch.equal(to_multi_hot(result.true_targets, 8), to_multi_hot(data.targets, 8))
    with pytest.raises(ValueError, match=r"^`dataset` must be split before labels are changed or hidden; .*\.$"):
        split_at_random(once)


@every_procedure
def test_no_rows_pass_and_a_negative_seed_is_refused(name):
    empty = make(name).subset([])
    assert len(PROCEDURES[name](empty)) == 0
    with pytest.raises(ValueError, match="`seed` must be an integer from 0; got"):
        PROCEDURES[name](make(name), seed=-1)


@pytest.mark.parametrize("name", ONE_CLASS)
def test_procedures_on_classes_refuse_sets(name):
    data = make("hide_labels")
    with pytest.raises(TypeError, match=rf"^`{name}` needs one class per row, .*; the targets are multi-hot\.$"):
        PROCEDURES[name](data)


@pytest.mark.parametrize(
    ("name", "option"), [("hide_labels", "rate"), ("label_noise", "rate"), ("sample_groups", "share")]
)
def test_rates_and_shares_outside_the_unit_interval_are_refused(name, option):
    with pytest.raises(ValueError, match=rf"^`{option}` must lie in \[0, 1\]; got 1\.1\.$"):
        PROCEDURES[name](make(name), **{option: 1.1})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("label_noise", {"groups": "genus"}, "`label_groups` of the dataset must have 'genus'; it has superclass."),
        ("sample_groups", {"groups": "genus"}, "`label_groups` of the dataset must have 'genus'; it has superclass."),
        *((name, {"mark": "gone"}, "`mark` must be 'absent' or 'unknown'; got 'gone'.") for name in SETS),
        ("long_tail", {"order": "size"}, "`order` must be 'index' or 'random'; got 'size'."),
    ],
)
def test_other_options_are_refused_by_name(name, options, message):
    with pytest.raises(ValueError, match=message):
        PROCEDURES[name](make(name), **options)


@pytest.mark.parametrize("name", ["label_noise", "long_tail", *SETS])
def test_a_split_without_a_training_part_is_refused(name):
    data = make(name)
    data = replace(data, split=Groups.of(["val", "test"] * (len(data) // 2)))
    with pytest.raises(ValueError, match=r"^`name` must be one of test, val; got 'train'\.$"):
        PROCEDURES[name](data)
