"""Every loss and operator takes tensors of any strides: transposed, sliced, expanded."""

import pytest
import torch
from torch import Tensor

from shortlist import functional as F
from tests.contracts import POTENTIALS, PROJECTIONS
from tests.contracts_losses import FORMS, LOSSES, random_hot

LAYOUTS = {
    "transposed": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
    "sliced": lambda x: torch.stack([x, -x], -1)[..., 0],
    "offset": lambda x: torch.cat([torch.zeros_like(x), x], -1)[..., x.shape[-1] :],
}
"""The same values in another layout of memory."""

OPERATORS = {
    **{str(case): case for case in PROJECTIONS},
    "kth_largest": F.kth_largest,
    "noised_kth_largest": lambda x, k: F.noised_kth_largest(x, k, noise=x.new_ones(2, *x.shape)),
    "log_elementary_symmetric": F.log_elementary_symmetric,
    **{str(case): lambda x, k, case=case: case.potential(k)(x) for case in POTENTIALS},
}

each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def results(function, x: Tensor) -> tuple[Tensor, Tensor]:
    """The value and the gradient."""
    x = x.detach().requires_grad_()
    value = function(x)
    return value.detach(), torch.autograd.grad(value.square().sum(), x)[0]


def same(function, x: Tensor, other: Tensor) -> bool:
    pairs = zip(results(function, x), results(function, other), strict=True)
    # A sum may run over its terms in another order.
    rtol, atol = (1e-9, 1e-12) if x.dtype == torch.float64 else (1e-4, 1e-5)
    return all(torch.allclose(a, b, rtol=rtol, atol=atol) for a, b in pairs)


@pytest.mark.parametrize(("rows", "layout"), [*(((4,), layout) for layout in LAYOUTS), ((2, 3), "transposed")], ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_loss_takes_any_layout(loss, rows, layout, fresh):
    n, count = 5, torch.Size(rows).numel()
    logits = 2 * torch.randn(*rows, n, generator=fresh, dtype=torch.float64)
    hot = random_hot(loss, count, n, fresh)
    moved, weight = LAYOUTS[layout](logits), LAYOUTS[layout](torch.linspace(0.5, 2, n).double().expand(2, n))[0]
    targets = [hot.reshape(logits.shape), LAYOUTS[layout](hot.reshape(logits.shape))]
    if loss.one_class:
        classes = FORMS["class indices"](hot).reshape(rows)
        targets += [classes, classes.unsqueeze(-1).expand(*rows, 2)[..., 0]]
    if len(rows) == 1:
        targets += [FORMS["index lists"](hot), FORMS["index lists"](hot).T.contiguous().T, FORMS["sparse CSR"](hot)]
    for i, target in enumerate(targets):

        def run(x: Tensor, target: Tensor = target, reduction: str = ("none", "mean")[i % 2]) -> Tensor:
            return loss(x, target, weight=weight, reduction=reduction)

        assert same(run, logits, moved)
        expanded = logits.reshape(count, n)[:1].expand(count, n).reshape(logits.shape)
        assert same(run, expanded.contiguous(), expanded)


@each_layout
@pytest.mark.parametrize(("shape", "dtype"), [((4, 5), "float64"), ((2, 3, 5), "float32-kernels")], indirect=["dtype"])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_takes_any_layout(name, shape, dtype, layout, fresh):
    x = 2 * torch.randn(*shape, generator=fresh, dtype=dtype)
    assert same(lambda x: OPERATORS[name](x, 2), x, LAYOUTS[layout](x))
    for expanded in (x[:1].expand(shape), x.flatten()[0].expand(shape)):
        assert same(lambda x: OPERATORS[name](x, 2), expanded.contiguous(), expanded)


def test_column_major_logits_of_a_few_rows_are_taken():
    logits, classes = torch.arange(15.0).reshape(3, 5).t(), torch.tensor([0, 1, 2, 0, 1])
    torch.testing.assert_close(F.two_way(logits, classes), F.two_way(logits.contiguous(), classes))
