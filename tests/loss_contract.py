"""One way to call every loss, its module and its reference: the machinery behind the list in contracts_losses.py."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shortlist import nn
from shortlist.targets import to_class_indices, to_index_lists, to_sparse

EXPECTED = 1.7
"""The number of positives per row, for losses that need to know it."""
N = 6
"""Labels of a small batch."""


@dataclass(frozen=True, eq=False)
class Loss:
    """A loss that all tests call as ``loss(logits, target, k)``, with the rest of its arguments filled in.

    The reference takes one row, or all rows if the loss couples them. A second tensor of logits (`partner`) and noise
    are deterministic and depend on the shape of the logits alone; the noise is the same for every row.
    """

    module: type[nn.Loss]
    reference: Callable[..., object]
    options: Mapping[str, object] = field(default_factory=dict)
    """Options of every call."""
    variants: Sequence[Mapping[str, object]] = ()
    """Other options to try, for rows of seven labels where they hold a tensor."""
    mean_reference: Callable[..., object] | None = None
    """The mean of a batch, where it is not a sum of the reference's values over what ``mean_over`` says."""
    couples_rows: bool | None = None
    """Whether the value of a row depends on the others; by default what the class says of batches."""
    smooth: bool = True
    """Whether second derivatives are not all 0."""
    detaches: bool = False
    """Whether some terms are treated as constants, so that finite differences see more than the gradient."""
    cancels: bool = False
    """Whether it subtracts logits or probabilities, so that a small value loses relative precision."""
    counts_absent: bool = False
    """Whether a row without positives still has a value other than 0."""

    def __post_init__(self) -> None:
        if self.couples_rows is None:
            object.__setattr__(self, "couples_rows", self.module.couples_rows)

    def __str__(self) -> str:
        return "-".join([self.function.__name__, *(str(v) for v in self.options.values() if isinstance(v, str))])

    @property
    def function(self) -> Callable[..., Tensor]:
        return self.module.function

    @property
    def parameters(self) -> list[str]:
        return list(inspect.signature(self.function).parameters)

    @property
    def one_class(self) -> bool:
        return self.module.one_class

    @property
    def mean_over(self) -> str:
        return self.module.mean_over

    @property
    def entrywise(self) -> bool:
        return self.mean_over == "known entries"

    @property
    def has_kernel(self) -> bool:
        """Whether it is computed by an operator that has a kernel; given noise is not drawn by one."""
        return self.function.__name__ in ("lml_nll", "sparse_top_loss", "sparsemax_loss", "smooth_topk_svm")

    @property
    def takes_k(self) -> bool:
        return "k" in self.parameters

    @property
    def takes_expected(self) -> bool:
        return "expected" in self.parameters

    @property
    def takes_noise(self) -> bool:
        return "noise" in self.parameters

    @property
    def partner(self) -> str | None:
        """The name of a second tensor of logits."""
        return None if self.parameters[1] == "target" else self.parameters[1]

    def __call__(self, logits: Tensor, target: Tensor, k: float = 2, *, partner: Tensor | None = None, **options):
        args = [logits, target]
        if self.partner:
            args.insert(1, self.second(logits) if partner is None else partner)
        return self.function(*args, *self._numbers(k), **self._filled(logits, options))

    def layer(self, logits: Tensor, k: float = 2, **options) -> torch.nn.Module:
        """Return the module with these options; its own estimates of labels are those of `second`."""
        if self.module.needs_examples:
            layer = self.module(len(logits), logits.shape[-1], EXPECTED, **{**self.options, **options})
            with torch.no_grad():
                next(layer.parameters()).copy_(self.second(logits))
            return layer
        return self.module(*self._numbers(k), **{**self.options, **options})

    def forward(self, layer: torch.nn.Module, logits: Tensor, target: Tensor) -> Tensor:
        """Call the module."""
        if self.module.needs_examples:
            return layer(logits, target, torch.arange(len(logits)))
        return layer(logits, self.second(logits), target) if self.partner else layer(logits, target)

    def second(self, logits: Tensor) -> Tensor:
        """Return other logits of the same shape and dtype."""
        waves = 2 * torch.sin(1.7 * torch.arange(logits.numel(), dtype=torch.float64))
        return waves.reshape(logits.shape).to(logits)

    def noise(self, logits: Tensor, samples: int = 3) -> Tensor:
        """Return the same noise for every row."""
        n = logits.shape[-1]
        noise = 1.5 * torch.sin(2.3 * torch.arange(1, samples * n + 1, dtype=torch.float64))
        noise = noise.reshape(samples, *[1] * (logits.dim() - 1), n).expand(samples, *logits.shape)
        return noise.to(logits.device, torch.promote_types(logits.dtype, torch.float32))

    def largest_k(self, n: int) -> int:
        """Return the largest ``k`` for ``n`` labels."""
        return n - 1 if self.partner else n

    def expected(self, logits: Tensor, hot: Tensor, k: float = 2, **options) -> list:
        """Return the values of the reference without a reduction, per row, entry or class; 2-D logits only."""
        rows, positives, unknown = logits.tolist(), *label_sets(hot)
        options = self._filled(logits, options)
        for name, value in options.items():
            options[name] = value.tolist() if isinstance(value, Tensor) else value
        if self.module.couples_rows:
            second = [self.second(logits).tolist()] if self.partner else []
            return self.reference(rows, *second, positives, unknown, *self._numbers(k), **options)
        values = []
        for i, row in enumerate(rows):
            if self.takes_noise:
                options["noise"] = self.noise(logits)[:, i].tolist()
            values.append(self.reference(row, positives[i], unknown[i], *self._numbers(k), **options))
        return values

    def expected_mean(self, logits: Tensor, hot: Tensor, k: float = 2, *, weight: Tensor | None = None, **options):
        """Return the mean of the values of the reference."""
        if self.mean_reference is not None:
            weights = None if weight is None else weight.tolist()
            return self.mean_reference(logits.tolist(), *label_sets(hot), weight=weights, **{**self.options, **options})
        values = self.expected(logits, hot, k, weight=weight, **options)
        weights = torch.ones(hot.shape[-1]) if weight is None else weight
        divisor = {
            "class weights": ((hot > 0) * weights).sum().item(),
            "labeled rows": int((hot > 0).any(-1).sum()),
            "rows": len(hot),
            "known entries": int((hot >= 0).sum()),
        }[self.mean_over]
        total = sum(sum(line) for line in values) if self.entrywise else sum(values)
        return total / divisor if divisor else 0

    def _numbers(self, k: float) -> list[float]:
        return [k] if self.takes_k else [EXPECTED] if self.takes_expected else []

    def _filled(self, logits: Tensor, options: Mapping[str, object]) -> dict[str, object]:
        """Add the options of this entry, and noise unless it is to be drawn."""
        filled = {**self.options, **options}
        if self.takes_noise and not {"noise", "generator", "samples"} & set(options):
            filled["noise"] = self.noise(logits)
        return filled


def label_sets(hot: Tensor) -> tuple[list[set[int]], list[set[int]]]:
    """Return the positives and the unknown labels of each row of a multi-hot."""
    return tuple([set(row.nonzero().flatten().tolist()) for row in which] for which in (hot > 0, hot < 0))


def random_hot(loss: Loss, rows: int, n: int, generator: torch.Generator, *, unknown: float = 0) -> Tensor:
    """Return labels that suit the loss: one positive, or up to half of all; a fraction of the rest unknown."""
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


def batch(loss: Loss, generator: torch.Generator, *, unknown: float = 0.0, rows: int = 5) -> tuple[Tensor, Tensor]:
    """Draw a few rows with labels that suit the loss."""
    logits = 2 * torch.randn(rows, N, generator=generator, dtype=torch.float64)
    return logits, random_hot(loss, rows, N, generator, unknown=unknown)


def value_and_gradient(loss: Loss, logits: Tensor, target: Tensor, k: float = 2, **options) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient in the logits."""
    logits = logits.clone().requires_grad_()
    value = loss(logits, target, k, **options)
    return value.detach(), torch.autograd.grad(value.sum(), logits)[0]
