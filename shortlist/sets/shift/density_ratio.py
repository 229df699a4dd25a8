"""How likely rows are among new ones relative to old ones, from a classifier that tells the two apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shortlist.labels import Numbers, read_numbers
from shortlist.tensors import check_number

_STEPS = 100


class DensityRatio(nn.Module):
    """A fitted ratio of densities, a module whose buffers can be saved with ``state_dict``.

    Attributes:
        coefficients: ``(d + 1,)`` float64, of the standardized features and the constant.
        mean, scale: ``(d,)``, by which features are standardized.
        offset: log of the number of old rows over that of new ones.
    """

    coefficients: Tensor
    mean: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(self, coefficients: Tensor, mean: Tensor, scale: Tensor, offset: Tensor) -> None:
        super().__init__()
        for name, value in (("coefficients", coefficients), ("mean", mean), ("scale", scale), ("offset", offset)):
            self.register_buffer(name, value)

    def forward(self, features: Numbers) -> Tensor:
        """``(rows,)`` float64: the density of new rows over that of old ones, at the features ``(rows, d)``."""
        read = _read_features(features, "features")
        if read.shape[1] != len(self.mean):
            raise ValueError(f"`features` must have {len(self.mean)} columns as before; got {read.shape[1]}.")
        return (_design(read, self.mean, self.scale) @ self.coefficients + self.offset).clamp(-700, 700).exp()


def density_ratio(old: Numbers, new: Numbers, *, penalty: float = 1.0) -> DensityRatio:
    r"""Fit the weights of `CovariateShift`: logistic regression of new against old rows.

    .. math:: w(x) = \frac{N_{\text{old}}}{N_{\text{new}}} \cdot \frac{P(\text{new} \mid x)}{P(\text{old} \mid x)}
              = \exp(a \cdot x + b)

    The ratio is exact in the limit if its logarithm is linear in the features, as between Gaussians of equal
    covariance; give squares and products as further features for more. The rows to fit it on should not be calibration
    rows. Newton's method in float64, with as many unknowns as features, so use an embedding of moderate width.

    Args:
        old: ``(N, d)``, features of rows as those in calibration.
        new: ``(M, d)``, features of rows as those to predict; labels are not needed.
        penalty: on half the sum of squares of the coefficients of standardized features, above 0: keeps weights finite
            where the two are separable.

    Returns:
        A module that maps features to weights.

    Example:
        >>> from shortlist.sets import density_ratio
        >>> old = torch.randn(4000, 1, generator=torch.Generator().manual_seed(0))
        >>> ratio = density_ratio(old, old + 1)
        >>> ratio(torch.tensor([[0.5]]))  # exp(x - 1/2) is the true one
        tensor([1.0109], dtype=torch.float64)

    References:
        Sugiyama, Suzuki, Kanamori, "Density Ratio Estimation in Machine Learning", 2012, chapter 4.
    """
    before, after = _read_features(old, "old"), _read_features(new, "new")
    if before.shape[1] != after.shape[1]:
        raise ValueError(f"`new` must have as many columns as `old`, {before.shape[1]}; got {after.shape[1]}.")
    penalty = check_number("penalty", penalty, at_least=0.0)
    if penalty == 0:
        raise ValueError("`penalty` must be above 0; got 0.0.")
    rows = torch.cat([before, after])
    mean, deviation = rows.mean(0), rows.std(0, correction=0)
    scale = torch.where(deviation > 0, deviation, 1.0)
    is_new = torch.cat([torch.zeros(len(before)), torch.ones(len(after))]).double()
    coefficients = _logistic_regression(_design(rows, mean, scale), is_new, penalty)
    offset = torch.tensor(len(before) / len(after), dtype=torch.float64).log()
    return DensityRatio(coefficients, mean, scale, offset)


def _logistic_regression(design: Tensor, target: Tensor, penalty: float) -> Tensor:
    """Newton's method, with steps halved until the objective falls; the constant, the last column, has no penalty."""
    ridge = torch.full((design.shape[1],), penalty, dtype=torch.float64)
    ridge[-1] = 0.0
    found = torch.zeros(design.shape[1], dtype=torch.float64)

    def objective(coefficients: Tensor) -> float:
        logits = design @ coefficients
        fit = nn.functional.softplus(logits).sum() - (target * logits).sum()
        return float(fit + (ridge * coefficients.square()).sum() / 2)

    value = objective(found)
    for _ in range(_STEPS):
        probs = (design @ found).sigmoid()
        gradient = design.T @ (probs - target) + ridge * found
        hessian = (design * (probs * (1 - probs))[:, None]).T @ design + torch.diag(ridge + 1e-9)
        step = torch.linalg.solve(hessian, gradient)
        while objective(found - step) > value and step.abs().max() > 1e-12:
            step = step / 2
        found = found - step
        value = objective(found)
        if step.abs().max() < 1e-9:
            break
    return found


def _design(features: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    standard = (features - mean) / scale
    return torch.cat([standard, torch.ones_like(standard[:, :1])], dim=1)


def _read_features(features: Numbers, name: str) -> Tensor:
    read = read_numbers(features, name=name).detach().double().cpu()
    if read.ndim != 2 or 0 in read.shape:
        raise ValueError(f"`{name}` must have shape (rows, features), at least one of each; got {tuple(read.shape)}.")
    if not read.isfinite().all():
        raise ValueError(f"`{name}` must be finite.")
    return read
