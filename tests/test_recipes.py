"""Every loss and head has a name; what the data tell is filled in, and what the user says comes before it."""

import inspect
import re
from pathlib import Path

import pytest
import torch

from shortlist import nn
from shortlist.data.target_rows import sparse_targets
from shortlist.nn import Loss, Task
from shortlist.recipes import HEADS, LOSSES, make_head, make_loss
from shortlist.train import MLP, ModelPlan, Plain, SetModel
from shortlist.train.global_batch import batch_loss
from tests.contracts import HEADS_WITHOUT_TENSORS

ONE_CLASS = {name for name, loss in LOSSES.items() if loss.one_class}
N, ROWS = 7, 6
CLASSES = torch.tensor([0, 3, 6, 1, 3, 2])
SETS = sparse_targets(torch.tensor([0, 0, 1, 2, 2, 2, 4, 5]), torch.tensor([0, 5, 3, 6, 1, 2, 3, 2]), ROWS, N)


def task(k: float = 2, n: int = N, counts: torch.Tensor | None = None) -> Task:
    return Task(n, torch.arange(n) + 1 if counts is None else counts, ROWS, k)


def step(name: str, data: Task, target: torch.Tensor) -> tuple[torch.Tensor, float]:
    """A loss and the size of its gradients, which all parameters get, those of the loss included, and are finite."""
    torch.manual_seed(0)
    model = SetModel(MLP(Plain((4,)), (8,)), make_head("auto", 8, data.num_labels, loss=name))
    loss = make_loss(name, data)
    parameters = [*model.parameters(), *loss.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    inputs = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(1))
    value = batch_loss(loss, model.outputs(inputs), target, torch.arange(ROWS))
    value.backward()
    assert value.isfinite()
    for parameter in parameters:
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    optimizer.step()
    assert all(parameter.isfinite().all() for parameter in parameters)
    return value.detach(), sum(float(parameter.grad.abs().sum()) for parameter in parameters)


def test_every_loss_has_a_name():
    exported = {getattr(nn, name) for name in nn.__all__}
    losses = {value for value in exported if inspect.isclass(value) and issubclass(value, Loss) and value is not Loss}
    assert len(losses) > 15
    assert {type(make_loss(name, task())) for name in LOSSES} == losses


def test_losses_are_named_for_their_function_and_module():
    for name, loss in LOSSES.items():
        assert name.replace("_", "") == loss.__name__.lower()
        assert loss.function.__name__ == name or issubclass(loss, LOSSES[loss.function.__name__])


def test_the_table_of_the_readme_puts_every_loss_in_its_column():
    text = (Path(__file__).parents[1] / "README.md").read_text()
    lines = text.partition("| one true class |")[2].partition("\n\n")[0].splitlines()[2:]
    columns = list(zip(*(line.strip().strip("|").split("|") for line in lines), strict=True))
    named = [[LOSSES[name] for cell in column for name in re.findall("`(.+?)`", cell)] for column in columns]
    assert all(loss.one_class for loss in named[0])
    assert not any(loss.one_class for column in named[1:] for loss in column)
    assert len({loss for column in named for loss in column}) == sum(map(len, named)) > 20


def test_every_head_has_a_name():
    exported = {value for value in map(nn.__dict__.get, nn.__all__) if inspect.isclass(value)}
    # Pairs are made by the loss that wants them, and heads in parts give no tensor that all metrics take.
    others = {nn.TwoHead, *HEADS_WITHOUT_TENSORS}
    heads = {value for value in exported if value.__name__.endswith("Head")} - others
    made = {type(make_head(name, 4, 9, loss="bce", options={"k": 2} if name == "dft" else None)) for name in HEADS}
    assert made == heads | {torch.nn.Linear}


