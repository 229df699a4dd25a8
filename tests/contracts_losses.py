"""Every public loss, with its module, its reference and one way to call them all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shortlist import functional as F
from shortlist import nn
from shortlist.targets import to_class_indices, to_index_lists, to_sparse
from tests import reference

EXPECTED = 1.7
"""How many positives a row has on average, for the losses that want to be told."""


@dataclass(frozen=True, eq=False)
class Loss:
    """A loss that all tests call as ``loss(logits, target, k)``, with the rest of its arguments filled in.

    The reference takes one row, or all rows where `couples_rows` (that of two-way always does). A second tensor of
    logits (`partner`) and noise are made from the shape of the logits alone, without chance; the noise is the same
    for every row.
    """

    function: Callable[..., Tensor]
    module: type[torch.nn.Module]
    reference: Callable[..., object]
    options: Mapping[str, object] = field(default_factory=dict)
    one_class: bool = False
    takes_k: bool = False
    takes_expected: bool = False
    takes_noise: bool = False
    partner: str | None = None
    entrywise: bool = False
    couples_rows: bool = False
    mean: str = ""
    """What "mean" divides by: "weights" of the classes, "rows", "rows with a class" or known "entries"; two-way has
    a rule of its own. By default "weights" for one class, else "rows"."""
    smooth: bool = True
    """Whether it has second derivatives other than 0."""
    detaches: bool = False
    """Whether it holds some of its terms constant, so that finite differences see more than its gradient."""
    cancels: bool = False
    """Whether it subtracts logits or probabilities, so that a small value does not keep its relative digits."""
    counts_absent: bool = False
    """Whether a row without positives still has a value other than 0."""

    def __str__(self) -> str:
        return "-".join([self.function.__name__, *(str(v) for v in self.options.values() if isinstance(v, str))])

    def __call__(self, logits: Tensor, target: Tensor, k: float = 2, *, partner: Tensor | None = None, **options):
        args = [logits, target]
        if self.partner:
            args.insert(1, self.second(logits) if partner is None else partner)
        return self.function(*args, *self._numbers(k), **self._filled(logits, options))

    def layer(self, logits: Tensor, k: float = 2, **options) -> torch.nn.Module:
        """Return the module with these options; for `role`, with its second tensor as its estimates."""
        if self.function.__name__ == "role":
            layer = self.module(len(logits), logits.shape[-1], EXPECTED, **{**self.options, **options})
            with torch.no_grad():
                next(layer.parameters()).copy_(self.second(logits))
            return layer
        return self.module(*self._numbers(k), **{**self.options, **options})

    def forward(self, layer: torch.nn.Module, logits: Tensor, target: Tensor) -> Tensor:
        """Call the module."""
        if self.function.__name__ == "role":
            return layer(logits, target, torch.arange(len(logits)))
        return layer(logits, self.second(logits), target) if self.partner else layer(logits, target)

    def second(self, logits: Tensor) -> Tensor:
        """Return other logits of the same shape and dtype."""
        waves = 2 * torch.sin(1.7 * torch.arange(logits.numel(), dtype=torch.float64))
        return waves.reshape(logits.shape).to(logits.dtype)

    def noise(self, logits: Tensor, samples: int = 3) -> Tensor:
        """Return the same noise for every row."""
        n = logits.shape[-1]
        noise = 1.5 * torch.sin(2.3 * torch.arange(1, samples * n + 1, dtype=torch.float64))
        noise = noise.reshape(samples, *[1] * (logits.dim() - 1), n).expand(samples, *logits.shape)
        return noise.to(torch.promote_types(logits.dtype, torch.float32))

    def largest_k(self, n: int) -> int:
        """Return the largest number of labels that may be wanted of ``n``."""
        return n - 1 if self.partner else n

    def expected(self, logits: Tensor, hot: Tensor, k: float = 2, **options) -> list:
        """Answer by the reference, without a reduction: one value per row, entry or class; 2-D logits only."""
        rows, positives, unknown = logits.tolist(), *label_sets(hot)
        options = self._filled(logits, options)
        for name, value in options.items():
            options[name] = value.tolist() if isinstance(value, Tensor) else value
        if self.couples_rows or self.reference is reference.two_way:
            second = [self.second(logits).tolist()] if self.partner else []
            return self.reference(rows, *second, positives, unknown, *self._numbers(k), **options)
        values = []
        for i, row in enumerate(rows):
            if self.takes_noise:
                options["noise"] = self.noise(logits)[:, i].tolist()
            values.append(self.reference(row, positives[i], unknown[i], *self._numbers(k), **options))
        return values

    def expected_mean(self, logits: Tensor, hot: Tensor, k: float = 2, *, weight: Tensor | None = None, **options):
        """Answer by the reference and the rules of the mean."""
        if self.function.__name__ == "two_way":
            weights = None if weight is None else weight.tolist()
            return reference.two_way_mean(
                logits.tolist(), *label_sets(hot), weight=weights, **{**self.options, **options}
            )
        values = self.expected(logits, hot, k, weight=weight, **options)
        weights = torch.ones(hot.shape[-1]) if weight is None else weight
        share = {
            "weights": ((hot > 0) * weights).sum().item(),
            "rows with a class": int((hot > 0).sum()),
            "rows": len(hot),
            "entries": int((hot >= 0).sum()),
        }[self.mean or ("weights" if self.one_class else "rows")]
        total = sum(sum(line) for line in values) if self.entrywise else sum(values)
        return total / share if share else 0

    def _numbers(self, k: float) -> list[float]:
        return [k] if self.takes_k else [EXPECTED] if self.takes_expected else []

    def _filled(self, logits: Tensor, options: Mapping[str, object]) -> dict[str, object]:
        """Add what is not said: the options of this entry, and noise unless it is to be drawn."""
        filled = {**self.options, **options}
        if self.takes_noise and not {"noise", "generator", "samples"} & set(options):
            filled["noise"] = self.noise(logits)
        return filled


def label_sets(hot: Tensor) -> tuple[list[set[int]], list[set[int]]]:
    """Return the positives and the unknown labels of each row of a multi-hot."""
    return tuple([set(row.nonzero().flatten().tolist()) for row in which] for which in (hot > 0, hot < 0))


def random_hot(loss: Loss, rows: int, n: int, generator: torch.Generator, *, unknown: float = 0) -> Tensor:
    """Return labels that fit the loss: one positive, or one to about half of all; a share of the rest unknown."""
    scores = torch.rand(rows, n, generator=generator)
    largest = 1 if loss.one_class else max(1, n // 2)
    sizes = torch.randint(1, largest + 1, (rows, 1), generator=generator)
    hot = (scores.argsort(-1).argsort(-1) < sizes).double()
    unclear = (torch.rand(rows, n, generator=generator) < unknown) & (hot == 0)
    return hot.masked_fill(unclear, -1.0)


FORMS = {
    "class indices": lambda hot: to_class_indices(hot, hot.shape[-1]),
    "index lists": lambda hot: to_index_lists(hot, hot.shape[-1]),
    "float32 multi-hot": lambda hot: hot.float(),
    "bool multi-hot": lambda hot: hot.bool(),
    "sparse COO": lambda hot: to_sparse(hot, hot.shape[-1]),
    "sparse CSR": lambda hot: to_sparse(hot, hot.shape[-1], layout=torch.sparse_csr),
}
"""A multi-hot without unknown labels in every form; class indices only where each row has one positive."""


def _hinge(kind: str) -> Loss:
    return Loss(
        F.topk_hinge,
        nn.TopKHinge,
        reference.topk_hinge,
        {"kind": kind},
        one_class=True,
        takes_k=True,
        smooth=False,
        cancels=True,
    )


def _two_way(kind: str) -> Loss:
    return Loss(F.two_way, nn.TwoWay, reference.two_way, {"kind": kind}, couples_rows=kind != "sample")


LOSSES = [
    Loss(F.cross_entropy, nn.CrossEntropy, reference.cross_entropy, one_class=True),
    Loss(F.focal, nn.Focal, reference.focal, one_class=True),
    Loss(F.ldam, nn.LDAM, reference.ldam, {"margin": 0.3, "scale": 3.0}, one_class=True),
    Loss(
        F.truncated_topk_entropy,
        nn.TruncatedTopKEntropy,
        reference.truncated_topk_entropy,
        one_class=True,
        takes_k=True,
    ),
    _hinge("plain"),
    _hinge("convex"),
    _hinge("calibrated"),
    Loss(F.smooth_topk_svm, nn.SmoothTopKSVM, reference.smooth_topk_svm, one_class=True, takes_k=True),
    Loss(
        F.noised_topk,
        nn.NoisedTopK,
        reference.noised_topk,
        one_class=True,
        takes_k=True,
        takes_noise=True,
        smooth=False,
        cancels=True,
    ),
    Loss(F.sparsemax_loss, nn.SparsemaxLoss, reference.sparsemax_loss, one_class=True, cancels=True),
    Loss(F.lml_nll, nn.LMLNLL, reference.lml_nll, takes_k=True),
    Loss(F.multilabel_softmax, nn.MultilabelSoftmax, reference.multilabel_softmax, cancels=True),
    Loss(
        F.multilabel_truncated_topk_entropy,
        nn.MultilabelTruncatedTopKEntropy,
        reference.multilabel_truncated_topk_entropy,
        takes_k=True,
    ),
    _two_way("two-way"),
    _two_way("sample"),
    _two_way("class"),
    Loss(F.sparse_top_loss, nn.SparseTopLoss, reference.sparse_top_loss, cancels=True),
    Loss(F.bce, nn.BCE, reference.bce, mean="entries", entrywise=True, counts_absent=True),
    Loss(
        F.asymmetric,
        nn.Asymmetric,
        reference.asymmetric,
        mean="entries",
        entrywise=True,
        counts_absent=True,
        cancels=True,
    ),
    Loss(F.warp, nn.WARP, reference.warp, smooth=False, cancels=True),
    Loss(F.rml, nn.RML, reference.rml, smooth=False, cancels=True, counts_absent=True),
    Loss(F.assume_negative, nn.AssumeNegative, reference.assume_negative, counts_absent=True),
    Loss(
        F.expected_positive,
        nn.ExpectedPositive,
        reference.expected_positive,
        takes_expected=True,
        couples_rows=True,
        counts_absent=True,
    ),
    Loss(
        F.role,
        nn.ROLE,
        reference.role,
        takes_expected=True,
        partner="estimates",
        couples_rows=True,
        detaches=True,
        counts_absent=True,
    ),
    Loss(
        F.average_k,
        nn.AverageK,
        reference.average_k,
        one_class=True,
        takes_k=True,
        partner="proposals",
        mean="rows with a class",
        couples_rows=True,
    ),
]

BLOCKS = [F.kth_largest, F.noised_kth_largest, F.log_elementary_symmetric, F.margins_from_counts]
"""What losses are made of: neither projections nor losses."""

MARGINS = torch.tensor([0.5, 0.25, 1.0, 0.125, 0.0, 2.0, 0.75], dtype=torch.float64)
OPTIONS = {
    "focal": [{"gamma": 0}, {"gamma": 0.5}, {"gamma": 3.5}],
    "ldam": [{"margin": MARGINS}, {"scale": 30.0}, {"margin": 0.0, "scale": 1.0}],
    "topk_hinge": [{"margin": 0.25}, {"margin": 3.0}],
    "smooth_topk_svm": [{"temperature": 0.1}, {"temperature": 5.0, "margin": 0.5}, {"temperature": 0}, {"margin": 0}],
    "noised_topk": [{"epsilon": 0.0}, {"epsilon": 0.3, "margin": MARGINS, "scale": 30.0}, {"margin": 0.2}],
    "two_way": [
        {"positive_temperature": 1.0},
        {"negative_temperature": 2.5, "margin": 1.5},
        {"positive_temperature": 0.5, "negative_temperature": 0.25, "margin": -1.0},
    ],
    "asymmetric": [
        {"gamma_negative": 0, "clip": 0},
        {"gamma_positive": 1.0, "gamma_negative": 1.0, "clip": 0.2},
        {"gamma_positive": 0.5, "gamma_negative": 2.5, "clip": 0},
    ],
    "warp": [{"margin": 0.25}, {"margin": 3.0}],
    "rml": [{"floor": 0.0}, {"balance": 0.0}, {"floor": -2.0, "balance": 0.5}],
    "expected_positive": [{"beta": 0.0}, {"beta": 2.5}],
    "role": [{"beta": 0.0}, {"beta": 2.5}],
    "average_k": [{"alpha": 0.0}, {"alpha": 2.5}],
}
"""Other than default options by function, for rows of seven labels where they hold a tensor."""


N = 6
"""Labels of a small batch."""


def batch(loss: Loss, generator: torch.Generator, *, unknown: float = 0.0, rows: int = 5) -> tuple[Tensor, Tensor]:
    """Draw a few rows with labels that suit the loss."""
    logits = 2 * torch.randn(rows, N, generator=generator, dtype=torch.float64)
    return logits, random_hot(loss, rows, N, generator, unknown=unknown)


def value_and_gradient(loss: Loss, logits: Tensor, target: Tensor, k: float = 2, **options) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient in the logits."""
    logits = logits.clone().requires_grad_()
    value = loss(logits, target, k, **options)
    return value.detach(), torch.autograd.grad(value.sum(), logits)[0]
