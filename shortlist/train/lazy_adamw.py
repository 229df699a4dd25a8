"""AdamW whose cost follows the rows of a parameter that a batch uses, such as the vectors of the words that occur."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shortlist.kernels.chooser import use_kernel
from shortlist.kernels.sparse_rows import update_rows


class LazyAdamW(torch.optim.AdamW):
    r"""AdamW that updates only the rows with a gradient, if the gradient of a parameter is sparse.

    Each row of such a parameter has an AdamW of its own, without momentum, which would be out of date when the row is
    used again, and with one second moment, the mean over the row. In its t-th update with gradient g

    .. math:: v \leftarrow \beta_2 v + (1 - \beta_2) \operatorname{mean}(g^2), \quad
              w \leftarrow w - \eta g / (\sqrt{v / (1 - \beta_2^t)} + \epsilon).

    So the state is two numbers per row, and labels or directions with small gradients move little, which Adam's
    moment per entry would not allow. Weight decay applies to all rows at every step; a row catches up with the product
    :math:`\prod (1 - \eta \lambda)` over the steps that it missed when it is next updated, or at `catch_up`: until then
    the stored values lack it. Parameters with dense gradients get torch's AdamW.

    Args:
        parameters: tensors or groups; gradients that are sparse COO tensors must have one sparse dimension.
        options: of ``torch.optim.AdamW``, except ``maximize`` and ``amsgrad``.

    Example:
        >>> vectors = torch.nn.Embedding(1000, 2, sparse=True)
        >>> optimizer = LazyAdamW(vectors.parameters(), lr=0.1, weight_decay=0.0)
        >>> before = vectors.weight.detach().clone()
        >>> vectors(torch.tensor([3, 5])).sum().backward()
        >>> _ = optimizer.step()
        >>> (vectors.weight - before).abs().sum(1).nonzero().flatten()
        tensor([3, 5])
    """

    def __init__(self, parameters: Any, **options: Any) -> None:
        for name in ("maximize", "amsgrad"):
            if options.get(name):
                raise ValueError(f"`{name}` must be False, which updates of single rows rely on; got True.")
        super().__init__(parameters, **options)
        # By parameter: the log of the product up to now, and the value of it that each row has caught up with.
        self._log_decay: dict[Tensor, float] = {}
        self._caught_up: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    gradients[parameter], parameter.grad = parameter.grad, None
                    self._update_rows(parameter, _coalesced(gradients[parameter]), group)
        super().step()
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        return loss

    @torch.no_grad()
    def catch_up(self) -> None:
        """Apply the weight decay that rows have missed: before parameters are read as a whole, to validate or save."""
        for parameter, caught_up in self._caught_up.items():
            if self._log_decay[parameter]:
                parameter.mul_(_per_row((self._log_decay[parameter] - caught_up).exp(), parameter))
                caught_up.zero_()
                self._log_decay[parameter] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the state after `catch_up`, so that nothing is pending."""
        self.catch_up()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state, in which nothing is pending."""
        super().load_state_dict(state_dict)
        self._log_decay, self._caught_up = {}, {}

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_log_decay": self._log_decay, "_caught_up": self._caught_up}

    def _update_rows(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        rate, beta2 = float(group["lr"]), group["betas"][1]
        state = self.state[parameter]
        if not state:
            state["row_square"] = torch.zeros(len(parameter), device=parameter.device)
            state["step"] = torch.zeros(len(parameter), device=parameter.device)
        moments = state["row_square"], state["step"]
        rows, values = gradient.indices()[0], gradient.values()
        decay = torch.ones(len(rows), device=parameter.device)
        if group["weight_decay"]:
            decay = self._missed_decay(parameter, rows, rate * group["weight_decay"]).float()
        if parameter.is_contiguous() and use_kernel(1.0, values, parameter, *moments):
            update_rows(parameter, rows, values, decay, moments, rate=rate, beta2=beta2, eps=group["eps"])
            return
        flat = values.flatten(1) if values.dim() > 1 else values.unsqueeze(1)
        mean_square = torch.linalg.vector_norm(flat, dim=1, dtype=torch.float32).square() / max(flat.shape[1], 1)
        square, steps = moments[0][rows].lerp(mean_square, 1 - beta2), moments[1][rows] + 1
        for moment, updated in zip(moments, (square, steps), strict=True):
            moment.index_copy_(0, rows, updated)
        factors = -rate / ((square / (1 - beta2**steps)).sqrt() + group["eps"])
        updated = parameter[rows].mul_(_per_row(decay, parameter))
        parameter.index_copy_(0, rows, updated.addcmul_(values, _per_row(factors, values)))

    def _missed_decay(self, parameter: Tensor, rows: Tensor, decay: float) -> Tensor:
        """Return the factors by which rows catch up, the present step included."""
        if parameter not in self._caught_up:
            self._caught_up[parameter] = torch.zeros(len(parameter), device=parameter.device, dtype=torch.float64)
            self._log_decay[parameter] = 0.0
        self._log_decay[parameter] += math.log1p(-min(decay, 0.999))
        caught_up = self._caught_up[parameter]
        factors = (self._log_decay[parameter] - caught_up[rows]).exp()
        caught_up[rows] = self._log_decay[parameter]
        return factors


def _coalesced(gradient: Tensor) -> Tensor:
    """Autograd forgets that a gradient is coalesced, and checking is faster than sorting again."""
    rows = gradient._indices()[0]
    return gradient._coalesced_(True) if bool((rows[1:] > rows[:-1]).all()) else gradient.coalesce()


def _per_row(values: Tensor, like: Tensor) -> Tensor:
    return values.to(like.dtype).reshape(-1, *(1,) * (like.dim() - 1))