def test_losses_of_one_class_are_those_that_refuse_two():
    logits, target = torch.zeros(1, N), torch.tensor([[1.0, 1.0] + [0.0] * (N - 2)])
    for name in LOSSES:
        outputs, loss = (logits,) * (2 if name == "average_k" else 1), make_loss(name, task())
        if name in ONE_CLASS:
            with pytest.raises(ValueError, match="one label must be positive"):
                batch_loss(loss, outputs, target, torch.tensor([0]))
        else:
            assert batch_loss(loss, outputs, target, torch.tensor([0])).isfinite()
    assert set(LOSSES) >= ONE_CLASS


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("k", [1, 2, 2.5, 4])
def test_every_loss_takes_a_step(name, k):
    _, moved = step(name, task(k), CLASSES if name in ONE_CLASS else SETS)
    assert moved > 0


@pytest.mark.parametrize("name", sorted(set(LOSSES) - ONE_CLASS))
def test_losses_of_sets_take_a_step_on_classes(name):
    assert step(name, task(), CLASSES)[1] > 0


@pytest.mark.parametrize("name", LOSSES)
def test_labels_that_training_rows_never_show_do_no_harm(name):
    counts = torch.tensor([0, 3, 0, 1, 100, 0, 1])
    assert step(name, task(counts=counts), CLASSES if name in ONE_CLASS else SETS)[0].isfinite()
    assert step(name, task(counts=torch.zeros(N)), CLASSES if name in ONE_CLASS else SETS)[0].isfinite()


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"average_k"}))
def test_one_label_alone_takes_a_step(name):
    target = torch.zeros(ROWS, dtype=torch.int64)
    step(name, task(1, n=1), target)


def test_average_k_refuses_one_label_alone():
    with pytest.raises(ValueError, match=r"`k` must lie in \[1, 1\); got 1."):
        step("average_k", task(1, n=1), torch.zeros(ROWS, dtype=torch.int64))


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"average_k"}))
def test_as_many_as_all_labels_may_be_wanted(name):
    step(name, task(N), CLASSES if name in ONE_CLASS else SETS)


def test_average_k_refuses_all_labels():
    with pytest.raises(ValueError, match=r"`k` must lie in \[1, 7\); got 7."):
        step("average_k", task(N), CLASSES)


@pytest.mark.parametrize("k", [N + 1, 7.5, 0, -1, float("nan"), float("inf")])
def test_more_than_all_labels_or_none_is_refused(k):
    with pytest.raises(ValueError, match=rf"^`k` must lie in \(0, 7\], the number of labels; got {k}\.$"):
        task(k)


@pytest.mark.parametrize(("k", "whole"), [(0.3, 1), (1, 1), (1.2, 2), (2.0, 2), (5.5, 6), (6.5, 6), (7, 6)])
def test_a_fraction_is_rounded_up_but_stays_below_all_labels(k, whole):
    assert task(k).whole_k == whole
    assert make_loss("topk_hinge", task(k)).k == whole
    assert make_loss("lml_nll", task(k)).k == k


def test_the_whole_number_of_one_label_is_one():
    assert task(1, n=1).whole_k == 1


def test_losses_are_told_what_the_data_say():
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
        ("two_way", {"kind": "class"}),
        ("expected_positive", {"expected": 3.5, "beta": 0.1}),
        ("role", {"expected": 3.5, "beta": 0.1}),
        ("average_k", {"k": 1.5, "alpha": 0.1, "reduction": "sum"}),
    ],
)
def test_options_come_before_what_the_data_say(name, options):
    loss = make_loss(name, task(), options)
    assert {key: getattr(loss, key) for key in options} == options


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("option", ["temperatur", "task", "self"])
def test_an_unknown_option_of_a_loss_is_one_sentence(name, option):
    with pytest.raises(ValueError, match=rf"^`loss` '{name}': [^.]*(\.__init__)?[^.]*'{option}'\.$"):
        make_loss(name, task(), {option: 1})


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("option", ["scales", "features", "labels"])
def test_an_unknown_option_of_a_head_is_one_sentence(name, option):
    with pytest.raises(ValueError, match=rf"^`head` '{name}': [^.]*(\.__init__)?[^.]*'{option}'\.$"):
        make_head(name, 4, 9, loss="bce", options={option: 1})


