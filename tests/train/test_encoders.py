"""Encoders give a vector per row of any input that data bring, and all their parameters learn."""

import pytest
import torch

from shortlist.data import SparseRows
from shortlist.train import MLP, Bag, DenseNet, Plain, SmallCNN, Standardised
from shortlist.train.encoders import as_floats

DENSE = {
    "plain": lambda: Plain((3, 8, 8)),
    "standardised": lambda: Standardised(torch.full((192,), 0.5), torch.linspace(0, 2, 192)),
    "mlp": lambda: MLP(Plain((3, 8, 8)), (16, 5)),
    "mlp without layers": lambda: MLP(Plain((3, 8, 8)), ()),
    "mlp on standardised": lambda: MLP(Standardised(torch.zeros(192), torch.ones(192)), (5,), dropout=0.5),
    "cnn": lambda: SmallCNN(3, width=4),
    "densenet": lambda: DenseNet(depth=7, growth=4),
}
LEARNED = ["mlp", "mlp on standardised", "cnn", "densenet"]


def pictures(rows: int = 4) -> torch.Tensor:
    return torch.randint(256, (rows, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def words(dtype: torch.dtype = torch.float32) -> SparseRows:
    """Rows of which the first, the third and the last are empty."""
    crow, columns = torch.tensor([0, 0, 2, 2, 3, 3]), torch.tensor([1, 5, 0])
    return SparseRows(crow, columns, torch.tensor([2.0, -1.0, 0.5], dtype=dtype), 6)


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_features_are_float32_whatever_the_inputs(name, dtype):
    torch.manual_seed(0)
    encoder = DENSE[name]().eval()
    inputs = pictures() if dtype == torch.uint8 else (pictures() / 255).to(dtype)
    features = encoder(inputs)
    assert features.shape == (4, encoder.out_features)
    assert features.dtype == torch.float32
    same = pictures() / 255 if dtype == torch.uint8 else inputs.float()
    assert torch.allclose(features, encoder(same), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", DENSE)
def test_an_encoder_in_float64_computes_in_float64(name):
    encoder = DENSE[name]().double().eval()
    for inputs in (pictures(), pictures() / 255, pictures().double() / 255):
        assert encoder(inputs).dtype == torch.float64


@pytest.mark.parametrize("name", DENSE)
def test_one_row_in_evaluation_gives_what_it_gives_among_others(name):
    torch.manual_seed(0)
    encoder = DENSE[name]()
    encoder(pictures())  # so that running statistics are other than at the start
    encoder.eval()
    assert torch.allclose(encoder(pictures()[:1]), encoder(pictures())[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", DENSE)
def test_no_rows_give_no_features(name):
    encoder = DENSE[name]().eval()
    assert encoder(pictures(0)).shape == (0, encoder.out_features)


@pytest.mark.parametrize("name", LEARNED)
def test_gradients_reach_every_parameter(name):
    torch.manual_seed(0)
    encoder = DENSE[name]()
    features = encoder(pictures(8))
    (features * torch.randn(features.shape)).sum().backward()
    for parameter_name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name


@pytest.mark.parametrize("name", [*LEARNED, "bag"])
def test_a_seed_determines_the_parameters(name):
    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        encoder = Bag(6, 4) if name == "bag" else DENSE[name]()
        return torch.cat([parameter.detach().flatten() for parameter in encoder.parameters()])

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_bytes_become_fractions():
    assert as_floats(torch.tensor([0, 51, 255], dtype=torch.uint8), torch.float64).tolist() == [0, 0.2, 1]
    assert as_floats(torch.tensor([0, 51, 255]), torch.float32).tolist() == [0, 51, 255]


def test_plain_keeps_values_in_their_order():
    inputs = torch.arange(12.0).reshape(2, 2, 3)
    assert torch.equal(Plain((2, 3))(inputs), inputs.flatten(1))
    assert not Plain((2, 3)).state_dict()


def test_standardised_features_have_mean_0_and_scale_1_and_constants_vanish():
    inputs = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([5.0, 1e-3, 0.0]) + 7
    encoder = Standardised(inputs.mean(0), inputs.std(0, unbiased=False))
    features = encoder(inputs)
    assert torch.allclose(features.mean(0), torch.zeros(3), atol=1e-3)
    assert torch.allclose(features.std(0, unbiased=False), torch.tensor([1.0, 1.0, 0.0]), atol=1e-3)
    assert not list(encoder.parameters())
    assert set(encoder.state_dict()) == {"mean", "factor"}


@pytest.mark.parametrize("encoder", [Plain((4,)), Standardised(torch.zeros(4), torch.ones(4))], ids=["plain", "scaled"])
@pytest.mark.parametrize("width", [1, 3, 5])
def test_rows_of_another_size_are_refused(encoder, width):
    with pytest.raises(ValueError, match=rf"`inputs` must have 4 features per row; got shape \(2, {width}\)."):
        encoder(torch.zeros(2, width))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_bag_is_the_product_of_the_rows_and_its_vectors(dtype):
    torch.manual_seed(0)
    bag, rows = Bag(6, 4), words(dtype).batch(torch.arange(5))
    features = bag(rows)
    assert features.dtype == torch.float32
    assert torch.allclose(features, rows.to_dense().float() @ bag.vectors.weight, atol=1e-6)
    assert not features[[0, 2, 4]].any()


@pytest.mark.parametrize("rows", [[], [0], [0, 2, 4], [1]], ids=["no rows", "one empty", "all empty", "one"])
def test_a_bag_takes_few_and_empty_rows(rows):
    torch.manual_seed(0)
    bag, batch = Bag(6, 4), words().batch(torch.tensor(rows, dtype=torch.int64))
    assert bag(batch).shape == (len(rows), 4)
    assert bag.double()(batch).dtype == torch.float64
    assert MLP(bag, (3,)).double()(batch).isfinite().all()


def test_gradients_reach_the_vectors_of_stored_columns_alone():
    bag = Bag(6, 4)
    bag(words().batch(torch.arange(5))).sum().backward()
    assert bag.vectors.weight.grad.any(1).tolist() == [True, True, False, False, False, True]


def test_a_bag_refuses_other_layouts_and_widths_in_one_sentence():
    with pytest.raises(TypeError, match=r"`inputs` must be a sparse CSR tensor; got layout torch.strided."):
        Bag(6, 4)(torch.zeros(2, 6))
    with pytest.raises(ValueError, match=r"`inputs` must have 5 columns; got 6."):
        Bag(5, 4)(words().batch(torch.arange(5)))


def test_rows_of_unit_length_have_features_of_unit_variance():
    torch.manual_seed(0)
    values = torch.full((1000, 16), 0.25)
    rows = SparseRows(torch.arange(1001) * 16, torch.randint(500, (16000,)), values.flatten(), 500)
    assert abs(Bag(500, 64)(rows.batch(torch.arange(1000))).var().item() - 1) < 0.1


@pytest.mark.parametrize("size", [1, 2, 5, 28, 33])
def test_small_networks_take_pictures_of_any_size(size):
    assert SmallCNN(1, width=2).eval()(torch.zeros(2, 1, size, size, dtype=torch.uint8)).shape == (2, 8)


def test_dropout_is_for_training_only():
    torch.manual_seed(0)
    encoder, inputs = MLP(Plain((8,)), (64,), dropout=0.5), torch.randn(2, 8)
    assert not torch.equal(encoder(inputs), encoder(inputs))
    encoder.eval()
    assert torch.equal(encoder(inputs), encoder(inputs))
