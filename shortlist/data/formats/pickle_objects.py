"""What a pickle of plain data may hold: stand-ins for numpy's names, which check what they are given."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

_MAX_DIMENSIONS = 32
_MAX_NUMBERS = 2**40


class Refused(Exception):  # noqa: N818
    """Why a pickle is not read."""


class Payload:
    """Bytes that stay in the file: mapped by an array, or else copied once, however often they are used.

    Args:
        stored: where they lie, uint8 ``(bytes,)``, memory-mapped.
    """

    def __init__(self, stored: np.ndarray) -> None:
        self.stored, self._copy = stored, None

    def __len__(self) -> int:
        """Return the number of bytes."""
        return len(self.stored)

    def copied(self) -> bytes:
        """The same object each time, for a pickle may use what it remembers very often."""
        if self._copy is None:
            self._copy = self.stored.tobytes()
        return self._copy


class Arguments(tuple[Any, ...]):
    """A tuple that holds a name or a dtype, so that it is no data."""


class Name:
    """A name that a pickle may hold, and what stands for it."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


class Dtype:
    """A dtype whose byte order may still come."""

    def __init__(self, code: str) -> None:
        self.code, self.order = code, "="

    def build(self, state: Any) -> None:
        # (version, byte order, subarray, names, fields, size, alignment, flags, ...)
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise Refused("an array must have a plain numeric dtype")
        order = as_text(state[1])
        if order not in ("<", ">", "|", "="):
            raise Refused(f"the byte order of a dtype must be <, >, | or =, not {order!r:.20}")
        self.order = order

    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


class Array:
    """An array whose content may still come."""

    value: np.ndarray | None = None

    def build(self, state: Any) -> None:
        # (version, shape, dtype, is Fortran order, bytes)
        if not isinstance(state, tuple) or len(state) != 5:
            raise Refused("an array must have a state of 5 parts")
        _, shape, dtype, fortran, content = state
        if not isinstance(fortran, int):
            raise Refused("the order of an array must be a bool")
        self.value = _array(content, dtype, shape, "F" if fortran else "C")


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(content, (bytes, Payload)) or not isinstance(dtype, Dtype):
        raise Refused("an array must have bytes and a plain numeric dtype")
    if (
        not isinstance(shape, tuple)
        or len(shape) > _MAX_DIMENSIONS
        or not all(type(length) is int and length >= 0 for length in shape)
        or math.prod(max(length, 1) for length in shape) > _MAX_NUMBERS
    ):
        raise Refused("the shape of an array must be a tuple of a few whole numbers from 0")
    layout = as_text(order)
    if layout not in ("C", "F"):
        raise Refused(f"the order of an array must be C or F, not {layout!r:.20}")
    kind = dtype.dtype()
    wanted = math.prod(shape) * kind.itemsize
    if wanted != len(content):
        raise Refused(f"an array of shape {shape!r:.60} and dtype {kind} must have {wanted} bytes, not {len(content)}")
    if not wanted:
        return np.empty(shape, dtype=kind)
    stored = content.stored.view(kind) if isinstance(content, Payload) else np.frombuffer(content, dtype=kind)
    return stored.reshape(shape, order=layout)


def _reconstruct(subtype: Any, shape: Any, code: Any) -> Array:
    if subtype is not NAMES["numpy", "ndarray"]:
        raise Refused("an array must be a plain numpy.ndarray")
    return Array()


def _dtype(code: Any, *_: Any) -> Dtype:
    text = as_text(code)
    if re.fullmatch(r"b1|[iu][1248]|f[248]", text) is None:
        raise Refused(f"an array must have a plain numeric dtype, not {text!r:.20}")
    return Dtype(text)


def _scalar(dtype: Any, content: Any) -> int:
    array = _array(content, dtype, (), "C")
    if array.dtype.kind not in "iub":
        raise Refused("a number must be whole")
    return int(array)


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or as_text(encoding) not in ("latin1", "latin-1"):
        raise Refused("bytes must be written as latin1 text")
    try:
        return text.encode("latin1")
    except UnicodeEncodeError as error:
        raise Refused("bytes must be written as latin1 text") from error


def _no_bytes() -> bytes:
    return b""


def _ndarray(*_: Any) -> Any:
    raise Refused("`numpy.ndarray` must not be called")


NAMES = {
    ("numpy", "ndarray"): Name(_ndarray),
    ("numpy", "dtype"): Name(_dtype),
    ("_codecs", "encode"): Name(_encode),
    ("__builtin__", "bytes"): Name(_no_bytes),
    ("builtins", "bytes"): Name(_no_bytes),
    ("numpy.core.multiarray", "_reconstruct"): Name(_reconstruct),  # numpy 1
    ("numpy.core.multiarray", "scalar"): Name(_scalar),
    ("numpy.core.numeric", "_frombuffer"): Name(_array),
    ("numpy._core.multiarray", "_reconstruct"): Name(_reconstruct),  # numpy 2
    ("numpy._core.multiarray", "scalar"): Name(_scalar),
    ("numpy._core.numeric", "_frombuffer"): Name(_array),
}


def as_text(value: Any) -> str:
    """A short text, which Python 2 wrote as bytes."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise Refused(f"a text must stand here, not {type(value).__name__}")
    return value


def finished(value: Any) -> Any:
    """An array in place of one that waited for its content; all else as it is."""
    if not isinstance(value, Array):
        return value
    if value.value is None:
        raise Refused("an array must have its content before it is used")
    return value.value


def plain(value: Any) -> Any:
    """The value, if data may hold it."""
    if isinstance(value, (Name, Dtype, Arguments)):
        raise Refused("a name or a dtype is no data")
    return value.copied() if isinstance(value, Payload) else finished(value)


_ESCAPES = {b"\\": b"\\", b"'": b"'", b'"': b'"', b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def unescaped(line: bytes) -> bytes:
    """The string of which Python 2 wrote the ``repr``."""

    def meant(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if len(escape) == 3:
            return bytes([int(escape[1:], 16)])
        if escape not in _ESCAPES:
            raise Refused("a string has an unknown escape")
        return _ESCAPES[escape]

    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
        raise Refused("a string must stand in quotes")
    return re.sub(rb"\\(x[0-9a-fA-F]{2}|.|$)", meant, line[1:-1], flags=re.DOTALL)
