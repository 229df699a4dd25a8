"""The DenseNet is the published one: its layers, its sizes, its number of parameters."""

import pytest
import torch

from shortlist.train import DenseNet


def parameters_by_hand(depth: int, growth: int, channels: int = 3) -> tuple[int, int]:
    """Parameters and features, layer by layer, as Huang et al. (2017) describe the plain network.

    A first convolution of 16 maps; three blocks, of which each layer is a normalisation of all maps so far (2 numbers
    each) and a convolution 3 × 3 to ``growth`` maps; between blocks, a normalisation and a convolution 1 × 1 that
    keeps the number of maps; a last normalisation. No convolution has a bias.
    """
    total, maps = 9 * channels * 16, 16
    for block in (1, 2, 3):
        for _ in range((depth - 4) // 3):
            total += 2 * maps + 9 * maps * growth
            maps += growth
        total += 2 * maps + (maps * maps if block < 3 else 0)
    return total, maps


def count(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(("depth", "growth"), [(40, 40), (40, 12), (7, 4), (10, 3)])
def test_the_number_of_parameters_is_that_of_the_architecture(depth, growth):
    with torch.device("meta"):
        network = DenseNet(depth=depth, growth=growth)
    assert (count(network), network.out_features) == parameters_by_hand(depth, growth)


def test_the_network_of_the_texts_has_1456_features_and_10_535_792_parameters():
    with torch.device("meta"):
        network = DenseNet()
    # In closed form: 36 layers meet 16, 56, ... maps, but each block ends on 496, 976 and 1456.
    met = sum(16 + 40 * layer for layer in range(36))
    assert count(network) == 432 + met * (2 + 360) + 2 * (496 + 976 + 1456) + 496**2 + 976**2 == 10_535_792
    assert network.out_features == 16 + 36 * 40 == 1456


@pytest.mark.parametrize(("depth", "growth", "millions"), [(40, 12, 1.0), (100, 12, 7.0), (100, 24, 27.2)])
def test_sizes_are_those_of_the_published_table(depth, growth, millions):
    with torch.device("meta"):
        network = DenseNet(depth=depth, growth=growth)
    assert round((count(network) + 10 * (network.out_features + 1)) / 1e6, 1) == millions


def test_there_are_as_many_layers_with_weights_as_the_depth_says():
    with torch.device("meta"):
        network = DenseNet(depth=40, growth=12)
    convolutions = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(convolutions) + 1 == 40  # and the head
    assert all(module.bias is None for module in convolutions)


def test_blocks_see_the_picture_in_full_then_halved_then_quartered():
    sizes = []
    network = DenseNet(depth=7, growth=4).eval()
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d) and module.kernel_size == (3, 3):
            module.register_forward_hook(lambda module, inputs, output: sizes.append(output.shape[-1]))
    network(torch.zeros(1, 3, 32, 32))
    assert sizes == [32, 32, 16, 8]


def test_a_layer_keeps_what_it_was_given():
    network = DenseNet(depth=7, growth=4).eval()
    layer, x = network.layers[1], torch.randn(2, 16, 5, 5, generator=torch.Generator().manual_seed(0))
    assert layer(x).shape == (2, 20, 5, 5)
    assert torch.equal(layer(x)[:, :16], x)


@pytest.mark.parametrize("depth", [4, 6, 8, 39, 0, -2])
def test_a_depth_that_fits_no_blocks_is_refused(depth):
    with pytest.raises(ValueError, match=rf"`depth` must be 3 m \+ 4 with an integer m >= 1; got {depth}."):
        DenseNet(depth=depth)


def test_the_whole_network_learns_from_two_pictures():
    torch.manual_seed(0)
    network = DenseNet(depth=40, growth=4)
    features = network(torch.randint(256, (2, 3, 8, 8), dtype=torch.uint8))
    assert features.shape == (2, 160)
    features.square().sum().backward()
    assert all(parameter.grad.isfinite().all() and parameter.grad.any() for parameter in network.parameters())
