"""Random numbers that depend only on a seed and a purpose, on any platform and with any version of numpy.

numpy keeps the raw bits of its bit generators stable, but not the distributions made from them. Here integers and
fractions are made from the bits by exact arithmetic, so the rounding of a math library does not matter.
"""

from __future__ import annotations

from hashlib import blake2b
from numbers import Integral

import numpy as np


class Draws:
    """A stream of random numbers; the same ``seed`` and ``purpose`` give the same stream, others an unrelated one.

    Args:
        seed: an integer from 0.
        purpose: what the stream is for, so that two procedures with the same seed are independent.

    Example:
        >>> Draws(0, "example").uniform(2)
        array([0.92292776, 0.13938379])
        >>> Draws(0, "example").order(4)
        array([1, 3, 2, 0])
    """

    def __init__(self, seed: int, purpose: str) -> None:
        if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
            raise ValueError(f"`seed` must be an integer from 0; got {seed!r}.")
        key = blake2b(f"{int(seed)} {purpose}".encode(), digest_size=16).digest()
        self._bits = np.random.Philox(key=int.from_bytes(key, "little"))

    def raw(self, count: int) -> np.ndarray:
        """Random 64-bit words, ``(count,)`` uint64."""
        return self._bits.random_raw(count).astype(np.uint64, copy=False)

    def uniform(self, count: int) -> np.ndarray:
        """Fractions in [0, 1) with 53 random bits, ``(count,)`` float64."""
        return (self.raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bounds: np.ndarray) -> np.ndarray:
        """An integer in [0, bound) for each bound in [1, 2^32], int64; uniform up to 2^-32."""
        high = self.raw(len(bounds)) >> np.uint64(32)
        return ((high * bounds.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)

    def order(self, count: int) -> np.ndarray:
        """A random permutation of 0, ..., count - 1, int64."""
        return np.argsort(self.raw(count), kind="stable")

    def normal(self, count: int) -> np.ndarray:
        """Standard normal numbers, ``(count,)`` float64; the last bits may differ between platforms."""
        radius = np.sqrt(-2.0 * np.log1p(-self.uniform(count)))
        return radius * np.cos(2.0 * np.pi * self.uniform(count))
