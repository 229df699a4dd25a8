"""Heads that start at the label frequencies, and others that stay as they are."""

import math

import pytest
import torch

from shortlist.nn import BottleneckHead, CosineHead, DFTHead, TwoHead
from shortlist.train import fit
from shortlist.train.model.starting_point import start_at_frequencies
from tests.train.small_data import classes, quick

COUNTS = torch.tensor([50, 10, 1, 0, 100, 30, 20])
ROWS = 100
ODDS = ((COUNTS + 0.5) / (ROWS - COUNTS + 0.5)).double().log()


def heads() -> dict[str, torch.nn.Module]:
    torch.manual_seed(0)
    return {
        "linear": torch.nn.Linear(5, 7),
        "bottleneck": BottleneckHead(5, 7, bottleneck=3),
        "bottleneck of one": BottleneckHead(5, 7, bottleneck=1),
        "dft": DFTHead(5, 7, k=2, slack=2),
    }


@pytest.mark.parametrize("name", heads())
def test_logits_of_features_at_zero_are_the_log_odds(name):
    head = heads()[name]
    start_at_frequencies(head, COUNTS, ROWS)
    torch.testing.assert_close(head(torch.zeros(1, 5))[0].double(), ODDS, atol=1e-4, rtol=1e-4)
    assert all(parameter.requires_grad for parameter in head.parameters())


@pytest.mark.parametrize("name", ["linear", "bottleneck", "dft"])
def test_features_still_matter(name):
    head = heads()[name]
    start_at_frequencies(head, COUNTS, ROWS)
    assert (head(torch.randn(8, 5)).std(0) > 1e-3).all()


def test_both_of_two_heads_start_at_the_log_odds():
    head = TwoHead.linear(5, 7)
    start_at_frequencies(head, COUNTS, ROWS)
    for logits in head(torch.zeros(1, 5)):
        torch.testing.assert_close(logits[0].double(), ODDS, atol=1e-5, rtol=1e-5)


def test_relative_to_a_uniform_draw_labels_of_that_frequency_start_at_zero():
    head = TwoHead.linear(5, 7)
    start_at_frequencies(head, torch.tensor([10, 10, 10, 10, 10, 10, 10]), 70, relative=True)
    for logits in head(torch.zeros(1, 5)):
        torch.testing.assert_close(logits, torch.zeros(1, 7), atol=0.05, rtol=0)


def test_average_k_starts_where_its_averaged_negatives_leave_the_logits():
    # From the log-odds it needs twice as many steps: its negatives hardly weigh anything there.
    options = {"epochs": 1, "learning_rate": 1e-9}
    layers = [fit(classes(), quick(loss=loss, **options)).model.output_layer for loss in ("average_k", "bce")]
    average, binary = (layer.bias.detach() for layer in layers)
    torch.testing.assert_close(average - binary, torch.full_like(binary, math.log(len(binary) - 1)))


@pytest.mark.parametrize("head", [CosineHead(5, 7), DFTHead(5, 7, k=2), torch.nn.Linear(5, 7, bias=False)])
def test_heads_that_cannot_represent_the_log_odds_stay_as_they_are(head):
    before = {name: value.clone() for name, value in head.state_dict().items()}
    start_at_frequencies(head, COUNTS, ROWS)
    assert all(torch.equal(before[name], value) for name, value in head.state_dict().items())


def test_frequencies_of_one_half_give_logits_of_zero():
    head = BottleneckHead(5, 2, bottleneck=2)
    start_at_frequencies(head, torch.tensor([5, 5]), 10)
    torch.testing.assert_close(head(torch.zeros(1, 5)), torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("start", "loss", "at_frequencies"),
    [
        ("auto", "cross_entropy", True),
        ("auto", "truncated_topk_entropy", False),
        ("frequencies", "truncated_topk_entropy", True),
        ("drawn", "cross_entropy", False),
    ],
)
def test_the_option_decides_where_a_run_starts(start, loss, at_frequencies):
    data = classes()
    options = quick(loss=loss, start=start, learning_rate=1e-12, weight_decay=0.0, encoder="linear", k=2)
    bias = fit(data, options).model.output_layer.bias.detach().double()
    counts, rows = data.label_counts("train"), len(data.part_rows("train"))
    odds = ((counts + 0.5) / (rows - counts + 0.5)).double().log()
    assert torch.allclose(bias, odds, atol=1e-4) == at_frequencies
