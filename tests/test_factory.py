"""Every loss and head has a name; options follow from the data unless the user sets them."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shortlist import nn
from shortlist.data.target_rows import sparse_targets
from shortlist.factory import HEADS, LOSSES, loss_class, make_head, make_loss
from shortlist.nn import Loss, Task
from shortlist.train import MLP, ModelPlan, Plain, SetModel
from shortlist.train.distributed.global_batch import batch_loss
from tests.contracts import HEADS_WITHOUT_TENSORS

N, ROWS = 7, 6
CLASSES = torch.tensor([0, 3, 6, 1, 3, 2])
SETS = sparse_targets(torch.tensor([0, 0, 1, 2, 2, 2, 4, 5]), torch.tensor([0, 5, 3, 6, 1, 2, 3, 2]), ROWS, N)
BELOW_ALL_LABELS = {"average_k"}
"""Losses that cannot ask for all labels."""

each_loss = pytest.mark.parametrize("name", LOSSES)
each_unlimited = pytest.mark.parametrize("name", [name for name in LOSSES if name not in BELOW_ALL_LABELS])


def task(k: float = 2, n: int = N, counts: Tensor | None = None) -> Task:
    return Task(n, torch.arange(n) + 1 if counts is None else counts, ROWS, k)


def step(name: str, data: Task, target: Tensor | None = None) -> float:
    """Take a training step with finite gradients for all parameters, and return the sum of their magnitudes."""
    torch.manual_seed(0)
    if target is None:
        target = CLASSES if LOSSES[name].one_class else SETS
    model = SetModel(MLP(Plain((4,)), (8,)), make_head("auto", 8, data.num_labels, loss=name))
    loss = make_loss(name, data)
    parameters = [*model.parameters(), *loss.parameters()]
    value = batch_loss(loss, model.outputs(torch.randn(ROWS, 4)), target, torch.arange(ROWS))
    value.backward()
    torch.optim.SGD(parameters, lr=0.01).step()
    assert value.isfinite()
    assert all(parameter.grad.isfinite().all() and parameter.isfinite().all() for parameter in parameters)
    return sum(float(parameter.grad.abs().sum()) for parameter in parameters)


def test_every_exported_loss_has_the_name_of_its_function_and_module():
    exported = [getattr(nn, name) for name in nn.__all__]
    losses = {value for value in exported if inspect.isclass(value) and issubclass(value, Loss)} - {Loss}
    assert len(losses) > 15
    assert set(LOSSES.values()) == losses
    for name, loss in LOSSES.items():
        assert name.replace("_", "") == loss.__name__.lower()
        assert loss.function.__name__ == name or issubclass(loss, LOSSES[loss.function.__name__])


def test_every_exported_head_has_a_name():
    exported = {value for value in map(nn.__dict__.get, nn.__all__) if inspect.isclass(value)}
    # Two heads are created by the loss that needs them, and not every metric takes logits in blocks.
    others = {nn.TwoHead, *HEADS_WITHOUT_TENSORS}
    heads = {value for value in exported if value.__name__.endswith("Head")} - others
    made = {type(make_head(name, 4, 9, loss="bce", options={"k": 2} if name == "dft" else None)) for name in HEADS}
    assert made == heads | {torch.nn.Linear}


def test_the_table_of_the_guide_puts_every_loss_in_its_column():
    text = (Path(__file__).parents[1] / "docs" / "guide.md").read_text()
    lines = text.partition("| one true class |")[2].partition("\n\n")[0].splitlines()[2:]
    columns = list(zip(*(line.strip().strip("|").split("|") for line in lines), strict=True))
    named = [[LOSSES[name] for cell in column for name in re.findall("`(.+?)`", cell)] for column in columns]
    assert all(loss.one_class for loss in named[0])
    assert not any(loss.one_class for column in named[1:] for loss in column)
    assert len({loss for column in named for loss in column}) == sum(map(len, named)) > 20


@pytest.mark.parametrize("name", LOSSES)
def test_names_may_be_spelled_with_dashes(name):
    assert loss_class(name.replace("_", "-")) is LOSSES[name]


def test_a_former_name_still_works_and_warns():
    for former, name in (("lml", "lml_nll"), ("sparsemax", "sparsemax_loss"), ("sparse_top", "sparse_top_loss")):
        with pytest.warns(DeprecationWarning, match=f"^The loss '{former}' is now called '{name}'.$"):
            assert type(make_loss(former, task())) is LOSSES[name]


def test_plans_saved_under_a_former_name_load_quietly():
    saved = {"kind": "features", "shape": [4], "num_labels": 7, "loss": "lml"}
    assert ModelPlan.from_json(saved).loss == "lml_nll"


@each_loss
def test_losses_for_one_class_are_those_that_refuse_two(name):
    logits, target = torch.zeros(1, N), torch.tensor([[1.0, 1.0] + [0.0] * (N - 2)])
    outputs, loss = (logits,) * LOSSES[name].num_heads, make_loss(name, task())
    if LOSSES[name].one_class:
        with pytest.raises(ValueError, match="one label must be positive"):
            batch_loss(loss, outputs, target, torch.tensor([0]))
    else:
        assert batch_loss(loss, outputs, target, torch.tensor([0])).isfinite()


@each_loss
def test_every_loss_takes_a_step(name):
    for k in (1, 2.5, 4):
        assert step(name, task(k)) > 0
    assert step(name, task(), CLASSES) > 0


@each_loss
def test_labels_without_training_rows_do_no_harm(name):
    step(name, task(counts=torch.tensor([0, 3, 0, 1, 100, 0, 1])))
    step(name, task(counts=torch.zeros(N)))


@each_unlimited
def test_a_loss_takes_a_single_label_and_k_of_all_labels(name):
    step(name, task(1, n=1), torch.zeros(ROWS, dtype=torch.int64))
    step(name, task(N))


@pytest.mark.parametrize("n", [1, N])
def test_average_k_refuses_k_of_all_labels(n):
    with pytest.raises(ValueError, match=rf"`k` must lie in \[1, {n}\); got {n}."):
        step("average_k", task(n, n=n), torch.zeros(ROWS, dtype=torch.int64))


@pytest.mark.parametrize("k", [N + 1, 7.5, 0, -1, float("nan"), float("inf")])
def test_a_task_refuses_k_outside_its_labels(k):
    with pytest.raises(ValueError, match=rf"^`k` must lie in \(0, 7\], the number of labels; got {k}\.$"):
        task(k)


@pytest.mark.parametrize(("k", "whole"), [(0.3, 1), (1, 1), (1.2, 2), (2.0, 2), (5.5, 6), (6.5, 6), (7, 6)])
def test_a_fraction_is_rounded_up_but_stays_below_all_labels(k, whole):
    assert make_loss("topk_hinge", task(k)).k == task(k).whole_k == whole
    assert make_loss("lml_nll", task(k)).k == k
    assert task(1, n=1).whole_k == 1


def test_options_follow_from_the_data():
    counts = torch.tensor([16, 1, 0, 81, 1, 1, 1])
    data = Task(N, counts, 50, 1.5)
    assert torch.allclose(make_loss("ldam", data).margin[:4], torch.tensor([0.25, 0.5, 0.5, 0.5 / 3]))
    assert make_loss("noised_topk_imbalanced", data).margin.amax() == pytest.approx(0.4)
    assert make_loss("role", data).estimates.shape == (50, N)
    assert data.labels_per_row == pytest.approx(101 / 50)
    assert make_loss("expected_positive", data).expected == pytest.approx(101 / 50)
    assert make_loss("expected_positive", Task(N, counts, 50, 4)).expected == 4
    assert Task(N, torch.zeros(N), 0, 1).labels_per_row == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lml_nll", {"k": 3, "temperature": 0.5}),
        ("ldam", {"margin": 0.1, "scale": 10.0}),
        ("noised_topk_imbalanced", {"epsilon": 0.5, "samples": 3, "margin": 0.2, "scale": 2.0, "k": 4}),
        ("role", {"expected": 3.5, "beta": 0.1}),
        ("average_k", {"k": 1.5, "alpha": 0.1, "reduction": "sum"}),
    ],
)
def test_the_users_options_override_those_from_the_data(name, options):
    loss = make_loss(name, task(), options)
    assert {key: getattr(loss, key) for key in options} == options


@pytest.mark.parametrize("option", ["temperatur", "task", "self", "cls"])
@each_loss
def test_an_unknown_option_of_a_loss_is_one_sentence(name, option):
    with pytest.raises(ValueError, match=rf"^`loss_options` of '{name}' must be among .*; got '{option}'\.$"):
        make_loss(name, task(), {option: 1})


@pytest.mark.parametrize("name", HEADS)
def test_an_unknown_option_of_a_head_is_one_sentence(name):
    for option in ("scales", "features", "labels"):
        # The function that makes bottlenecks takes any option and hands it on.
        given = rf"` '{name}': [^.]*(\.__init__)?[^.]*"
        of = given if name == "bottleneck" else f"_options` of '{name}' must be among .*; got "
        with pytest.raises(ValueError, match=rf"^`head{of}'{option}'\.$"):
            make_head(name, 4, 9, loss="bce", options={option: 1})


def test_an_option_of_the_wrong_kind_is_one_sentence():
    with pytest.raises(ValueError, match=r"^`head` 'bottleneck': `bottleneck` must be a whole number; got 2\.5\.$"):
        make_head("bottleneck", 4, 9, loss="bce", options={"bottleneck": 2.5})
    with pytest.raises(ValueError, match=r"^`head` 'dft': .*'k'\.$"):
        make_head("dft", 4, 9, loss="bce")
    with pytest.raises(ValueError, match=r"^`loss` 'lml_nll': `reduction` must be .* got 'average'\.$"):
        make_loss("lml_nll", task(), {"reduction": "average"})
    with pytest.raises(ValueError, match=r"^`loss` 'bce': .*'list'.*\.$"):
        make_loss("bce", task(), {"weight": [1.0, 2.0]})


def test_an_unknown_name_is_one_sentence_that_lists_the_others():
    with pytest.raises(ValueError, match=r"^`loss` must be one of average_k, .*, warp; got 'crossentropy'\.$"):
        make_loss("crossentropy", task())
    with pytest.raises(
        ValueError, match=r"^`head` must be one of linear, cosine, bottleneck, dft, clusters; got 'cosin'\.$"
    ):
        make_head("cosin", 4, 9, loss="bce")


@each_loss
def test_the_automatic_head_suits_the_loss(name):
    head, loss = make_head("auto", 4, 9, loss=name), LOSSES[name]
    assert isinstance(head, nn.TwoHead) == (loss.num_heads == 2)
    first = head.prediction if isinstance(head, nn.TwoHead) else head
    assert isinstance(first, {"cosine": nn.CosineHead, "linear": torch.nn.Linear}[loss.head])


@pytest.mark.parametrize("name", HEADS)
def test_average_k_gets_two_different_heads_of_any_kind(name):
    options = {"k": 2} if name == "dft" else {}
    head = make_head(name, 4, 9, loss="average_k", options=options)
    assert type(head.prediction) is type(head.proposal) is type(make_head(name, 4, 9, loss="ldam", options=options))
    assert not torch.equal(*head(torch.randn(2, 4, generator=torch.Generator().manual_seed(0))))


def test_options_of_a_head_are_used():
    assert make_head("cosine", 4, 9, loss="bce", options={"scale": 20.0}).scale == 20
    assert make_head("bottleneck", 4, 9, loss="bce").bottleneck == 50
    assert make_head("bottleneck", 4, 9, loss="bce", options={"bottleneck": 3}).bottleneck == 3
    assert make_head("linear", 4, 9, loss="bce", options={"bias": False}).bias is None


@each_loss
def test_heads_start_at_frequencies_unless_the_loss_never_pushes_down_the_top_label(name):
    torch.manual_seed(0)
    logits = torch.tensor([[1.6, 0.4, 0.3, 0.2, 0.1, 0.0, -0.1]], requires_grad=True)
    loss = make_loss(name, task(k=3), {"epsilon": 0.05} if name.startswith("noised") else None)
    batch_loss(loss, (logits,) * loss.num_heads, torch.tensor([3]), torch.arange(1)).backward()
    assert LOSSES[name].starts_at_frequencies == bool(logits.grad[0, 0].abs() > 1e-9)
