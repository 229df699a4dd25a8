"""None of these: rejecting inputs that belong to no label, at a false-alarm rate that is guaranteed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from shortlist.fitted.module import FittedModule
from shortlist.labels import LabelsLike, Numbers, read_numbers, read_scores, read_target
from shortlist.sets.rejection.rejecting_rule import RejectingRule
from shortlist.sets.rule import SetRule, check_alpha
from shortlist.sets.scores import Block, Link
from shortlist.targets import to_class_indices
from shortlist.tensors import as_written

if TYPE_CHECKING:
    from typing_extensions import Self

Familiarity = Literal["max-logit", "energy"]


class NoneOfThese(RejectingRule):
    r"""Rejects inputs that look like none of the labels, and few of those that belong to one.

    .. math:: p(x) = \frac{1 + |\{i : s(x_i) \le s(x)\}|}{N + 1}, \quad \text{rejected if } p(x) \le \alpha

    For a new row that is exchangeable with the held-out ones, the false-alarm rate is at most :math:`\alpha`, on
    average over draws of the held-out rows, and more than :math:`\alpha - 1 / (N + 1)` without ties. No promise is made
    about how many strange inputs are rejected: that depends on the score s. Rows that tie with the threshold are kept;
    `p_values` breaks ties at random, exactly. With fewer than :math:`1 / \alpha - 1` rows nothing is rejected.

    Args:
        alpha: the false-alarm rate, in (0, 1).
        rule: whose sets the other rows get; None for the best label.
        score: s: ``"energy"``, the logarithm of the sum of exponentials of the logits, or ``"max-logit"``. Labels that
            are absent do not count.
        link: as in `SetRule`; that of ``rule`` by default.

    Example:
        >>> logits = torch.arange(40.0).reshape(20, 2)
        >>> rule = NoneOfThese(0.1).fit(logits, from_logits=True)  # no labels needed
        >>> sets = rule.predict(torch.tensor([[0.5, 0.5], [30.0, 20.0]]))
        >>> sets.to_list(), sets.abstained
        ([[], [0]], tensor([ True, False]))

    References:
        Liu, Wang, Owens, Li, "Energy-based out-of-distribution detection", 2020; Hendrycks et al., "Scaling
        out-of-distribution detection for real-world settings", 2022; Bates, Candès, Lei, Romano, Sesia, "Testing for
        outliers with conformal p-values", 2023.
    """

    needs_labels: ClassVar[bool] = False

    def __init__(
        self,
        alpha: float,
        *,
        rule: SetRule | None = None,
        score: Familiarity = "energy",
        link: Link | None = None,
    ) -> None:
        self.alpha = check_alpha(alpha)
        if score not in ("max-logit", "energy"):
            raise ValueError(f'`score` must be "max-logit" or "energy"; got {score!r}.')
        self.score: Familiarity = score
        super().__init__(rule, link=link)

    def _check_reading(self, scores: Tensor, from_logits: bool) -> None:
        if from_logits is False:
            raise ValueError("`from_logits` must be True for NoneOfThese: probabilities hide how large logits were.")
        super()._check_reading(scores, from_logits)

    def _observe(self, block: Block, labels: Any) -> tuple[Tensor, ...]:
        return (self._familiarity(block),)

    def _settle(self, *observed: Tensor) -> dict[str, Any]:
        (familiar,) = observed
        lowest = math.floor(as_written(self.alpha) * (len(familiar) + 1))
        self.threshold.fill_(float(familiar.sort().values[lowest - 1]) if lowest else -math.inf)
        alarms = float((familiar.double() < self.threshold).double().mean())
        return {"constraint": "false alarms", "wanted": self.alpha, "achieved": alarms}

    def _answered(self, block: Block) -> Tensor:
        return self._familiarity(block).double() >= self.threshold.to(block.values.device)

    def _familiarity(self, block: Block) -> Tensor:
        found = block.scores.amax(-1) if self.score == "max-logit" else block.scores.logsumexp(-1)
        return found.clamp(min=torch.finfo(found.dtype).min)  # a row without labels


def p_values(held_out: Numbers, scores: Numbers, *, generator: torch.Generator | None = None) -> Tensor:
    r"""Conformal p-values of the hypothesis that a row is exchangeable with the held-out ones.

    .. math:: p = \frac{|\{i : h_i < s\}| + U (1 + |\{i : h_i = s\}|)}{N + 1}

    With a ``generator``, U is uniform in [0, 1) and p exactly uniform for such rows, whatever the ties. Without one, U
    is 1, so that :math:`P(p \le \alpha) \le \alpha`.

    Args:
        held_out: ``(N,)``, how familiar held-out rows look, such as their best logit or minus their `FeatureDistance`.
        scores: ``(B,)``, the same of the rows to test.
        generator: of the random numbers that break ties.

    Example:
        >>> p_values(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 2.0, 9.0]))
        tensor([0.2500, 0.7500, 1.0000], dtype=torch.float64)

    References:
        Vovk, Gammerman, Shafer, "Algorithmic learning in a random world", 2005.
    """
    held_out, scores = read_scores(held_out, name="held_out").cpu(), read_scores(scores).cpu()
    for name, values in (("held_out", held_out), ("scores", scores)):
        if values.ndim != 1 or bool(values.isnan().any()):
            raise ValueError(f"`{name}` must be a vector without NaN; got shape {tuple(values.shape)}.")
    if not len(held_out):
        raise ValueError("`held_out` must have at least one row.")
    ordered, scores = held_out.double().sort().values, scores.double()
    below, up_to = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    share = 1.0 if generator is None else torch.rand(len(scores), dtype=torch.float64, generator=generator)
    return (below + share * (1 + up_to - below).double()) / (len(ordered) + 1)


class FeatureDistance(FittedModule):
    r"""How far features are from those of every class: the smallest Mahalanobis distance to a class mean, squared.

    .. math:: d(f) = \min_c\ (f - \mu_c)^\top \Sigma^{-1} (f - \mu_c)

    with one covariance for all classes, shrunk toward a multiple of the identity by as much as Ledoit and Wolf
    estimate. Fit it on training features, take `p_values` of minus the distance of held-out ones, and put the alarms
    into sets by `PredictionSets.abstain`.

    Example:
        >>> features = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [5.0, 2.0], [5.0, -2.0]])
        >>> distance = FeatureDistance().fit(features, torch.tensor([0, 0, 1, 1]))
        >>> distance(torch.tensor([[0.0, 0.0], [5.0, 1.0], [2.5, 9.0]]))
        tensor([ 0.0000,  0.7742, 67.8821])

    References:
        Lee, Lee, Lee, Shin, "A simple unified framework for detecting out-of-distribution samples", 2018; Ledoit, Wolf,
        "A well-conditioned estimator for large-dimensional covariance matrices", 2004.
    """

    means: Tensor
    whitening: Tensor
    shrinkage: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(0, 0, dtype=torch.float64))
        self.register_buffer("whitening", torch.zeros(0, 0, dtype=torch.float64))
        self.register_buffer("shrinkage", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def fit(self, features: Numbers, classes: LabelsLike) -> Self:
        """Fit on features ``(N, d)`` and one class for each row."""
        x = read_numbers(features, name="features").double().cpu()
        if x.ndim != 2 or 0 in x.shape or not bool(x.isfinite().all()):
            raise ValueError(f"`features` must be finite, of shape (rows, features); got {tuple(x.shape)}.")
        given = read_target(classes, 1 << 31, name="classes").cpu()
        if given.shape != (len(x),):
            raise ValueError(f"`classes` must have one class per row of features, {len(x)}; got {tuple(given.shape)}.")
        given = to_class_indices(given, int(given.max()) + 1, name="classes")
        # Classes are numbered anew, because some may have no rows.
        own = given.unique(return_inverse=True)[1]
        counts = torch.bincount(own).unsqueeze(-1)
        means = torch.zeros(len(counts), x.shape[1], dtype=torch.float64).index_add(0, own, x) / counts
        covariance, shrinkage = shrunk_covariance(x - means[own])
        values, vectors = torch.linalg.eigh(covariance)
        values = values.clamp(min=1e-12 * float(values.max())) if float(values.max()) > 0 else torch.ones_like(values)
        self.whitening = vectors / values.sqrt()
        self.means, self.shrinkage = means @ self.whitening, torch.tensor(shrinkage, dtype=torch.float64)
        return self

    def forward(self, features: Numbers) -> Tensor:
        """``(B,)``: the distance of features ``(B, d)``."""
        x = read_numbers(features, name="features")
        if x.ndim != 2 or x.shape[1] != len(self.whitening):
            width = len(self.whitening)
            raise ValueError(f"`features` must have shape (rows, {width}) as in the fit; got {tuple(x.shape)}.")
        white = x.to(self.means.dtype) @ self.whitening
        # In this form, unlike in that of a product, a distance of 0 is exact.
        distances = torch.cdist(white, self.means, compute_mode="donot_use_mm_for_euclid_dist")
        return distances.amin(-1).square().to(x.dtype if x.is_floating_point() else self.means.dtype)


def shrunk_covariance(centered: Tensor) -> tuple[Tensor, float]:
    """Ledoit and Wolf's covariance of centered rows ``(N, d)``, and the weight of the identity in it."""
    n, d = centered.shape
    plain = centered.T @ centered / n
    scale = float(plain.trace()) / d
    spread = float(plain.square().sum() / d) - scale**2
    squares = centered.square()
    noise = float((squares.sum(-1).square().mean() - plain.square().sum()) / (d * n))
    shrinkage = 1.0 if spread <= 0 else min(max(noise, 0.0) / spread, 1.0)
    return (1 - shrinkage) * plain + shrinkage * scale * torch.eye(d, dtype=torch.float64), shrinkage
