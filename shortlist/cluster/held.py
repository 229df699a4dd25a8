"""What all tasks share: sent to a process once, not with every task."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import numpy as np

from shortlist.extras import require

# Larger buffers are shared among the processes of a machine, which joblib does with arrays of this size.
_SHARED_BYTES = 2**20
_unpacked: dict[str, Any] = {}


class Sent(ABC):
    """What travels in the place of a value."""

    @abstractmethod
    def value(self) -> Any:
        """The value, in the process that asks."""


class Held(Sent):
    """A value that may be asked for in this process, and in others that it was sent to.

    Its large arrays become files in memory, which all processes map; the rest is unpacked once in each of them.
    Mapped arrays cannot be written to.

    Args:
        value: whatever cloudpickle can send.
    """

    def __init__(self, value: Any) -> None:
        self._token, self._value = uuid4().hex, value
        self._parcel: list[np.ndarray] = []

    def __getstate__(self) -> tuple[str, list[np.ndarray]]:
        """Pack when it is first sent; joblib knows an array that it has seen before."""
        if not self._parcel:
            buffers: list[np.ndarray] = []

            def stays_inside(buffer: pickle.PickleBuffer) -> bool:
                raw = buffer.raw()
                if raw.nbytes >= _SHARED_BYTES:
                    buffers.append(np.frombuffer(raw, dtype=np.uint8))
                return raw.nbytes < _SHARED_BYTES

            dumps = require("joblib.externals.loky.cloudpickle_wrapper", extra="audit").dumps
            packed = dumps(self._value, protocol=5, buffer_callback=stays_inside)
            self._parcel = [np.frombuffer(packed, dtype=np.uint8), *buffers]
        return self._token, self._parcel

    def __setstate__(self, state: tuple[str, list[np.ndarray]]) -> None:
        """Arrive as a parcel."""
        self._token, self._parcel = state

    def value(self) -> Any:
        """The value itself, or the one copy of it that this process has."""
        if hasattr(self, "_value"):
            return self._value
        packed, *buffers = self._parcel
        return unpacked_once(self._token, lambda: pickle.loads(packed.data, buffers=buffers))


def unpacked_once(token: str, unpack: Callable[[], Any]) -> Any:
    """What ``unpack`` gives, kept for the next task; a process holds one value, for they are large."""
    if token not in _unpacked:
        _unpacked.clear()
        _unpacked[token] = unpack()
    return _unpacked[token]
