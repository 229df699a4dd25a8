"""Counted gradients of the noised loss."""

import torch

from experiments.noised_loss import counted_coordinates
from shortlist.nn import CrossEntropy, NoisedTopK


def test_coordinates_are_counted_for_the_noised_loss_alone():
    weight = torch.tensor([[0.0, 3.0, 2.0, 1.0], [9.0, 0.0, 1.0, 2.0]], requires_grad=True)
    target = torch.tensor([0, 0])
    with counted_coordinates() as counts:
        CrossEntropy()(2 * weight, target).backward()
        NoisedTopK(1, epsilon=0.0)(2 * weight, target).backward()
    NoisedTopK(1, epsilon=0.0)(2 * weight, target).backward()
    # The first row has a rival and its own class; the second is beyond the margin.
    assert [count.tolist() for count in counts] == [[2, 0]]
