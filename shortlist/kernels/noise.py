"""The kernel of noised order statistics as a function of float32 tensors on the CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def noised_places(x: Tensor, k: int, epsilon: float, samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Where each row's k-th largest entry of ``x + epsilon Z`` is in each sample, and the mean of ``epsilon Z`` there.

    The places are ``(rows, samples)``, the second result ``(rows,)``; it is NaN for rows that are not finite, whose
    places are 0. Neither depends on the number of threads.
    """
    from shortlist.kernels import noise_code, threads

    x = x.contiguous()
    offset, places = x.new_empty(x.shape[0]), torch.zeros(x.shape[0], samples, dtype=torch.int64)
    logits, offsets, found = x.numpy(), offset.numpy(), places.numpy()
    word, factors, terms = np.uint64(seed), *(np.empty(x.shape[1], np.uint32) for _ in range(2))
    noise_code.label_words(word, factors, terms)

    def work(start: int, stop: int) -> None:
        noise_code.noised_kth(logits, k, float(epsilon), samples, word, factors, terms, start, stop, offsets, found)

    threads.run_parts(work, x.shape[0], samples * x.numel())
    return places, offset
