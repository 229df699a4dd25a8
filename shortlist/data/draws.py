"""Chance that depends on a seed and a purpose alone, on any platform and with any version of numpy.

numpy keeps the raw bits of its bit generators stable, but not what its distributions make of them. Here whole numbers
and fractions are made of the bits by exact arithmetic, so that no rounding of a mathematical library decides.
"""

from __future__ import annotations

from hashlib import blake2b
from numbers import Integral

import numpy as np


class Draws:
    """A stream of chance; the same ``seed`` and ``purpose`` give the same stream, others an unrelated one.

    Args:
        seed: a whole number from 0.
        purpose: what the stream is for, so that two procedures with one seed do not move in step.

    Example:
        >>> Draws(0, "example").uniform(2)
        array([0.92292776, 0.13938379])
        >>> Draws(0, "example").order(4)
        array([1, 3, 2, 0])
    """

    def __init__(self, seed: int, purpose: str) -> None:
        if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
            raise ValueError(f"`seed` must be a whole number from 0; got {seed!r}.")
        key = blake2b(f"{int(seed)} {purpose}".encode(), digest_size=16).digest()
        self._bits = np.random.Philox(key=int.from_bytes(key, "little"))

    def raw(self, count: int) -> np.ndarray:
        """Random 64-bit words, ``(count,)`` uint64."""
        return self._bits.random_raw(count).astype(np.uint64, copy=False)

    def uniform(self, count: int) -> np.ndarray:
        """Fractions in [0, 1) with 53 random bits, ``(count,)`` float64."""
        return (self.raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bounds: np.ndarray) -> np.ndarray:
        """A whole number in [0, bound) for each bound in [1, 2^32], int64; uneven by less than 2^-32."""
        high = self.raw(len(bounds)) >> np.uint64(32)
        return ((high * bounds.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)

    def order(self, count: int) -> np.ndarray:
        """A random order of 0, ..., count - 1, int64."""
        return np.argsort(self.raw(count), kind="stable")

    def normal(self, count: int) -> np.ndarray:
        """Standard normal numbers, ``(count,)`` float64; the last bits may differ between platforms."""
        radius = np.sqrt(-2.0 * np.log1p(-self.uniform(count)))
        return radius * np.cos(2.0 * np.pi * self.uniform(count))
