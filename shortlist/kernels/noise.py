"""The kernel of noised order statistics as a function of float32 tensors on the CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def noised_kth(x: Tensor, k: int, epsilon: float, samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """The mean over samples of each row's k-th largest entry of ``x + epsilon Z``, and how often each label attains it.

    The mean ``(rows,)`` is NaN for rows that are not finite. The second result ``(rows, n)`` is the share of samples in
    which a label is the k-th largest. Neither depends on the number of threads.
    """
    from shortlist.kernels import noise_code, threads

    x = x.contiguous()
    mean, share = x.new_empty(x.shape[0]), torch.empty_like(x)
    logits, means, shares = x.numpy(), mean.numpy(), share.numpy()

    def work(start: int, stop: int) -> None:
        noise_code.noised_kth(logits, k, float(epsilon), samples, np.uint64(seed), start, stop, means, shares)

    threads.run_parts(work, x.shape[0], samples * x.numel())
    return mean, share
