"""Encoders return a feature vector per row for any input that data bring, and all their parameters learn."""

import pytest
import torch

from shortlist.data import SparseRows
from shortlist.train import MLP, Bag, DenseNet, Plain, SmallCNN, Standardised
from shortlist.train.model.encoders import as_floats

DENSE = {
    "plain": lambda: Plain((3, 8, 8)),
    "standardized": lambda: Standardised(torch.full((192,), 0.5), torch.linspace(0, 2, 192)),
    "mlp": lambda: MLP(Plain((3, 8, 8)), (16, 5)),
    "mlp without layers": lambda: MLP(Plain((3, 8, 8)), ()),
    "mlp on standardized": lambda: MLP(Standardised(torch.zeros(192), torch.ones(192)), (5,), dropout=0.5),
    "cnn": lambda: SmallCNN(3, width=4),
    "densenet": lambda: DenseNet(depth=7, growth=4),
}
LEARNED = ["mlp", "mlp on standardized", "cnn", "densenet"]


def pictures(rows: int = 4) -> torch.Tensor:
    return torch.randint(256, (rows, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def words(dtype: torch.dtype = torch.float32) -> SparseRows:
    """Rows of which the first, the third and the last are empty."""
    crow, columns = torch.tensor([0, 0, 2, 2, 3, 3]), torch.tensor([1, 5, 0])
    return SparseRows(crow, columns, torch.tensor([2.0, -1.0, 0.5], dtype=dtype), 6)


@pytest.mark.parametrize("name", DENSE)
def test_features_have_the_dtype_of_the_encoder_whatever_the_inputs(name):
    torch.manual_seed(0)
    encoder = DENSE[name]()
    encoder(pictures())  # So that running statistics differ from the initial ones.
    encoder.eval()
    wanted = encoder(pictures() / 255)
    assert wanted.shape == (4, encoder.out_features)
    for dtype in (torch.uint8, torch.float16, torch.bfloat16, torch.float64):
        inputs = pictures() if dtype == torch.uint8 else (pictures() / 255).to(dtype)
        found = encoder(inputs)
        assert found.dtype == torch.float32
        assert torch.allclose(found, wanted if dtype == torch.uint8 else encoder(inputs.float()), rtol=1e-4, atol=1e-5)
    assert torch.allclose(encoder(pictures()[:1]), encoder(pictures())[:1], rtol=1e-4, atol=1e-5)
    assert encoder(pictures(0)).shape == (0, encoder.out_features)
    assert encoder.double()(pictures() / 255).dtype == torch.float64


@pytest.mark.parametrize("name", LEARNED)
def test_a_seed_determines_the_parameters_and_gradients_reach_all_of_them(name):
    torch.manual_seed(0)
    encoder = DENSE[name]()
    torch.manual_seed(0)
    again = DENSE[name]()
    assert all(torch.equal(a, b) for a, b in zip(encoder.parameters(), again.parameters(), strict=True))
    features = encoder(pictures(8))
    (features * torch.randn(features.shape)).sum().backward()
    for parameter_name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name


def test_bytes_become_fractions_and_plain_keeps_the_order():
    assert as_floats(torch.tensor([0, 51, 255], dtype=torch.uint8), torch.float64).tolist() == [0, 0.2, 1]
    assert as_floats(torch.tensor([0, 51, 255]), torch.float32).tolist() == [0, 51, 255]
    inputs = torch.arange(12.0).reshape(2, 2, 3)
    assert torch.equal(Plain((2, 3))(inputs), inputs.flatten(1))
    assert not Plain((2, 3)).state_dict()


def test_standardized_features_have_mean_0_and_deviation_1_and_constants_vanish():
    inputs = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([5.0, 1e-3, 0.0]) + 7
    encoder = Standardised(inputs.mean(0), inputs.std(0, unbiased=False))
    features = encoder(inputs)
    assert torch.allclose(features.mean(0), torch.zeros(3), atol=1e-3)
    assert torch.allclose(features.std(0, unbiased=False), torch.tensor([1.0, 1.0, 0.0]), atol=1e-3)
    assert set(encoder.state_dict()) == {"mean", "factor"}
    for refusing in (encoder, Plain((3,))):
        with pytest.raises(ValueError, match=r"`inputs` must have 3 features per row; got shape \(2, 5\)\."):
            refusing(torch.zeros(2, 5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_bag_multiplies_rows_and_vectors(dtype):
    torch.manual_seed(0)
    bag, rows = Bag(6, 4), words(dtype).batch(torch.arange(5))
    features = bag(rows)
    assert features.dtype == torch.float32
    assert torch.allclose(features, rows.to_dense().float() @ bag.vectors.weight, atol=1e-6)
    features.sum().backward()
    assert bag.vectors.weight.grad.any(1).tolist() == [True, True, False, False, False, True]
    for few in ([], [0], [0, 2, 4]):  # No rows, and only empty ones.
        batch = words(dtype).batch(torch.tensor(few, dtype=torch.int64))
        assert MLP(Bag(6, 4), (3,)).double()(batch).shape == (len(few), 3)


def test_a_bag_refuses_other_layouts_and_widths():
    with pytest.raises(TypeError, match=r"`inputs` must be a sparse CSR tensor; got layout torch.strided."):
        Bag(6, 4)(torch.zeros(2, 6))
    with pytest.raises(ValueError, match=r"`inputs` must have 5 columns; got 6."):
        Bag(5, 4)(words().batch(torch.arange(5)))


def test_the_vectors_of_a_bag_start_small():
    torch.manual_seed(0)
    values = torch.full((1000, 16), 0.25)
    rows = SparseRows(torch.arange(1001) * 16, torch.randint(500, (16000,)), values.flatten(), 500)
    assert 0.005 < Bag(500, 64)(rows.batch(torch.arange(1000))).std().item() < 0.05


@pytest.mark.parametrize("size", [1, 5, 33])
def test_small_networks_take_images_of_any_size(size):
    assert SmallCNN(1, width=2).eval()(torch.zeros(2, 1, size, size, dtype=torch.uint8)).shape == (2, 8)


def test_dropout_is_for_training_only():
    torch.manual_seed(0)
    encoder, inputs = MLP(Plain((8,)), (64,), dropout=0.5), torch.randn(2, 8)
    assert not torch.equal(encoder(inputs), encoder(inputs))
    encoder.eval()
    assert torch.equal(encoder(inputs), encoder(inputs))


def densenet_size(depth: int, growth: int) -> tuple[int, int]:
    """Parameters and features, layer by layer, as Huang et al. (2017) describe the plain network.

    A first convolution of 16 maps; three blocks whose layers are a normalization of all maps so far (2 numbers each)
    and a 3 × 3 convolution to ``growth`` maps; between blocks, a normalization and a 1 × 1 convolution that keeps the
    number of maps; a last normalization. No convolution has a bias.
    """
    total, maps = 9 * 3 * 16, 16
    for block in (1, 2, 3):
        for _ in range((depth - 4) // 3):
            total += 2 * maps + 9 * maps * growth
            maps += growth
        total += 2 * maps + (maps * maps if block < 3 else 0)
    return total, maps


# With a head of 10 classes: the sizes in millions of the published table.
@pytest.mark.parametrize(
    ("depth", "growth", "millions"), [(40, 12, 1.0), (100, 12, 7.0), (100, 24, 27.2), (40, 40, 10.6)]
)
def test_a_densenet_has_the_published_size(depth, growth, millions):
    with torch.device("meta"):
        network = DenseNet(depth=depth, growth=growth)
    count = sum(parameter.numel() for parameter in network.parameters())
    assert (count, network.out_features) == densenet_size(depth, growth)
    assert round((count + 10 * (network.out_features + 1)) / 1e6, 1) == millions
    convolutions = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(convolutions) + 1 == depth  # With the head.


def test_blocks_of_a_densenet_halve_the_image_and_layers_keep_their_input():
    sizes = []
    network = DenseNet(depth=7, growth=4).eval()
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d) and module.kernel_size == (3, 3):
            module.register_forward_hook(lambda module, inputs, output: sizes.append(output.shape[-1]))
    network(torch.zeros(1, 3, 32, 32))
    assert sizes == [32, 32, 16, 8]
    x = torch.randn(2, 16, 5, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(network.layers[1](x)[:, :16], x)


@pytest.mark.parametrize("depth", [4, 8, -2])
def test_a_depth_that_fits_no_blocks_is_refused(depth):
    with pytest.raises(ValueError, match=rf"`depth` must be 3 m \+ 4 with an integer m >= 1; got {depth}."):
        DenseNet(depth=depth)
