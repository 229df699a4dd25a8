"""A batch norm over all processes is torch's own where there is one process, and takes its place without a trace."""

import pytest
import torch
from torch import nn

from shortlist.train import DenseNet
from shortlist.train.distributed.batch_norm import GlobalBatchNorm, use_global_batch_norm


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d])
@pytest.mark.parametrize("training", [True, False])
def test_in_one_process_it_is_the_layer_that_it_replaces(kind, training):
    shape = {nn.BatchNorm1d: (5, 3), nn.BatchNorm2d: (5, 3, 4, 2), nn.BatchNorm3d: (5, 3, 4, 2, 2)}[kind]
    inputs = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    plain, other = kind(3, eps=0.01, momentum=0.3).train(training), kind(3, eps=0.01, momentum=0.3).train(training)
    found = GlobalBatchNorm.of(other)
    assert torch.equal(found(inputs), plain(inputs))
    assert all(torch.equal(value, plain.state_dict()[key]) for key, value in found.state_dict().items())
    assert found.running_mean is other.running_mean  # shared, not copied


def test_names_and_values_of_parameters_stay():
    network = DenseNet(1, depth=7, growth=2).eval()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    inputs = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    wanted = network(inputs)
    use_global_batch_norm(network)
    assert not any(type(module) is nn.BatchNorm2d for module in network.modules())
    assert any(isinstance(module, GlobalBatchNorm) for module in network.modules())
    assert before.keys() == network.state_dict().keys()
    assert torch.equal(network(inputs), wanted)


def test_layers_that_are_derived_from_it_are_left_alone():
    class WithActivation(nn.BatchNorm2d):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input).relu()

    network = nn.Sequential(WithActivation(3), nn.LayerNorm(3))
    use_global_batch_norm(network)
    assert isinstance(network[0], WithActivation)


def test_inputs_without_channels_are_refused():
    with pytest.raises(ValueError, match=r"^`input` must have rows and channels; got shape \(3,\)\.$"):
        GlobalBatchNorm(3)(torch.zeros(3))
