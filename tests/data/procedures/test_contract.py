"""What holds for every random procedure: the seed alone decides, on any platform, and the rest stays as it was."""

import inspect
import json
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

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
from tests.data.datasets import in_all_forms
from tests.python_process import run_python

PROCEDURES = {
    "hide_labels": lambda data, **options: hide_labels(data, **{"rate": 0.5, **options}),
    "incomplete_labels": incomplete_labels,
    "label_noise": lambda data, **options: label_noise(data, **{"rate": 0.5, **options}),
    "long_tail": lambda data, **options: long_tail(data, **{"imbalance": 4, **options}),
    "sample_groups": lambda data, **options: sample_groups(
        data, **{"share": 0.5, "groups": "genus", "min_count": 1, **options}
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


def make(name: str, *, backwards: bool = False) -> Dataset:
    """Rows with labels that the procedure takes; ``backwards`` writes every dict the other way round."""
    rows, n = 600, 12
    hot = ((torch.arange(rows)[:, None] * 5 + torch.arange(n)[None] * 3) % 4 == 0).float()
    hot[::7, 3] = -1
    label_groups = {
        "superclass": Groups(torch.arange(n) // 4, ("x", "y", "z")),
        "genus": Groups(torch.arange(n) // 2, tuple("uvwxyz")),
    }
    row_groups = {
        "source": Groups(torch.arange(rows) // 9, tuple(f"s{i}" for i in range(67))),
        "year": Groups.of([1970 + i % 9 for i in range(rows)]),
    }
    if backwards:
        label_groups, row_groups = (dict(reversed(list(d.items()))) for d in (label_groups, row_groups))
    split = Groups.of([("train", "train", "val", "test")[i % 4] for i in range(rows)], order=("train", "val", "test"))
    names = tuple(f"label {i}" for i in range(n))
    inputs = Features(torch.arange(rows, dtype=torch.float32)[:, None])
    kept = {"label_groups": label_groups, "row_groups": row_groups, "split": split}
    return Dataset(inputs, torch.arange(rows) * 7 % n if name in ONE_CLASS else hot, names, **kept)


def dense(data: Dataset, targets: Tensor) -> Tensor:
    return to_multi_hot(targets, data.num_labels)


def state(data: Dataset) -> list:
    rows = data.inputs.batch(torch.arange(len(data))).flatten().tolist()
    return [rows, data.split.index.tolist(), to_multi_hot(data.targets, data.num_labels).tolist(), data.label_names]


def digest(dataset: Dataset) -> str:
    hot = to_multi_hot(dataset.targets, dataset.num_labels)
    inputs = dataset.inputs.batch(torch.arange(len(dataset)))
    parts = [part.to(torch.int64).numpy().astype("<i8").tobytes() for part in (hot, dataset.split.index, inputs)]
    return blake2b(b"".join(parts) + "|".join(dataset.label_names).encode(), digest_size=8).hexdigest()


PUBLISHED: list[tuple[str, dict[str, Any], str]] = [
    ("label_noise", {"rate": 0.4}, "6f686395aa4b34eb"),
    ("label_noise", {"rate": 0.4, "others_only": True, "groups": "genus"}, "19e2a2bfd0f03ff3"),
    ("long_tail", {"imbalance": 10}, "8407b12e6f66d5e9"),
    ("long_tail", {"imbalance": 10, "alpha": 1.5, "order": "random"}, "f3aefe76e783504f"),
    ("hide_labels", {"rate": 0.3, "mark": "unknown"}, "f3417ffb5fd1ec53"),
    ("incomplete_labels", {}, "01fb90b19357e795"),
    ("single_positive", {}, "7e43410582e56a02"),
    ("sample_groups", {"min_count": 5}, "b6da04aa39d8a704"),
    ("split_per_class", {}, "b3cb3687b21a8ba8"),
    ("split_at_random", {}, "5335111c82544403"),
    ("split_by_group", {}, "41bdd63fbe02cb12"),
    ("split_covering_labels", {}, "a12de061abbb14d7"),
    ("split_off_validation", {}, "d8285e191d8546e1"),
]


def digests(*, backwards: bool = False) -> list[str]:
    """The published results, computed again."""
    made = [PROCEDURES[name](make(name, backwards=backwards), **options, seed=3) for name, options, _ in PUBLISHED]
    return list(map(digest, made))


def test_every_procedure_gives_the_published_result():
    assert digests() == [each for _, _, each in PUBLISHED]
    assert {name for name, _, _ in PUBLISHED} == set(PROCEDURES)


def test_another_process_and_another_order_of_dicts_give_the_same_results():
    # By path, for an installed package may bring a package `tests` of its own.
    code = "import json, runpy, sys; json.dump(runpy.run_path(sys.argv[1])['digests'](backwards=True), sys.stdout)"
    assert json.loads(run_python("-c", code, __file__, PYTHONHASHSEED="12345").stdout) == digests()


def test_global_seeds_play_no_part():
    torch.manual_seed(1)
    np.random.seed(1)
    first = digests()
    torch.manual_seed(2)
    np.random.seed(2)
    assert digests() == first


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
        hot = [dense(data, part.targets) for part in (result.part("test"), data.part("test"))]
        assert torch.equal(*hot)
    if result.clean_targets is not None:
        assert torch.equal(dense(data, result.clean_targets), dense(data, data.targets))


@pytest.mark.parametrize("name", sorted(PROCEDURES.keys() - set(ONE_CLASS)))
def test_the_form_of_the_labels_plays_no_part(name):
    data = make(name)
    for hot in (data.targets, data.targets.clamp(min=0)):  # With unknown labels, and in the forms that have none.
        expected = state(PROCEDURES[name](replace(data, targets=hot), seed=2))
        for form, targets in in_all_forms(hot).items():
            result = PROCEDURES[name](replace(data, targets=targets), seed=2)
            assert state(result) == expected, form
            assert name not in SETS or torch.equal(dense(data, result.true_targets), hot), form


@pytest.mark.parametrize("name", ["hide_labels", "incomplete_labels", "label_noise", "single_positive"])
def test_clean_targets_survive_a_second_procedure(name):
    data = make(name)
    once = PROCEDURES[name](data)
    twice = PROCEDURES[name](once, seed=8)
    for result in (once, twice, hide_labels(once, 0.5, mark="unknown", seed=8)):
        assert torch.equal(dense(data, result.true_targets), dense(data, data.targets))
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
        (
            "label_noise",
            {"groups": "family"},
            "`label_groups` of the dataset must have 'family'; it has genus, superclass.",
        ),
        (
            "sample_groups",
            {"groups": "family"},
            "`label_groups` of the dataset must have 'family'; it has genus, superclass.",
        ),
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