def test_an_option_of_the_wrong_kind_is_one_sentence():
    with pytest.raises(ValueError, match=r"^`head` 'bottleneck': `bottleneck` must be a whole number; got 2.5\.$"):
        make_head("bottleneck", 4, 9, loss="bce", options={"bottleneck": 2.5})
    with pytest.raises(ValueError, match=r"^`head` 'dft': .*'k'\.$"):
        make_head("dft", 4, 9, loss="bce")
    with pytest.raises(ValueError, match=r"^`reduction` must be .* got 'average'\.$"):
        make_loss("lml_nll", task(), {"reduction": "average"})
    with pytest.raises(ValueError, match=r"^`loss` 'bce': .*'list'.*\.$"):
        make_loss("bce", task(), {"weight": [1.0, 2.0]})


def test_an_unknown_name_is_one_sentence_that_lists_the_others():
    with pytest.raises(ValueError, match=r"^`loss` must be one of average_k, .*, warp; got 'crossentropy'\.$"):
        make_loss("crossentropy", task())
    with pytest.raises(ValueError, match=r"^`head` must be one of linear, cosine, bottleneck, dft; got 'cosin'\.$"):
        make_head("cosin", 4, 9, loss="bce")


@pytest.mark.parametrize("name", LOSSES)
def test_the_head_suits_the_loss(name):
    head = make_head("auto", 4, 9, loss=name)
    first = head.prediction if name == "average_k" else head
    assert isinstance(head, nn.TwoHead) == (name == "average_k")
    assert isinstance(first, nn.CosineHead if name in ("ldam", "noised_topk_imbalanced") else torch.nn.Linear)


@pytest.mark.parametrize("name", HEADS)
def test_any_head_can_be_asked_for_and_average_k_gets_two_that_differ(name):
    options = {"k": 2} if name == "dft" else {}
    head = make_head(name, 4, 9, loss="average_k", options=options)
    assert type(head.prediction) is type(head.proposal) is type(make_head(name, 4, 9, loss="ldam", options=options))
    features = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(*head(features))


def test_options_of_a_head_are_used():
    assert make_head("cosine", 4, 9, loss="bce", options={"scale": 20.0}).scale == 20
    assert make_head("bottleneck", 4, 9, loss="bce").bottleneck == 50
    assert make_head("bottleneck", 4, 9, loss="bce", options={"bottleneck": 3}).bottleneck == 3
    assert make_head("linear", 4, 9, loss="bce", options={"bias": False}).bias is None


@pytest.mark.parametrize("name", LOSSES)
def test_heads_start_at_frequencies_unless_the_loss_never_pushes_down_what_is_on_top(name):
    torch.manual_seed(0)
    logits = torch.tensor([[1.6, 0.4, 0.3, 0.2, 0.1, 0.0, -0.1]], requires_grad=True)
    loss = make_loss(name, task(k=3), {"epsilon": 0.05} if name.startswith("noised") else None)
    outputs = (logits, logits) if name == "average_k" else (logits,)
    batch_loss(loss, outputs, torch.tensor([3]), torch.arange(1)).backward()
    assert logits.grad is not None
    assert LOSSES[name].starts_at_frequencies == bool(logits.grad[0, 0].abs() > 1e-9)


def test_a_former_name_still_works_and_warns():
    for former, name in (("lml", "lml_nll"), ("sparsemax", "sparsemax_loss"), ("sparse_top", "sparse_top_loss")):
        with pytest.warns(DeprecationWarning, match=f"^The loss '{former}' is now called '{name}'.$"):
            assert type(make_loss(former, task())) is LOSSES[name]


def test_plans_saved_under_a_former_name_load_quietly():
    saved = {"kind": "features", "shape": [4], "num_labels": 7, "loss": "lml"}
    assert ModelPlan.from_json(saved).loss == "lml_nll"
