r"""The inequalities that a label set asks of a layer, in one homogeneous form.

A set :math:`Y` is argmaxable when some :math:`v` gives :math:`s_i (w_i \cdot v + b_i) > 0` for all labels, with
:math:`s_i = 1` on :math:`Y` and :math:`-1` elsewhere. A bias becomes one more column, whose coordinate must be
positive: one more row. The threshold of the top-k question becomes a column of ones, whose coordinate is free. What is
left is :math:`s_i\, r_i \cdot u > 0` for the rows :math:`r_i` of one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.functional import dft_matrix

Mode = Literal["sign", "top-k"]
Array = NDArray[np.float64]
Indices = NDArray[np.int64]

UNIT_ROUNDOFF = 2.0**-53
# The text bounds every feature by this, so that a region, which is a cone, holds a largest ball.
BOX = 1e4


@dataclass(frozen=True)
class System:
    """The rows of a layer, ready for questions about label sets.

    Attributes:
        weight: ``(n, d)``, as the layer has it.
        bias: ``(n,)`` or None.
        mode: ``"sign"`` (logits against zero) or ``"top-k"`` (logits against a free threshold).
        dft: the layer's first ``2 dft + 1`` columns are the truncated Fourier matrix; None when nothing is known.
    """

    weight: Array
    bias: Array | None
    mode: Mode
    dft: int | None = None

    @property
    def num_labels(self) -> int:
        return self.weight.shape[0]

    @cached_property
    def is_fourier(self) -> bool:
        """Whether the first ``2 dft + 1`` columns are the truncated Fourier matrix to float64 rounding."""
        n, d = self.weight.shape
        if self.dft is None or not 0 < 2 * self.dft + 1 <= min(n, d):
            return False
        exact = dft_matrix(n, self.dft, dtype=torch.float64).numpy()
        return bool((np.abs(self.weight[:, : 2 * self.dft + 1] - exact) <= 2.0**-40 / np.sqrt(n)).all())

    @cached_property
    def features(self) -> Array:
        """``(n, d)`` or ``(n, d + 1)``: what multiplies a vector; in top-k mode the last column is the threshold's."""
        if self.mode == "sign":
            return self.weight
        return np.hstack([self.weight, np.ones((self.num_labels, 1))])

    @cached_property
    def scales(self) -> tuple[NDArray[np.int32], Array]:
        """Length of each row of ``features`` as a power of two and a rest, so that no square can overflow."""
        exponents = np.frexp(np.abs(self.features).max(axis=1))[1]
        lengths = np.linalg.norm(np.ldexp(self.features, -exponents[:, None]), axis=1)
        return exponents, np.where(lengths > 0, lengths, 1.0)

    @cached_property
    def silent(self) -> NDArray[np.bool_]:
        """Rows of zeros, whose logit is the bias whatever the input."""
        return np.asarray(~self.features.any(axis=1))

    @cached_property
    def scaled(self) -> Array:
        """``features`` divided by their lengths: rows whose product with a vector is a distance."""
        exponents, lengths = self.scales
        return np.ldexp(self.features, -exponents[:, None]) / lengths[:, None]

    @cached_property
    def offsets(self) -> Array:
        """The bias divided by the lengths of ``features``; zeros without a bias."""
        if self.bias is None:
            return np.zeros(self.num_labels)
        exponents, lengths = self.scales
        return np.ldexp(self.bias, -exponents) / lengths

    @cached_property
    def augmented(self) -> Array:
        """All rows: the bias as a last column, and one more row which says that its coordinate is positive."""
        if self.bias is None:
            return self.features
        size = self.features.shape[1]
        return np.vstack([np.hstack([self.features, self.bias[:, None]]), np.eye(1, size + 1, size)])

    @cached_property
    def homogeneous(self) -> Array:
        """All rows, each times a power of two, which changes no sign and, but for underflow, no digit."""
        exponents = np.frexp(np.abs(self.augmented).max(axis=1, initial=0.0))[1]
        return np.ldexp(self.augmented, -exponents[:, None])

    @cached_property
    def kept(self) -> Indices:
        """Columns that are not plainly spanned by others, so that proofs see the rank of the layer."""
        kept, seen = [], set()
        constant = False
        for index in range(self.augmented.shape[1]):
            # A column that underflow emptied is not empty.
            column = self.augmented[:, index]
            threshold = self.mode == "top-k" and index == self.weight.shape[1]
            sign = np.sign(column[np.argmax(column != 0)]) if column.any() else 0.0
            key = (sign * column + 0.0).tobytes()
            if sign == 0 or key in seen or (threshold and constant):
                continue
            seen.add(key)
            kept.append(index)
            if index < self.weight.shape[1]:
                values = self.weight[:, index]
                constant = constant or bool((values == values[0]).all())
        return np.array(kept, dtype=np.int64)

    @cached_property
    def exponents(self) -> NDArray[np.int32]:
        """Powers of two that bring the largest entry of each kept column near one: features may differ in scale."""
        return np.frexp(np.abs(self.homogeneous[: self.num_labels, self.kept]).max(axis=0))[1]

    @cached_property
    def rows(self) -> Array:
        """``homogeneous`` without the redundant columns, the others scaled; the proofs are about these."""
        return np.ascontiguousarray(np.ldexp(self.homogeneous[:, self.kept], -self.exponents))

    @cached_property
    def exact(self) -> bool:
        """Whether scaling lost nothing to underflow, so that ``rows`` are those of the layer digit by digit."""
        return bool(((self.homogeneous != 0) == (self.augmented != 0)).all()) and bool(
            (np.abs(self.homogeneous)[self.homogeneous != 0] > 2.0**-1000).all()
        )

    @cached_property
    def unit(self) -> Array:
        """``rows`` of length one (zero rows stay zero): what the solver works on."""
        lengths: Array = np.linalg.norm(self.rows, axis=1, keepdims=True)
        return self.rows / np.where(lengths > 0, lengths, 1.0)

    @cached_property
    def lengths(self) -> Array:
        """Length of each row of ``homogeneous``."""
        return np.linalg.norm(self.homogeneous, axis=1)

    @cached_property
    def dead(self) -> Indices:
        """Labels whose logit is zero whatever the input: no set has them on either side."""
        return np.flatnonzero(~self.rows.any(axis=1))

    @cached_property
    def rank(self) -> int:
        """Numerical rank of the kept columns."""
        return int(np.linalg.matrix_rank(np.linalg.qr(self.unit, mode="r")))

    @cached_property
    def spread(self) -> Array:
        r"""``unit`` times the inverse of its Gram matrix: with it a least-squares fit of signs is a sum over labels."""
        gram = self.unit.T @ self.unit
        ridge = 1e-9 * np.trace(gram) / max(1, len(gram))
        return self.unit @ np.linalg.inv(gram + (ridge + 1e-300) * np.eye(len(gram)))

    def signs(self, active: Indices) -> Array:
        """+1 on the active labels (and on the row of the bias), -1 elsewhere."""
        signs = np.full(len(self.homogeneous), -1.0)
        signs[self.num_labels :] = 1.0
        signs[active] = 1.0
        return signs

    def to_vector(self, direction: Array) -> Array:
        """From coordinates of ``rows`` to the layer's own: to the box's edge, or divided by the bias' coordinate."""
        full = np.zeros(self.homogeneous.shape[1])
        # The length of a direction means nothing: the largest power of two becomes one, so that none overflows.
        full[self.kept] = np.ldexp(direction, self.exponents.min() - self.exponents)
        if self.bias is not None:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                return full[:-1] / full[-1]
        return full * (BOX / np.abs(full).max())

    def to_direction(self, vector: Array) -> Array:
        """The homogeneous coordinates of a vector of the layer, all columns."""
        return vector if self.bias is None else np.append(vector, 1.0)

    def prepare(self) -> System:
        """Compute once what all label sets share, before the work is handed to processes."""
        _ = (
            self.scaled,
            self.offsets,
            self.lengths,
            self.rows,
            self.unit,
            self.dead,
            self.spread,
        )
        return self
