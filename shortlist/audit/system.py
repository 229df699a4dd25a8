r"""The inequalities that make a layer output a label set, in homogeneous form.

A set :math:`Y` is argmaxable when some :math:`v` gives :math:`s_i (w_i \cdot v + b_i) > 0` for all labels, with
:math:`s_i = 1` on :math:`Y` and :math:`-1` elsewhere. A bias becomes an extra column, with an extra row that requires
its coordinate to be positive. In top-k mode the free threshold becomes a column of ones. The result is :math:`s_i\, r_i
\cdot u > 0` for the rows :math:`r_i` of one matrix.

Rows and columns are scaled only by powers of two. This changes no sign and no digit, except for entries that underflow:
their error is at most :math:`2^{-1075}` while the largest entry of each row is at least 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from shortlist.audit.exact import Array, IntegerRows, to_integer_rows
from shortlist.functional import dft_matrix

Mode = Literal["sign", "top-k"]
Indices = NDArray[np.int64]
Exponents = NDArray[np.int32]

UNIT_ROUNDOFF = 2.0**-53
UNDERFLOW = 2.0**-1070
"""A generous bound on the underflow error in a product of scaled numbers."""

_MAX_SHIFT = 64

BOX = 1e4
"""The paper bounds every feature by this value, so that a region, which is a cone, contains a largest ball."""


@dataclass(frozen=True)
class System:
    """A layer as a system of inequalities, with everything that does not depend on the label set.

    Attributes:
        weight: ``(n, d)``, the layer's weight.
        bias: ``(n,)`` or None.
        mode: ``"sign"`` (logits against zero) or ``"top-k"`` (logits against a free threshold).
        dft: the first ``2 dft + 1`` columns are the truncated Fourier matrix; None if unknown.
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
        """Whether the first ``2 dft + 1`` columns are the truncated Fourier matrix up to float64 rounding."""
        n, d = self.weight.shape
        if self.dft is None or not 0 < 2 * self.dft + 1 <= min(n, d):
            return False
        exact = dft_matrix(n, self.dft, dtype=torch.float64).numpy()
        return bool((np.abs(self.weight[:, : 2 * self.dft + 1] - exact) <= 2.0**-40 / np.sqrt(n)).all())

    @cached_property
    def features(self) -> Array:
        """``(n, d)``, the matrix that multiplies a vector; in top-k mode ``(n, d + 1)``, threshold column last."""
        if self.mode == "sign":
            return self.weight
        return np.hstack([self.weight, np.ones((self.num_labels, 1))])

    @cached_property
    def norms(self) -> tuple[Exponents, Array]:
        """Norm of each row of ``features`` as a power of two and a factor, so that no square overflows."""
        exponents = _largest_exponents(self.features)
        norms = np.linalg.norm(np.ldexp(self.features, -exponents[:, None]), axis=1)
        return exponents, np.where(norms > 0, norms, 1.0)

    @cached_property
    def constant(self) -> NDArray[np.bool_]:
        """Labels with a zero row, whose logit equals the bias for every input."""
        return np.asarray(~self.features.any(axis=1))

    @cached_property
    def normals(self) -> Array:
        """``features`` divided by their norms, so that a row times a vector is a distance."""
        exponents, norms = self.norms
        return np.ldexp(self.features, -exponents[:, None]) / norms[:, None]

    @cached_property
    def offsets(self) -> Array:
        """The bias divided by the norms of ``features``, infinite on overflow; zeros without a bias."""
        if self.bias is None:
            return np.zeros(self.num_labels)
        exponents, norms = self.norms
        with np.errstate(over="ignore"):
            return np.ldexp(self.bias, -exponents) / norms

    @cached_property
    def augmented(self) -> Array:
        """All rows, exact: the bias is the last column, and an extra row requires its coordinate to be positive."""
        if self.bias is None:
            return self.features
        size = self.features.shape[1]
        return np.vstack([np.hstack([self.features, self.bias[:, None]]), np.eye(1, size + 1, size)])

    @cached_property
    def row_exponents(self) -> Exponents:
        """Exponents of the powers of two that ``homogeneous`` divides the rows by."""
        return _largest_exponents(self.augmented)

    @cached_property
    def homogeneous(self) -> Array:
        """``augmented`` with the largest entry of each row in [1/2, 1)."""
        return np.ldexp(self.augmented, -self.row_exponents[:, None])

    @cached_property
    def kept(self) -> Indices:
        """Columns that are not obviously in the span of others, so that proofs see the rank of the layer."""
        kept, seen = [], set()
        constant = False
        for index in range(self.augmented.shape[1]):
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
    def column_exponents(self) -> Exponents:
        """Exponents, none positive, of the powers of two that ``rows`` divides columns by; features differ in scale."""
        entries = self.augmented[: self.num_labels, self.kept]
        exponents = np.frexp(entries)[1] - self.row_exponents[: self.num_labels, None]
        lowest = np.where(entries != 0, exponents, np.iinfo(np.int32).min).max(axis=0)
        return np.where(entries.any(axis=0), lowest, 0)

    @cached_property
    def row_shifts(self) -> Exponents:
        """Additional exponents for ``rows``: nonzero only for the bias row, if the bias column is tiny."""
        shifts = np.zeros_like(self.row_exponents)
        if self.bias is not None:
            shifts[-1] = max(0, -_MAX_SHIFT - self.column_exponents[-1])
        return shifts

    @cached_property
    def rows(self) -> Array:
        """The kept columns with the largest entry of each label and column in [1/2, 1); proofs are about these.

        Scales in one step: an entry that underflows when only rows are scaled may be the largest of its column.
        """
        exponents = (self.row_exponents + self.row_shifts)[:, None] + self.column_exponents
        return np.ascontiguousarray(np.ldexp(self.augmented[:, self.kept], -exponents))

    @cached_property
    def unit(self) -> Array:
        """``rows`` scaled to unit norm (zero rows stay zero), the solver's input."""
        norms: Array = np.linalg.norm(self.rows, axis=1, keepdims=True)
        return self.rows / np.where(norms > 0, norms, 1.0)

    @cached_property
    def homogeneous_norms(self) -> Array:
        """Norm of each row of ``homogeneous``."""
        return np.linalg.norm(self.homogeneous, axis=1)

    @cached_property
    def integers(self) -> IntegerRows:
        """The kept columns of ``augmented`` as integers, for exact arithmetic."""
        return to_integer_rows(self.augmented[:, self.kept])

    @cached_property
    def zero_rows(self) -> Indices:
        """Labels whose logit is zero for every input, so that no set is argmaxable."""
        return np.flatnonzero(~self.augmented.any(axis=1))

    @cached_property
    def rank(self) -> int:
        """Numerical rank of the kept columns."""
        return int(np.linalg.matrix_rank(np.linalg.qr(self.unit, mode="r")))

    @cached_property
    def least_squares(self) -> Array:
        """``unit`` times the inverse of its Gram matrix; signs times this give their least-squares fit."""
        gram = self.unit.T @ self.unit
        ridge = 1e-9 * np.trace(gram) / max(1, len(gram))
        return self.unit @ np.linalg.inv(gram + (ridge + 1e-300) * np.eye(len(gram)))

    def signs(self, active: Indices) -> Array:
        """+1 on the active labels (and on the bias row), -1 elsewhere."""
        signs = np.full(len(self.augmented), -1.0)
        signs[self.num_labels :] = 1.0
        signs[active] = 1.0
        return signs

    def to_vector(self, direction: Array) -> Array:
        """Convert ``rows`` coordinates to features: scale to the edge of the box, or divide by the bias coordinate."""
        full = np.zeros(self.augmented.shape[1])
        # The length of a direction is arbitrary, so scale the largest factor to one to avoid overflow.
        full[self.kept] = np.ldexp(direction, self.column_exponents.min() - self.column_exponents)
        if self.bias is None:
            return to_box(full)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return full[:-1] / full[-1]

    def to_direction(self, vector: Array) -> Array:
        """The homogeneous coordinates of a feature vector, scaled so that the largest lies in [1/2, 1)."""
        direction = vector if self.bias is None else np.append(vector, 1.0)
        return np.ldexp(direction, -_largest_exponents(direction[None])[0])

    def prepare(self) -> System:
        """Compute what all label sets share, once, before sending work to other processes."""
        _ = (self.normals, self.offsets, self.homogeneous_norms, self.rows, self.unit, self.least_squares)
        return self


def to_box(vector: Array) -> Array:
    """The vector scaled to touch the edge of the box; zero stays zero."""
    scaled = np.ldexp(vector, -_largest_exponents(vector[None])[0])
    largest = np.abs(scaled).max(initial=0.0)
    return scaled * (BOX / largest) if largest > 0 else scaled


def _largest_exponents(matrix: Array) -> Exponents:
    """For each row, the exponent e such that its largest entry lies in [2^(e-1), 2^e); 0 for zero rows."""
    return np.frexp(np.abs(matrix).max(axis=1, initial=0.0))[1]
